// hooks/autograd: against a fake libtorch_cpu.so, and its parts by themselves. (Real torch: tests/torch/test_engine.py.)
#include "hooks/autograd/node_names.h"
#include "hooks/autograd/sequence_number.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/support/run_program.h"
#include "viewer/trace/trace_file.h"

namespace liveset {
namespace {

using autograd::SequencePlace;
using testing::ElementsAre;

std::string name_in(const char* mangled) {
  std::uint32_t length = 0;
  const char* name = autograd::last_name(mangled, length);
  return {name, length};
}

TEST(NodeNames, TheLastOfTheNestedNames) {
  EXPECT_EQ(name_in("N5torch8autograd9generated14AddmmBackward0E"), "AddmmBackward0");
  EXPECT_EQ(name_in("N5torch8autograd14AccumulateGradE"), "AccumulateGrad");
  EXPECT_EQ(name_in("N5torch8autograd7CppNodeI4MineEE"), "CppNode");
  EXPECT_EQ(name_in("4Mine"), "Mine");
  EXPECT_EQ(name_in("*N12_GLOBAL__N_14MineE"), "Mine");
}

TEST(NodeNames, WhatIsNoNameEndsBeforeItsText) {
  EXPECT_EQ(name_in(""), "");
  EXPECT_EQ(name_in("N99tooE"), "");
  EXPECT_EQ(name_in("N5torch99999999999999999999xE"), "torch");
  EXPECT_EQ(name_in("ZN3foo3barEvE4Mine"), "");
}

struct FakeNode {
  std::uint64_t words[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
};
std::uint64_t place(const FakeNode& node) { return reinterpret_cast<std::uint64_t>(&node); }

TEST(SequencePlaces, TheWordThatHoldsTheNumberOfTwoNodes) {
  SequencePlace found;
  FakeNode first, second;
  first.words[4] = 100;
  second.words[4] = 101;
  found.learn(place(first), 100);
  EXPECT_FALSE(found.known()) << "one node says nothing of chance";
  EXPECT_EQ(found.read(&first), -1);
  found.learn(place(first), 100);
  EXPECT_FALSE(found.known()) << "nor does the same one again";
  found.learn(place(second), 101);
  ASSERT_TRUE(found.known());
  EXPECT_EQ(found.read(&first), 100);
  EXPECT_EQ(found.read(&second), 101);
}

TEST(SequencePlaces, TwoWordsThatAgreeAreToldApartLater) {
  SequencePlace found;
  FakeNode nodes[3];
  for (std::uint64_t i = 0; i < 3; ++i) nodes[i].words[2] = nodes[i].words[7] = 50 + i;
  found.learn(place(nodes[0]), 50);
  found.learn(place(nodes[1]), 51);
  EXPECT_FALSE(found.known());
  EXPECT_TRUE(found.open());
  nodes[2].words[2] = 1;
  found.learn(place(nodes[2]), 52);
  EXPECT_TRUE(found.known());
  EXPECT_EQ(found.read(&nodes[1]), 51);
}

TEST(SequencePlaces, WithoutSuchAWordItGivesUp) {
  SequencePlace found;
  const FakeNode node;
  found.learn(place(node), 1234);
  EXPECT_FALSE(found.open());
  EXPECT_FALSE(found.known());
  EXPECT_EQ(found.read(&node), -1);
}

TEST(SequencePlaces, AWrongAddressIsHarmless) {
  SequencePlace found;
  for (std::uint64_t i = 0; i < 100; ++i) found.learn(16 + i, i);
  EXPECT_FALSE(found.known());
}

#ifdef LIVESET_TEST_BIN_DIR
class Engine : public testing::Test {
 protected:
  std::vector<std::string> recorded(const std::string& what, const std::string& output) {
    const std::string path = folder_.file("run.liveset");
    const test::Ran ran = test::run_command(std::string(LIVESET_BIN_DIR) + "/liveset run -q -o " + path + " -- " + LIVESET_TEST_BIN_DIR +
                                            "/engine_job " + what);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, output);
    std::vector<std::string> events;
    const auto file = trace::TraceFile::open(path);
    if (!file) {
      ADD_FAILURE() << file.error().message();
      return events;
    }
    EXPECT_TRUE(trace::for_each_event(*file, [&](const trace::Event& event) {
      std::string text(trace::kind_name(event.kind));
      text += " " + std::string(file->dictionary().string(event.name)) + " " + std::to_string(event.number);
      if (event.kind == trace::Kind::alloc || event.kind == trace::Kind::storage) text += " " + std::to_string(event.size);
      events.push_back(text);
      return true;
    }));
    return events;
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(Engine, NodesNestAndOneThatRaisesHasNoEnd) {
  EXPECT_THAT(recorded("nodes", "the job's own\n"),
              ElementsAre("node_begin OuterBackward0 -1", "node_begin InnerBackward0 -1", "node_end InnerBackward0 -1",
                          "node_end OuterBackward0 -1", "node_begin FailingBackward0 -1", "node_begin InnerBackward0 -1",
                          "node_end InnerBackward0 -1", "node_begin CppNode -1", "node_end CppNode -1"));
}

TEST_F(Engine, BucketsAreCommunicationFromTheirBirth) {
  EXPECT_THAT(recorded("buckets", "an empty bucket\n"),
              ElementsAre("alloc  0 128", "storage c10d::Reducer 0 128", "alloc  0 64", "storage c10d::Reducer 0 64",
                          "collective all_reduce 0", "collective all_reduce 1", "alloc  0 16",  // after the reducer was made
                          "alloc  0 64", "storage c10d::Reducer 0 64",
                          // An exception left the reducer.
                          "alloc  0 32", "alloc  0 48"));
}

TEST_F(Engine, BucketsOfSeveralModelsHaveNoNumbers) {
  EXPECT_THAT(recorded("two_models", ""), ElementsAre("collective all_reduce 0", "collective all_reduce -1", "collective all_reduce -1"));
}
#endif

}  // namespace
}  // namespace liveset
