// From a trace file to its logical ledger: named values of a program, and the storages that a PyTorch graph retains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_trace.h"
#include "tests/support/trace_events.h"
#include "viewer/ledger/logical_trace.h"

namespace liveset::ledger {
namespace {

using ::testing::ElementsAre;
using writer::Event;

// A trace of one thread; names are interned as they come.
class TraceMaker {
 public:
  TraceMaker() : path_(folder_.file("t.liveset")) {
    std::string error;
    writer_ = writer::TraceWriter::create(path_, test::header_info(), &error);
    EXPECT_NE(writer_, nullptr) << error;
    writer_->define_heap(1, name("cpu"), 0, 0, 0);
    writer_->define_thread(1, 42, "main");
  }
  std::uint32_t name(const std::string& text) {
    writer_->define_string(++strings_, text);
    return strings_;
  }
  std::uint32_t value(const std::string& text, std::int64_t layer) {
    writer_->define_value(++values_, name(text), 0, layer);
    return values_;
  }
  std::uint32_t scope(std::uint32_t parent, int kind, const std::string& text) {
    writer_->define_scope(++scopes_, parent, static_cast<std::uint32_t>(kind), name(text));
    return scopes_;
  }
  void add(Event event) {
    event.phase = phase;
    event.scope = current_scope;
    event.time_ns = ++time_;
    writer_->append(event);
  }
  void mark(int kind, std::int64_t number = 0) {
    Event event = test::event(kind, 0);
    event.number = number;
    add(event);
  }
  void scope_event(int kind, std::uint32_t scope) {
    current_scope = scope;
    add(test::event(kind, 0));
  }
  void value_event(int kind, std::uint32_t id, std::uint64_t bytes = 0, std::vector<std::uint32_t> reads = {}) {
    Event event = test::event(kind, 0);
    event.value = id;
    event.size = bytes;
    event.number = -1;
    event.reads = reads;
    add(event);
  }
  void retain(std::uint64_t address, const std::string& slot, int memory_class = proto::CLASS_ACTIVATION) {
    Event event = test::event(proto::EVENT_VALUE_RETAIN, 0);
    event.heap = 1;
    event.address = address;
    event.name = name(slot);
    event.memory_class = static_cast<std::uint8_t>(memory_class);
    add(event);
  }
  void storage(std::uint64_t address, int memory_class) {
    Event event = test::event(proto::EVENT_STORAGE, 0);
    event.heap = 1;
    event.address = address;
    event.memory_class = static_cast<std::uint8_t>(memory_class);
    add(event);
  }
  LogicalLedger ledger(const std::string& range = "") {
    if (writer_) {
      EXPECT_TRUE(writer_->finish("exit"));
    }
    writer_.reset();
    Result<trace::TraceFile> file = trace::TraceFile::open(path_);
    EXPECT_TRUE(file) << file.error().message();
    const Result<Range> events = range.empty() ? Result<Range>(Range{}) : resolve_range(*file, range);
    EXPECT_TRUE(events) << events.error().message();
    Result<LogicalLedger> built = build_logical(*file, *events);
    EXPECT_TRUE(built) << built.error().message();
    return std::move(*built);
  }

  std::uint8_t phase = proto::PHASE_FORWARD;
  std::uint32_t current_scope = 0;

 private:
  test::TemporaryFolder folder_;
  std::string path_;
  std::unique_ptr<writer::TraceWriter> writer_;
  std::uint32_t strings_ = 0, values_ = 0, scopes_ = 0;
  std::uint64_t time_ = 0;
};

std::vector<std::string> lines(const LogicalLedger& ledger) {
  std::vector<std::string> texts;
  for (const LogicalEvent& event : ledger.events)
    texts.push_back(std::string(logical_kind_name(event.kind)) + " " + (event.value == no_index ? "-" : ledger.values[event.value].name) +
                    " " + std::to_string(event.live_ids) + "/" + std::to_string(event.live_bytes));
  return texts;
}

std::vector<std::string> names(const LogicalLedger& ledger, const std::vector<std::uint32_t>& ids) {
  std::vector<std::string> texts;
  for (const std::uint32_t id : ids) texts.push_back(ledger.values[id].name);
  return texts;
}

TEST(LogicalTrace, NamedValuesInTwoSteps) {
  TraceMaker t;
  const auto h0 = t.value("h0", 0), h1 = t.value("h1", 1);
  for (int step = 0; step < 2; ++step) {
    t.mark(proto::EVENT_STEP_BEGIN, step);
    t.phase = proto::PHASE_FORWARD;
    t.value_event(proto::EVENT_VALUE_CREATE, h0, 8);
    t.value_event(proto::EVENT_VALUE_CREATE, h1, 16, {h0});
    t.value_event(proto::EVENT_VALUE_RETAIN, h0);
    t.phase = proto::PHASE_LOSS;
    t.value_event(proto::EVENT_VALUE_USE, h1, 0, {h1});
    t.phase = proto::PHASE_BACKWARD;
    t.value_event(proto::EVENT_VALUE_RELEASE, h1);
    if (step == 1) t.value_event(proto::EVENT_VALUE_RELEASE, h0);
    t.mark(proto::EVENT_STEP_END, step);
    if (step == 0) t.value_event(proto::EVENT_VALUE_RELEASE, h0);
  }
  const LogicalLedger whole = t.ledger();
  EXPECT_EQ(whole.events.size(), 12U);
  EXPECT_EQ(whole.peak_bytes, 24U);
  EXPECT_EQ(whole.broken_count, 0U);
  EXPECT_EQ(whole.events[5].step, no_number);
  EXPECT_EQ(whole.events[6].step, 1);
  EXPECT_EQ(whole.events[1].layer, 1);
  const LogicalLedger second = t.ledger("step:1");
  EXPECT_THAT(lines(second),
              ElementsAre("create h0 1/8", "create h1 2/24", "keep h0 2/24", "use h1 2/24", "release h1 1/8", "release h0 0/0"));
  EXPECT_EQ(second.forward_layers, 1U);
  EXPECT_THAT(names(second, second.held_at_loss), ElementsAre("h0", "h1"));
}

TEST(LogicalTrace, RegionsCarryTheirAttributes) {
  TraceMaker t;
  const auto outer = t.scope(0, proto::SCOPE_MODULE, "net"), region = t.scope(outer, proto::SCOPE_REGION, "encode");
  const auto key = t.name("rows"), text = t.name("[0,1]");
  t.scope_event(proto::EVENT_SCOPE_BEGIN, outer);
  t.scope_event(proto::EVENT_SCOPE_BEGIN, region);
  Event attribute = test::event(proto::EVENT_ATTRIBUTE, 0);
  attribute.name = key;
  attribute.text = text;
  t.add(attribute);
  t.scope_event(proto::EVENT_SCOPE_END, region);
  const LogicalLedger ledger = t.ledger();
  ASSERT_EQ(ledger.regions.size(), 1U);
  EXPECT_EQ(ledger.regions[0].name, "encode");
  EXPECT_EQ(ledger.regions[0].attributes[0].first, "rows");
  EXPECT_EQ(ledger.regions[0].attributes[0].second, "[0,1]");
}

// Two blocks that the graph retains (one of them in two slots), a parameter, a temporary, a checkpoint's input, what the recompute
// makes that outlives its region and what does not.
TEST(LogicalTrace, StoragesThatTheGraphRetains) {
  TraceMaker t;
  const auto net = t.scope(0, proto::SCOPE_MODULE, "Net"), linear = t.scope(net, proto::SCOPE_MODULE, "f1");
  const auto region = t.scope(net, proto::SCOPE_REGION, "checkpoint:0");
  t.phase = proto::PHASE_OTHER;
  t.add(test::allocation(0, 0x1000, 400));  // the parameter
  t.add(test::allocation(0, 0x2000, 64));   // the checkpoint's input
  t.add(test::allocation(0, 0x8000, 64));   // another parameter
  t.mark(proto::EVENT_STEP_BEGIN, 0);
  t.phase = proto::PHASE_FORWARD;
  t.scope_event(proto::EVENT_SCOPE_BEGIN, net);
  t.scope_event(proto::EVENT_SCOPE_BEGIN, linear);
  t.add(test::allocation(0, 0x3000, 128));
  t.add(test::allocation(0, 0x4000, 32));  // temporary
  t.add(test::release(0, 0x4000));
  t.scope_event(proto::EVENT_SCOPE_END, linear);
  t.scope_event(proto::EVENT_SCOPE_END, net);
  t.current_scope = 0;
  t.phase = proto::PHASE_LOSS;
  t.add(test::allocation(0, 0x5000, 256));
  t.retain(0x3000, "TanhBackward0.result");
  t.retain(0x3000, "MulBackward0.self");
  t.retain(0x5010, "PowBackward0.self");  // inside its block
  t.retain(0x1000, "MulBackward0.other", proto::CLASS_PARAMETER);
  t.retain(0x8000, "MmBackward0.self");  // told only later that it is a parameter
  t.storage(0x2000, proto::CLASS_CHECKPOINT_INPUT);
  t.mark(proto::EVENT_BACKWARD_BEGIN, 4);
  t.phase = proto::PHASE_BACKWARD;
  t.add(test::release(0, 0x5000));
  t.scope_event(proto::EVENT_SCOPE_BEGIN, region);
  t.phase = proto::PHASE_RECOMPUTE;
  t.add(test::allocation(0, 0x6000, 128));
  t.add(test::allocation(0, 0x7000, 16));
  t.add(test::release(0, 0x7000));
  t.scope_event(proto::EVENT_SCOPE_END, region);
  t.current_scope = 0;
  t.phase = proto::PHASE_BACKWARD;
  t.add(test::release(0, 0x6000));
  t.add(test::release(0, 0x3000));
  t.mark(proto::EVENT_BACKWARD_END, 4);
  t.phase = proto::PHASE_OTHER;
  t.add(test::release(0, 0x2000));
  t.storage(0x8000, proto::CLASS_PARAMETER);
  const LogicalLedger ledger = t.ledger();
  EXPECT_THAT(lines(ledger),
              ElementsAre("create checkpoint_input 1/64", "create Net.f1/TanhBackward0.result 2/192", "create PowBackward0.self 3/448",
                          "keep Net.f1/TanhBackward0.result 3/448", "keep PowBackward0.self 3/448", "keep checkpoint_input 3/448",
                          "release PowBackward0.self 2/192", "rerun Net/recomputed 3/320", "release Net/recomputed 2/192",
                          "release Net.f1/TanhBackward0.result 1/64", "release checkpoint_input 0/0"));
  EXPECT_THAT(names(ledger, ledger.held_at_loss), ElementsAre("checkpoint_input", "Net.f1/TanhBackward0.result", "PowBackward0.self"));
  EXPECT_EQ(ledger.values[0].memory_class, trace::MemoryClass::checkpoint_input);
  EXPECT_EQ(ledger.values[3].memory_class, trace::MemoryClass::recomputed_activation);
  EXPECT_EQ(ledger.broken_count, 0U);
  EXPECT_TRUE(ledger.live_at_end.empty());
}

// The parts of the names of values: where they were made, which node holds them in which slot, and how often they were made.
TEST(LogicalTrace, ValuesCarryThePartsOfTheirNames) {
  TraceMaker t;
  const auto net = t.scope(0, proto::SCOPE_MODULE, "Net"), region = t.scope(net, proto::SCOPE_REGION, "checkpoint:0");
  const auto slot = [&](int kind, std::uint64_t address, const std::string& name, std::int64_t index) {
    Event event = test::event(kind, 0);
    event.heap = address != 0 ? 1 : 0;
    event.address = address;
    event.name = name.empty() ? 0 : t.name(name);
    event.number = (index + 1) << 8;
    t.current_scope = region;
    t.add(event);
    t.current_scope = 0;
  };
  const auto node = [&](const std::string& name) {
    Event event = test::event(proto::EVENT_GRAPH_NODE, 0);
    event.name = t.name(name);
    t.add(event);
  };
  t.mark(proto::EVENT_STEP_BEGIN, 0);
  t.mark(proto::EVENT_MICROBATCH_BEGIN, 1);
  t.phase = proto::PHASE_FORWARD;
  t.scope_event(proto::EVENT_SCOPE_BEGIN, net);
  t.add(test::allocation(0, 0x3000, 128));
  t.scope_event(proto::EVENT_SCOPE_END, net);
  t.current_scope = 0;
  t.phase = proto::PHASE_OTHER;
  node("AddmmBackward0");
  t.retain(0x3000, "AddmmBackward0.mat1");
  node("GeluBackward0");
  slot(proto::EVENT_VALUE_USE, 0, "GeluBackward0.self", 2);
  t.mark(proto::EVENT_BACKWARD_BEGIN, 2);
  for (const std::uint64_t address : {0x6000, 0x7000}) {  // two backwards of one graph: made again twice
    t.phase = proto::PHASE_RECOMPUTE;
    t.scope_event(proto::EVENT_SCOPE_BEGIN, region);
    t.add(test::allocation(0, address, 64));
    slot(proto::EVENT_VALUE_REMAKE, address, "", 2);
    t.scope_event(proto::EVENT_SCOPE_END, region);
    t.current_scope = 0;
  }
  const LogicalLedger ledger = t.ledger();
  ASSERT_EQ(ledger.values.size(), 3U);
  const LogicalValue &held = ledger.values[0], &first = ledger.values[1], &second = ledger.values[2];
  EXPECT_EQ(held.module + " " + held.op + " " + held.slot, "Net AddmmBackward0 mat1");
  EXPECT_EQ(held.microbatch, 1);
  EXPECT_EQ(held.incarnation, 0U);
  EXPECT_EQ(first.op + " " + first.slot, "GeluBackward0 self");
  EXPECT_EQ(first.incarnation, 1U);
  EXPECT_EQ(second.op + " " + second.slot, "GeluBackward0 self");
  EXPECT_EQ(second.incarnation, 2U);
}

// The free of a recomputed block lies in a chunk that cannot be read; its address is another block's by the region's end.
TEST(LogicalTrace, ABlockWhoseFreeIsMissingIsNotTakenForItsSuccessor) {
  for (const bool successor_lives : {false, true}) {
    test::TinyTrace trace;
    const auto cpu = trace.heap("cpu");
    const auto region = trace.scope(proto::SCOPE_REGION, "checkpoint:0");
    trace.step(0);
    trace.begin(region);
    trace.phase = proto::PHASE_RECOMPUTE;
    trace.alloc(cpu, 0x1000, 10);
    trace.writer().flush();
    trace.free(cpu, 0x1000);
    trace.writer().flush();
    trace.phase = proto::PHASE_BACKWARD;
    trace.alloc(cpu, 0x1000, 20);
    if (!successor_lives) trace.free(cpu, 0x1000);
    trace.end(region);
    trace.backward();
    const std::uint64_t middle = trace.open().chunks().at(1).offset;
    std::string bytes = test::read_file(trace.path());
    bytes[middle + 8] = static_cast<char>(bytes[middle + 8] ^ 1);
    test::write_file(trace.path(), bytes);
    Result<trace::TraceFile> file = trace::TraceFile::open(trace.path());
    ASSERT_TRUE(file);
    ASSERT_EQ(file->chunks().size(), 2U);
    const Result<LogicalLedger> ledger = build_logical(*file, {});
    ASSERT_TRUE(ledger);
    EXPECT_TRUE(ledger->events.empty() || ledger->peak_ids_event == no_event);
  }
}

TEST(LogicalTrace, TraceWithoutValuesHasAnEmptyLedger) {
  TraceMaker t;
  t.add(test::allocation(0, 0x1000, 400));
  t.add(test::release(0, 0x1000));
  const LogicalLedger ledger = t.ledger();
  EXPECT_TRUE(ledger.events.empty());
  EXPECT_EQ(ledger.peak_ids_event, no_event);
}

}  // namespace
}  // namespace liveset::ledger
