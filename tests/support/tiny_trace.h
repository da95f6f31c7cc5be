// Writes a small trace event by event and opens it again: the GIVEN of ledger tests. Events are 1,000 ns apart.
#pragma once
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "profiler/writer/trace_writer.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_events.h"
#include "viewer/trace/trace_file.h"

namespace liveset::test {

class TinyTrace {
 public:
  TinyTrace() {
    std::string error;
    writer_ = writer::TraceWriter::create(path_, header_info(), &error);
    if (writer_ == nullptr) ADD_FAILURE() << error;
    writer_->define_thread(1, 1, "main");
    writer_->define_thread(2, 2, "second");
  }

  // Names; each call makes a new id.
  std::uint32_t string(const std::string& text) {
    writer_->define_string(++strings_, text);
    return strings_;
  }
  std::uint32_t heap(const std::string& name, std::uint32_t source = 0) {
    writer_->define_heap(++heaps_, string(name), name.substr(0, 4) == "cuda" ? 1 : 0, 0, source);
    return heaps_;
  }
  void source(const std::string& name) { writer_->define_source(++sources_, name, "1", "all", "nothing"); }
  std::uint32_t scope(int kind, const std::string& name, std::uint32_t parent = 0) {
    writer_->define_scope(++scopes_, parent, static_cast<std::uint32_t>(kind), string(name));
    return scopes_;
  }
  std::uint32_t value(const std::string& name, std::int64_t layer = -1) {
    writer_->define_value(++values_, string(name), 0, layer);
    return values_;
  }

  // State that the next events are stamped with.
  int phase = proto::PHASE_OTHER;
  std::uint32_t thread = 1, in_scope = 0;

  // Events; each returns its index.
  std::uint64_t alloc(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes) { return add(allocation(0, address, bytes, heap)); }
  std::uint64_t alloc(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, std::uint64_t total, std::uint64_t reserved) {
    return add(with_totals(allocation(0, address, bytes, heap), total, reserved));
  }
  std::uint64_t free(std::uint32_t heap, std::uint64_t address) { return add(release(0, address, heap)); }
  std::uint64_t free(std::uint32_t heap, std::uint64_t address, std::uint64_t total, std::uint64_t reserved) {
    return add(with_totals(release(0, address, heap), total, reserved));
  }
  std::uint64_t mark(int kind, std::int64_t number = 0) {
    writer::Event made = event(kind, 0);
    made.number = number;
    return add(made);
  }
  std::uint64_t step(std::int64_t number) { return mark(proto::EVENT_STEP_BEGIN, number); }
  std::uint64_t backward(std::int64_t nodes = 0) { return mark(proto::EVENT_BACKWARD_BEGIN, nodes); }
  std::uint64_t begin(std::uint32_t scope) {
    in_scope = scope;
    return add(event(proto::EVENT_SCOPE_BEGIN, 0));
  }
  std::uint64_t end(std::uint32_t scope, std::uint32_t outer = 0) {
    in_scope = scope;
    const std::uint64_t index = add(event(proto::EVENT_SCOPE_END, 0));
    in_scope = outer;
    return index;
  }
  std::uint64_t segment(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, bool is_free = false) {
    writer::Event made = allocation(0, address, bytes, heap);
    made.kind = static_cast<std::uint8_t>(is_free ? proto::EVENT_SEGMENT_FREE : proto::EVENT_SEGMENT_ALLOC);
    return add(made);
  }
  std::uint64_t out_of_memory(std::uint32_t heap, std::uint64_t bytes) {
    writer::Event made = allocation(0, 0, bytes, heap);
    made.kind = static_cast<std::uint8_t>(proto::EVENT_OUT_OF_MEMORY);
    return add(made);
  }
  std::uint64_t counter(std::uint32_t heap, std::uint32_t name, std::int64_t number) {
    writer::Event made = event(proto::EVENT_COUNTER, 0);
    made.heap = heap;
    made.name = name;
    made.number = number;
    return add(made);
  }
  std::uint64_t attribute(const std::string& key, const std::string& json) {
    writer::Event made = event(proto::EVENT_ATTRIBUTE, 0);
    made.name = string(key);
    made.text = string(json);
    return add(made);
  }
  std::uint64_t statement(int kind, std::uint32_t heap, std::uint64_t address, int memory_class, std::uint32_t name = 0,
                          std::uint32_t value = 0, std::uint64_t bytes = 0) {
    writer::Event made = event(kind, 0);
    made.heap = heap;
    made.address = address;
    made.memory_class = static_cast<std::uint8_t>(memory_class);
    made.name = name;
    made.value = value;
    made.size = bytes;
    return add(made);
  }
  std::uint64_t storage(std::uint32_t heap, std::uint64_t address, int memory_class, std::uint32_t name = 0) {
    return statement(proto::EVENT_STORAGE, heap, address, memory_class, name);
  }
  std::uint64_t retain(std::uint32_t heap, std::uint64_t address, int memory_class = proto::CLASS_ACTIVATION, std::uint32_t name = 0) {
    return statement(proto::EVENT_VALUE_RETAIN, heap, address, memory_class, name);
  }
  std::uint64_t value_event(int kind, std::uint32_t value, std::uint32_t heap = 0, std::uint64_t address = 0) {
    return statement(kind, heap, address, proto::CLASS_NONE, 0, value);
  }

  std::uint64_t add(writer::Event made) {
    made.time_ns = 1000 * next_;
    made.phase = static_cast<std::uint8_t>(phase);
    made.thread = thread;
    if (made.scope == 0) made.scope = in_scope;
    writer_->append(made);
    return next_++;
  }

  writer::TraceWriter& writer() { return *writer_; }
  const std::string& path() const { return path_; }
  // Closes the file and opens it for reading.
  trace::TraceFile open(const char* ended = "exit") {
    if (writer_ != nullptr && !writer_->finish(ended)) ADD_FAILURE() << "the trace could not be finished";
    writer_.reset();
    Result<trace::TraceFile> file = trace::TraceFile::open(path_);
    if (!file) throw std::runtime_error(file.error().message());
    return std::move(*file);
  }

 private:
  TemporaryFolder folder_;
  std::string path_ = folder_.file("tiny.liveset");
  std::unique_ptr<writer::TraceWriter> writer_;
  std::uint32_t strings_ = 0, heaps_ = 0, sources_ = 0, scopes_ = 0, values_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace liveset::test
