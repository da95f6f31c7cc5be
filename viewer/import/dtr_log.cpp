#include "viewer/import/dtr_log.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "profiler/writer/trace_writer.h"
#include "proto/trace.pb.h"
#include "viewer/import/importer.h"
#include "viewer/import/names.h"
#include "viewer/trace/file_bytes.h"

namespace liveset::imports {
namespace {

using nlohmann::json;

constexpr std::uint64_t most_file_bytes = std::uint64_t{4} << 30, most_line_bytes = 16U << 20;
constexpr std::int64_t most_storage_bytes = std::int64_t{1} << 48, most_live_bytes = std::int64_t{1} << 60;

// A number, which these logs write as a text.
std::optional<std::int64_t> number_of(const json& record, const char* key) {
  const auto found = record.find(key);
  if (found == record.end()) return std::nullopt;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  if (!found->is_string()) return std::nullopt;
  const std::string& text = found->get_ref<const std::string&>();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string text_of(const json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? found->get<std::string>() : std::string();
}

class DtrReading {
 public:
  DtrReading(const std::string& path, DtrVisitor* visitor) : path_(path), visitor_(visitor) {}

  Result<DtrFacts> run() {
    Result<trace::FileBytes> file = trace::FileBytes::open(path_);
    if (!file) return file.take_error();
    Result<std::vector<std::uint8_t>> bytes = file->read_all(most_file_bytes);
    if (!bytes) return bytes.take_error();
    const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    for (std::size_t begin = 0; begin < text.size(); begin = next_) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      next_ = end + 1;
      begin_ = begin;
      ++line_;
      if (end - begin > most_line_bytes) return refuse("a line of " + std::to_string(end - begin) + " bytes");
      if (end == begin) continue;
      const json record = json::parse(text.substr(begin, end - begin), nullptr, false);
      if (!record.is_object()) return refuse("no JSON object");
      if (!take(record)) return refuse(problem_);
    }
    end_call();
    out_.end_live_names = names_.size();
    out_.end_live_bytes = static_cast<std::uint64_t>(live_);
    return std::move(out_);
  }

 private:
  struct Storage {
    std::uint64_t number = 0, bytes = 0, references = 0;
  };

  Error refuse(const std::string& what) const {
    return {ErrorKind::unreadable, path_, begin_, "line " + std::to_string(line_) + ": " + what, "is it an operator log of DTR?"};
  }
  bool fail(std::string what) {
    problem_ = std::move(what);
    return false;
  }

  bool take(const json& record) {
    const std::string kind = text_of(record, "INSTRUCTION");
    if (out_.records.size() >= 64 && out_.records.count(kind) == 0) return fail("too many kinds of records");
    ++out_.records[kind];
    const std::string name = text_of(record, "NAME");
    if (kind == "MEMORY") return memory(record, name);
    if (kind == "ALIAS") return alias(record, name);
    end_call();
    if (kind == "ANNOTATE") {
      if (text_of(record, "ANNOTATION") == "BACKWARD" && visitor_ != nullptr) visitor_->backward_begins();
      return true;
    }
    if (kind == "CONSTANT") {
      constant_ = name;
      record_line_ = line_;
      return true;
    }
    if (kind == "CALL") return call(record, name);
    if (kind == "MUTATE") {
      begin_call(name, record);
      return true;
    }
    if (kind == "COPY" || kind == "COPY_FROM") return copy(text_of(record, "DST"), text_of(record, "SRC"), kind == "COPY_FROM");
    if (kind == "RELEASE") return release(name);
    return fail("\"" + kind.substr(0, 40) + "\" is no instruction of a DTR log");
  }

  void begin_call(const std::string& name, const json& record) {
    in_call_ = true;
    if (visitor_ != nullptr)
      visitor_->call_begins(name,
                            static_cast<std::uint64_t>(std::clamp<std::int64_t>(number_of(record, "TIME").value_or(0), 0, 1LL << 50)));
  }
  void end_call() {
    if (in_call_ && visitor_ != nullptr) visitor_->call_ends();
    in_call_ = false;
    sizes_.clear();
  }

  bool call(const json& record, const std::string& name) {
    arguments_.clear();
    if (const auto found = record.find("ARGS"); found != record.end() && found->is_array())
      for (const json& argument : *found) arguments_.push_back(argument.is_string() ? argument.get<std::string>() : std::string());
    record_line_ = line_;
    begin_call(name, record);
    return true;
  }

  bool memory(const json& record, const std::string& name) {
    const std::optional<std::int64_t> bytes = number_of(record, "MEMORY");
    if (!bytes || *bytes < 0 || *bytes > most_storage_bytes) return fail("MEMORY is no size");
    if (!constant_.empty() && name == constant_) {
      constant_.clear();
      out_.constant_bytes += static_cast<std::uint64_t>(*bytes);
      return create(name, static_cast<std::uint64_t>(*bytes));
    }
    if (!in_call_) return fail("MEMORY of " + name.substr(0, 40) + ", which neither a CONSTANT nor a CALL made");
    sizes_[name] = static_cast<std::uint64_t>(*bytes);
    return true;
  }

  bool alias(const json& record, const std::string& name) {
    const std::optional<std::int64_t> index = number_of(record, "ALIAS");
    const auto size = sizes_.find(name);
    if (!in_call_ || !index || size == sizes_.end()) return fail("ALIAS of what no CALL made");
    if (*index < 0) return create(name, size->second);
    if (static_cast<std::size_t>(*index) >= arguments_.size()) return fail("ALIAS of an argument that the CALL does not have");
    const auto source = names_.find(arguments_[static_cast<std::size_t>(*index)]);
    if (source == names_.end()) return fail("ALIAS of a name that nothing made");
    return bind(name, source->second);
  }

  bool create(const std::string& name, std::uint64_t bytes) {
    live_ += static_cast<std::int64_t>(bytes);
    if (live_ > most_live_bytes) return fail("the sizes add up beyond 2^60 bytes");
    if (visitor_ != nullptr) visitor_->create(storages_, name, bytes);
    const std::uint64_t number = storages_++;
    live_storages_[number] = {number, bytes, 0};
    if (!bind(name, number)) return false;
    if (static_cast<std::uint64_t>(live_) > out_.peak_bytes) {
      out_.peak_bytes = static_cast<std::uint64_t>(live_);
      out_.peak_line = record_line_;
    }
    return true;
  }

  bool bind(const std::string& name, std::uint64_t storage) {
    if (name.empty()) return fail("a tensor without a name");
    if (!names_.try_emplace(name, storage).second) return fail("the name " + name.substr(0, 40) + " is given twice");
    ++live_storages_[storage].references;
    return true;
  }

  bool release(const std::string& name) {
    const auto found = names_.find(name);
    if (found == names_.end()) return fail("RELEASE of " + name.substr(0, 40) + ", which nothing made");
    const auto storage = live_storages_.find(found->second);
    names_.erase(found);
    if (--storage->second.references != 0) return true;
    live_ -= static_cast<std::int64_t>(storage->second.bytes);
    if (visitor_ != nullptr) visitor_->free(storage->first);
    live_storages_.erase(storage);
    return true;
  }

  bool copy(const std::string& to, const std::string& from, bool replaces) {
    const auto source = names_.find(from);
    if (source == names_.end()) return fail("a copy of " + from.substr(0, 40) + ", which nothing made");
    if (replaces && to == from) return true;
    const std::uint64_t storage = source->second;
    return (!replaces || release(to)) && bind(to, storage);
  }

  const std::string& path_;
  DtrVisitor* visitor_;
  DtrFacts out_;
  std::map<std::string, std::uint64_t> names_;  // to storages
  std::map<std::uint64_t, Storage> live_storages_;
  std::map<std::string, std::uint64_t> sizes_;  // of the results of the call
  std::vector<std::string> arguments_;          // of the call
  std::string constant_, problem_;
  std::uint64_t storages_ = 0, line_ = 0, record_line_ = 0;
  std::size_t begin_ = 0, next_ = 0;
  std::int64_t live_ = 0;
  bool in_call_ = false;
};

// Storages have no addresses in a log: the trace's are numbers in the order of creation.
class DtrTrace final : public DtrVisitor {
 public:
  DtrTrace(const std::string& path, writer::TraceWriter& writer) : writer_(writer), names_(writer) {
    writer_.define_source(
        1, "dtr-log", "", "the storages of one forward and backward pass, as bytes of tensors",
        "scratch memory of operators; what the allocator rounds, caches and reserves; addresses: those here are numbers in the order "
        "of creation");
    writer_.define_heap(1, names_.string("dtr"), proto::CUDA, 0, 1);
    writer_.define_thread(1, 0, "program");
    const nlohmann::ordered_json facts = {
        {"from", "dtr-log"},
        {"file", path.substr(path.find_last_of('/') + 1)},
        {"block_bytes", "requested"},
        {"heaps",
         nlohmann::ordered_json::array({{{"heap", "dtr"}, {"history", "whole"}, {"contradictions", nlohmann::ordered_json::array()}}})}};
    writer::Event event = stamped(proto::EVENT_ATTRIBUTE);
    event.name = names_.string("imported");
    event.text = names_.string(facts.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    writer_.append(event);
    phase_ = proto::PHASE_FORWARD;
    event = stamped(proto::EVENT_PHASE);
    writer_.append(event);
  }

  void backward_begins() override {
    phase_ = proto::PHASE_BACKWARD;
    writer_.append(stamped(proto::EVENT_PHASE));
  }
  void call_begins(std::string_view op, std::uint64_t time_ns) override {
    scope_ = names_.scope(0, proto::SCOPE_OP, op);
    writer_.append(stamped(proto::EVENT_SCOPE_BEGIN));
    takes_ns_ = time_ns;
  }
  void call_ends() override {
    time_ns_ += takes_ns_;
    writer_.append(stamped(proto::EVENT_SCOPE_END));
    scope_ = 0;
  }
  void create(std::uint64_t storage, std::string_view name, std::uint64_t bytes) override {
    writer::Event event = block(proto::EVENT_ALLOC, storage, bytes);
    writer_.append(event);
    const auto value = static_cast<std::uint32_t>(storage + 1);
    writer_.define_value(value, names_.string(name), 0, -1);
    live_[storage] = bytes;
    event.kind = proto::EVENT_VALUE_CREATE;
    event.value = value;
    writer_.append(event);
  }
  void free(std::uint64_t storage) override {
    const auto found = live_.find(storage);
    writer::Event event = block(proto::EVENT_VALUE_RELEASE, storage, found->second);
    event.value = static_cast<std::uint32_t>(storage + 1);
    writer_.append(event);
    event.kind = proto::EVENT_FREE_REQUESTED;
    writer_.append(event);
    live_.erase(found);
  }

 private:
  writer::Event stamped(int kind) const {
    writer::Event event;
    event.kind = static_cast<std::uint8_t>(kind);
    event.time_ns = time_ns_;
    event.thread = 1;
    event.phase = static_cast<std::uint8_t>(phase_);
    event.scope = scope_;
    return event;
  }
  writer::Event block(int kind, std::uint64_t storage, std::uint64_t bytes) const {
    writer::Event event = stamped(kind);
    event.heap = 1;
    event.address = (storage + 1) << 12;
    event.size = bytes;
    return event;
  }

  writer::TraceWriter& writer_;
  Names names_;
  std::map<std::uint64_t, std::uint64_t> live_;  // bytes
  std::uint64_t time_ns_ = 0, takes_ns_ = 0;
  std::uint32_t scope_ = 0;
  int phase_ = proto::PHASE_OTHER;
};

}  // namespace

Result<DtrFacts> read_dtr_log(const std::string& path, DtrVisitor* visitor) { return DtrReading(path, visitor).run(); }

Status import_dtr_log(const std::string& path, std::unique_ptr<writer::Sink> sink) {
  writer::HeaderInfo header;
  header.tool_version = LIVESET_VERSION;
  std::string error;
  const std::unique_ptr<writer::TraceWriter> writer = writer::TraceWriter::create(std::move(sink), "the imported trace", header, &error);
  if (writer == nullptr) return Error{ErrorKind::unreadable, "", {}, error, ""};
  DtrTrace trace(path, *writer);
  Result<DtrFacts> facts = read_dtr_log(path, &trace);
  if (!facts) return facts.take_error();
  if (!writer->finish(""))
    return Error{ErrorKind::unreadable, path, {}, "the trace of it could not be written as a whole", "is the disk full?"};
  return Done{};
}

bool looks_like_dtr_log(std::string_view beginning) {
  beginning = beginning.substr(0, beginning.find('\n'));
  return beginning.starts_with("{") && beginning.find("\"INSTRUCTION\"") != std::string_view::npos;
}

}  // namespace liveset::imports
