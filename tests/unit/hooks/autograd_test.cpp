// hooks/autograd: against a fake libtorch_cpu.so, and its parts by themselves. (Real torch: tests/torch/test_engine.py.)
#include "hooks/autograd/graph_walk.h"
#include "hooks/autograd/node_names.h"
#include "hooks/autograd/sequence_number.h"

#include <gmock/gmock.h>

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <set>
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

// A node as torch lays one out, its edges somewhere among other words. Smart pointers of one word (16-byte edges) or of two (24).
template <typename Edge>
struct GraphNode {
  std::uint64_t before[5] = {1, 2, 3, 4, 5};
  std::vector<Edge> edges;
  std::uint64_t after[14] = {};
};
template <typename Node, int words>
struct EdgeOf {
  Node* node = nullptr;
  std::uint64_t rest[words] = {};
};
struct NarrowNode : GraphNode<EdgeOf<NarrowNode, 1>> {};
struct WideNode : GraphNode<EdgeOf<WideNode, 2>> {};

template <typename Node>
void link(Node& from, std::initializer_list<Node*> to) {
  for (Node* node : to) from.edges.push_back({node, {}});
}

template <typename Node>
void learn(autograd::EdgePlace& place, const Node& node) {
  std::vector<std::uint64_t> following;
  for (const auto& edge : node.edges) following.push_back(reinterpret_cast<std::uint64_t>(edge.node));
  place.learn(reinterpret_cast<std::uint64_t>(&node), following.data(), static_cast<std::uint32_t>(following.size()));
}

template <typename Node>
autograd::EdgePlace learned_edges() {
  autograd::EdgePlace place;
  std::vector<Node> nodes(12);
  for (std::size_t i = 0; i + 2 < nodes.size(); ++i) link(nodes[i], {&nodes[i + 1], &nodes[i + 2]});
  for (std::size_t i = 0; i + 2 < nodes.size() && place.open(); ++i) learn(place, nodes[i]);
  return place;
}

template <typename Node>
class Edges : public testing::Test {};
using NodeTypes = testing::Types<NarrowNode, WideNode>;
TYPED_TEST_SUITE(Edges, NodeTypes, );

TYPED_TEST(Edges, AreWhereThoseOfSomeNodesWere) {
  const autograd::EdgePlace place = learned_edges<TypeParam>();
  ASSERT_TRUE(place.known());
  EXPECT_EQ(place.stride(), sizeof(typename decltype(TypeParam::edges)::value_type));
  TypeParam node, other;
  link(node, {&other, static_cast<TypeParam*>(nullptr), &node});
  std::uint64_t count = 0;
  const char* edges = place.edges(&node, count);
  ASSERT_EQ(count, 3u);
  EXPECT_EQ(reinterpret_cast<const void*>(edges), static_cast<const void*>(node.edges.data()));
  place.edges(&other, count);
  EXPECT_EQ(count, 0u);
}

TYPED_TEST(Edges, AreNotKnownFromChainsAlone) {
  autograd::EdgePlace place;
  std::vector<TypeParam> nodes(40);
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) link(nodes[i], {&nodes[i + 1]});
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) learn(place, nodes[i]);
  EXPECT_FALSE(place.known()) << "of one edge the size of an edge is a guess";
}

TYPED_TEST(Edges, GivesUpOnANodeThatLiesElsewise) {
  autograd::EdgePlace place;
  TypeParam node, other;
  link(node, {&other});
  const auto wrong = reinterpret_cast<std::uint64_t>(&node);
  place.learn(reinterpret_cast<std::uint64_t>(&node), &wrong, 1);
  EXPECT_FALSE(place.open());
  EXPECT_FALSE(place.known());
}

TYPED_TEST(Edges, AreLearnedAtTheEndOfWhatCanBeRead) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(memory) + page, page, PROT_NONE), 0);
  constexpr std::size_t size = 8 * 8;  // ends behind the three words of its edges
  auto* node = reinterpret_cast<std::uint64_t*>(static_cast<char*>(memory) + page - size);
  TypeParam ends[2];
  decltype(TypeParam::edges) edges{{&ends[0], {}}, {&ends[1], {}}};
  node[5] = reinterpret_cast<std::uint64_t>(edges.data());
  node[6] = node[7] = reinterpret_cast<std::uint64_t>(edges.data() + 2);
  const std::uint64_t following[] = {reinterpret_cast<std::uint64_t>(&ends[0]), reinterpret_cast<std::uint64_t>(&ends[1])};
  autograd::EdgePlace place;
  for (int i = 0; i < 8; ++i) place.learn(reinterpret_cast<std::uint64_t>(node), following, 2);
  EXPECT_TRUE(place.known());
  munmap(memory, 2 * page);
}

TEST(ReachableNodes, EachOnceWhateverTheGraph) {
  const autograd::EdgePlace place = learned_edges<WideNode>();
  ASSERT_TRUE(place.known());
  autograd::Reachable reachable;
  std::mt19937 random(1);
  for (const std::size_t size : {1u, 2u, 511u, 512u, 513u, 200'000u, 3u}) {
    std::vector<WideNode> nodes(size);
    std::vector<bool> expected(size);
    for (std::size_t i = 0; i < size; ++i) {
      for (unsigned edge = random() % 4; edge > 0; --edge) link(nodes[i], {random() % 8 == 0 ? nullptr : &nodes[random() % size]});
    }
    std::vector<std::size_t> pending{0, size / 2};
    while (!pending.empty()) {
      const std::size_t at = pending.back();
      pending.pop_back();
      if (expected[at]) continue;
      expected[at] = true;
      for (const auto& edge : nodes[at].edges) {
        if (edge.node != nullptr) pending.push_back(static_cast<std::size_t>(edge.node - nodes.data()));
      }
    }
    void* const roots[] = {&nodes[0], &nodes[size / 2], nullptr};
    ASSERT_TRUE(reachable.begin());
    for (void* const& root : roots) ASSERT_TRUE(reachable.add(&root, place));
    std::set<const void*> met;
    for (std::uint64_t i = 0; i < reachable.count(); ++i) met.insert(*reachable[i]);
    EXPECT_EQ(met.size(), reachable.count());
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(met.count(&nodes[i]), expected[i] ? 1u : 0u);
    reachable.end();
  }
}

TEST(NodeClasses, AsManyAsThereIsRoomFor) {
  auto classes = std::make_unique<autograd::NodeClasses>();
  std::vector<char> tables(1000);
  std::uint32_t kept = 0;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    autograd::NodeClass added;
    added.table = &tables[i];
    added.name = static_cast<std::uint32_t>(i);
    kept += classes->add(added) ? 1 : 0;
  }
  EXPECT_EQ(kept, 256u);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const autograd::NodeClass* found = classes->find(&tables[i]);
    ASSERT_EQ(found != nullptr, i < kept);
    if (found != nullptr) {
      EXPECT_EQ(found->name, i);
    }
  }
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

TEST_F(Engine, WhatIsMadeAfterANodesFunctionIsSaidToBe) {
  const auto begin = [](const std::string& number) { return "node_begin SummingBackward0 " + number; };
  const auto end = [](const std::string& number) { return "node_end SummingBackward0 " + number; };
  EXPECT_THAT(recorded("sums", "of no such shape\n"),
              ElementsAre("alloc  0 32", begin("-1"), "alloc  0 64", "node_returned  0", "alloc  0 128", end("-1"), begin("-1"),
                          "alloc  0 64", end("-1"), begin("-1"), "alloc  0 64", begin("-1"), "alloc  0 32", "alloc  0 64", end("-1")));
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
