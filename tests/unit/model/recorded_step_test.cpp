// Models of recorded steps, from traces that are written here event by event: which ops they have, in which order, and what are layers.
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/tiny_trace.h"
#include "viewer/model/model.h"
#include "viewer/model/recorded_step.h"

namespace liveset::model {
namespace {

using ::testing::ElementsAre;

// A job of PyTorch as its trace tells it. A node's number is also the address of what it makes, in units of 4096.
class Job {
 public:
  test::TinyTrace trace;
  const std::uint32_t heap = trace.heap("cpu"), tanh = trace.string("TanhBackward0"), slot = trace.string("TanhBackward0.result");

  void numbers_from(std::int64_t next) { trace.mark(proto::EVENT_SEQUENCE, next); }
  static std::uint64_t address(std::int64_t node) { return static_cast<std::uint64_t>(node) * 4096; }
  void make(std::int64_t node) {
    numbers_from(node + 1);
    trace.alloc(heap, address(node), 100);
  }
  // The walk: each of these nodes holds what `of` it has made, by default itself.
  void walk(const std::vector<std::pair<std::int64_t, std::int64_t>>& nodes) {
    trace.phase = proto::PHASE_BACKWARD;
    for (const auto& [node, of] : nodes) {
      run(proto::EVENT_GRAPH_NODE, node);
      trace.retain(heap, address(of), proto::CLASS_ACTIVATION, slot);
    }
    trace.backward();
  }
  // `frees`: what the node lets go of.
  void back(std::int64_t node, std::int64_t frees) {
    run(proto::EVENT_NODE_BEGIN, node);
    if (frees != 0) trace.free(heap, address(frees));
    run(proto::EVENT_NODE_END, node);
  }
  void end_backward() {
    trace.mark(proto::EVENT_BACKWARD_END);
    trace.phase = proto::PHASE_FORWARD;
  }
  RecordedStep model(std::int64_t step) {
    trace.phase = proto::PHASE_OTHER;
    trace.step(99);
    file_ = std::make_unique<trace::TraceFile>(trace.open());
    RecordedStepOptions options;
    options.step = step;
    Result<RecordedStep> found = model_of_step(*file_, options);
    if (!found) throw std::runtime_error(found.error().message());
    return std::move(*found);
  }

 private:
  void run(int kind, std::int64_t node) {
    writer::Event made = test::event(kind, 0);
    made.name = tanh;
    made.number = node;
    trace.add(made);
  }
  std::unique_ptr<trace::TraceFile> file_;
};

std::vector<std::string> names(const Model& model) {
  std::vector<std::string> out;
  for (const Op& op : model.ops) out.push_back(op.id);
  return out;
}
std::vector<std::string> layers(const Model& model) {
  std::vector<std::string> out;
  for (const Unit& unit : model.units) out.push_back(unit.name + " " + model.ops[unit.begin].id + ".." + model.ops[unit.end - 1].id);
  return out;
}

TEST(RecordedStep, LayersAreCallsThatRecordAGraph) {
  Job job;
  const std::uint32_t net = job.trace.scope(proto::SCOPE_MODULE, "Net"), block = job.trace.scope(proto::SCOPE_MODULE, "0", net);
  job.trace.step(1);
  job.numbers_from(10);
  job.trace.phase = proto::PHASE_FORWARD;
  job.trace.begin(net);  // without a graph: no number is given away
  job.trace.begin(block);
  job.trace.alloc(job.heap, 64, 100);
  job.trace.free(job.heap, 64);
  job.trace.end(block, net);
  job.trace.end(net);
  job.trace.begin(net);
  for (const std::int64_t node : {10, 11}) {
    job.trace.begin(block);
    job.make(node);
    job.trace.end(block, net);
  }
  job.trace.end(net);
  job.walk({{11, 11}, {10, 10}});
  job.back(11, 11);
  job.back(10, 10);
  job.end_backward();
  const Model model = job.model(1).model;
  EXPECT_THAT(layers(model), ElementsAre("Net.0 TanhBackward0@10..TanhBackward0@10", "Net.0#2 TanhBackward0@11..TanhBackward0@11"));
  EXPECT_EQ(std::count_if(model.ops.begin(), model.ops.end(), [](const Op& op) { return op.no_graph; }), 1);
  EXPECT_FALSE(model.conventions.regions_doubtful);
  const Result<Model> again = parse_model(model_text(model), "again");
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(layers(*again), layers(model));
}

// Nodes 11 and 13 overwrite what 10 and 12 made: they have no block by which they could be placed.
TEST(RecordedStep, NodesWithoutABlockStayInTheirForward) {
  Job job;
  const std::uint32_t net = job.trace.scope(proto::SCOPE_MODULE, "Net");
  job.trace.step(1);
  job.numbers_from(10);
  job.trace.phase = proto::PHASE_FORWARD;
  for (const std::int64_t node : {10, 12}) {
    job.trace.begin(net);
    job.make(node);
    job.numbers_from(node + 2);
    job.trace.end(net);
    job.walk({{node + 1, node}});
    job.back(node + 1, node);
    job.end_backward();
  }
  EXPECT_THAT(names(job.model(1).model), ElementsAre("forward@10", "TanhBackward0@11", "backward/TanhBackward0@11", "forward@12",
                                                     "TanhBackward0@13", "backward/TanhBackward0@13"));
}

TEST(RecordedStep, ABackwardOfAnEarlierStepsForwardMakesRegionsDoubtful) {
  for (const bool crosses : {false, true}) {
    Job job;
    job.trace.step(1);
    job.numbers_from(10);
    job.trace.phase = proto::PHASE_FORWARD;
    job.make(10);
    job.make(11);
    if (!crosses) {
      job.walk({{10, 10}});
      job.back(10, 10);
      job.end_backward();
    }
    job.trace.phase = proto::PHASE_OTHER;
    job.trace.step(2);
    job.trace.phase = proto::PHASE_FORWARD;
    job.make(12);
    if (crosses)
      job.walk({{12, 12}, {10, 10}});
    else
      job.walk({{12, 12}});
    job.back(12, 12);
    if (crosses) job.back(10, 10);
    job.end_backward();
    EXPECT_EQ(job.model(2).model.conventions.regions_doubtful, crosses);
  }
}

// An exception leaves modules without their own end.
TEST(RecordedStep, AModuleThatAnExceptionLeftIsNotEnteredByTheNextOp) {
  Job job;
  const std::uint32_t net = job.trace.scope(proto::SCOPE_MODULE, "Net"), inner = job.trace.scope(proto::SCOPE_MODULE, "0", net),
                      other = job.trace.scope(proto::SCOPE_MODULE, "Other");
  job.trace.step(1);
  job.numbers_from(10);
  job.trace.phase = proto::PHASE_FORWARD;
  job.trace.begin(net);
  job.make(10);
  job.trace.begin(inner);
  job.trace.end(net);
  job.trace.begin(other);
  job.make(11);
  job.trace.end(other);
  job.walk({{11, 11}, {10, 10}});
  job.back(11, 11);
  job.back(10, 10);
  job.end_backward();
  const Model model = job.model(1).model;
  for (const Op& op : model.ops) EXPECT_EQ(op.enters, none) << op.id;
  EXPECT_TRUE(parse_model(model_text(model), "again"));
}

}  // namespace
}  // namespace liveset::model
