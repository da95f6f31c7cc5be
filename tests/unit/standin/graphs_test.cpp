#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/standin/machine.h"

namespace standin {
namespace {

struct GraphsTest : testing::Test {
  Machine machine{small_device()};
  Graphs& graphs = machine.graphs;
  Graph* graph = graphs.create();

  Node* add(NodeType type, std::vector<Node*> dependencies = {}, std::function<void()> run = {}) {
    auto node = std::make_unique<Node>();
    node->type = type;
    node->dependencies = std::move(dependencies);
    node->run = std::move(run);
    Node* handle = nullptr;
    EXPECT_EQ(graphs.add(graph, std::move(node), &handle), success);
    return handle;
  }
  Executable* instantiate(bool free_on_launch = false) {
    Executable* executable = nullptr;
    EXPECT_EQ(graphs.instantiate(graph, free_on_launch, &executable), success);
    return executable;
  }
  Address add_allocation(std::size_t bytes) {
    auto node = std::make_unique<Node>();
    node->type = NodeType::memory_allocation;
    node->bytes = bytes;
    EXPECT_EQ(graphs.reserve(*node), success);
    const auto address = node->address;
    EXPECT_EQ(graphs.add(graph, std::move(node), nullptr), success);
    return address;
  }
};

TEST_F(GraphsTest, NodesRunInOrderAtEachLaunch) {
  std::string order;
  auto* first = add(NodeType::host, {}, [&] { order += "a"; });
  add(NodeType::host, {first}, [&] { order += "b"; });
  auto* executable = instantiate();
  EXPECT_EQ(order, "");
  EXPECT_EQ(graphs.launch(executable), success);
  EXPECT_EQ(graphs.launch(executable), success);
  EXPECT_EQ(order, "abab");
}

TEST_F(GraphsTest, AnExecutableIsItsOwnAndIsUpdatedByTheSameShape) {
  int calls = 0;
  add(NodeType::host, {}, [&] { ++calls; });
  auto* executable = instantiate();
  EXPECT_EQ(graphs.destroy(graph), success);
  EXPECT_EQ(graphs.destroy(graph), invalid_value);
  EXPECT_EQ(graphs.launch(executable), success);
  EXPECT_EQ(calls, 1);

  graph = graphs.create();
  add(NodeType::host, {}, [&] { calls += 10; });
  EXPECT_EQ(graphs.update(executable, graph), success);
  EXPECT_EQ(graphs.launch(executable), success);
  EXPECT_EQ(calls, 11);
  add(NodeType::empty);
  EXPECT_EQ(graphs.update(executable, graph), graph_update_failure);
  EXPECT_EQ(graphs.destroy(executable), success);
  EXPECT_EQ(graphs.launch(executable), invalid_value);
}

TEST_F(GraphsTest, DependenciesAreNodesOfTheGraph) {
  auto* other = graphs.create();
  auto* node = add(NodeType::empty);
  auto stranger = std::make_unique<Node>();
  stranger->dependencies = {node};
  EXPECT_EQ(graphs.add(other, std::move(stranger), nullptr), invalid_value);
  auto* next = add(NodeType::empty, {node});
  Graph* copy = nullptr;
  ASSERT_EQ(graphs.clone(graph, &copy), success);
  EXPECT_EQ(copy->nodes[1]->dependencies, std::vector<Node*>{copy->nodes[0].get()});
  EXPECT_EQ(graphs.remove(node), success);
  EXPECT_TRUE(next->dependencies.empty());
  EXPECT_EQ(graphs.remove(node), invalid_value);
}

TEST_F(GraphsTest, AMemoryNodesMemoryExistsFromLaunchToFree) {
  const auto address = add_allocation(4 * mebibyte);
  EXPECT_NE(address, 0u);
  auto* executable = instantiate();
  EXPECT_EQ(machine.memory.used(0), 0u);
  EXPECT_FALSE(machine.memory.find(address));
  ASSERT_EQ(graphs.launch(executable), success);
  EXPECT_EQ(machine.memory.used(0), 4 * mebibyte);
  EXPECT_EQ(machine.memory.find(address)->kind, Kind::graph);
  EXPECT_EQ(graphs.memory_of(0).used, 4 * mebibyte);
  EXPECT_EQ(graphs.launch(executable), invalid_value);  // still allocated
  EXPECT_EQ(graphs.free(address), success);
  EXPECT_EQ(graphs.free(address), invalid_value);
  EXPECT_EQ(machine.memory.used(0), 0u);
  EXPECT_EQ(graphs.memory_of(0).used_high, 4 * mebibyte);
  graphs.reset_high(0);
  EXPECT_EQ(graphs.memory_of(0).used_high, 0u);
}

TEST_F(GraphsTest, FreeNodesAndFreeOnLaunchLetItBeLaunchedAgain) {
  add_allocation(4 * mebibyte);
  auto* again = instantiate(true);
  EXPECT_EQ(graphs.launch(again), success);
  EXPECT_EQ(graphs.launch(again), success);
  EXPECT_EQ(machine.memory.used(0), 4 * mebibyte);

  graph = graphs.create();
  const auto address = add_allocation(2 * mebibyte);
  auto free = std::make_unique<Node>();
  free->type = NodeType::memory_free;
  free->address = address;
  ASSERT_EQ(graphs.add(graph, std::move(free), nullptr), success);
  auto* balanced = instantiate();
  EXPECT_EQ(graphs.launch(balanced), success);
  EXPECT_EQ(graphs.launch(balanced), success);
  EXPECT_EQ(machine.memory.used(0), 4 * mebibyte);
}

TEST_F(GraphsTest, LaunchEndsAtTheDevicesSize) {
  add_allocation(device_bytes);
  Address taken = 0;
  ASSERT_EQ(machine.memory.allocate(0, 1, Kind::device, &taken), success);
  EXPECT_EQ(graphs.launch(instantiate()), out_of_memory);
}

// Addresses are handed out from the lowest: what is reserved next tells whether a graph's are free again.
TEST_F(GraphsTest, AddressesGoWithTheLastGraphOrTheMemoryItself) {
  const auto next_address = [this] {
    const auto address = machine.memory.reserve(mebibyte, AddressSpace::alignment);
    machine.memory.unreserve(address, mebibyte);
    return address;
  };
  const auto address = add_allocation(4 * mebibyte);
  auto* executable = instantiate();
  EXPECT_EQ(graphs.launch(executable), success);
  EXPECT_EQ(graphs.destroy(graph), success);
  EXPECT_NE(next_address(), address);
  EXPECT_EQ(graphs.destroy(executable), success);
  EXPECT_NE(next_address(), address);
  EXPECT_EQ(graphs.free(address), success);
  EXPECT_EQ(next_address(), address);
}

TEST_F(GraphsTest, UserObjectsGoWithTheLastGraphThatHoldsThem) {
  int alive = 1;
  graph->objects.push_back(UserObject(&alive, [](void* pointer) { *static_cast<int*>(pointer) = 0; }));
  auto* executable = instantiate();
  EXPECT_EQ(graphs.destroy(graph), success);
  EXPECT_EQ(alive, 1);
  EXPECT_EQ(graphs.destroy(executable), success);
  EXPECT_EQ(alive, 0);
}

TEST(Sharing, OpensInAnotherProcessAndNotInItsOwn) {
  Machine machine(small_device());
  Address address = 0;
  HandleBytes handle{}, event_handle{};
  ASSERT_EQ(machine.memory.allocate(0, 5 * mebibyte, Kind::device, &address), success);
  ASSERT_EQ(machine.sharing.export_memory(address + 7, &handle), success);
  Address opened = 0;
  EXPECT_EQ(machine.sharing.open_memory(handle, &opened), invalid_context);
  EXPECT_EQ(machine.sharing.export_memory(1, &handle), invalid_value);
  void *event = nullptr, *opened_event = nullptr;
  ASSERT_EQ(machine.streams.create_event(0, 2, &event), success);
  EXPECT_EQ(machine.sharing.export_event(event, &event_handle), invalid_value);  // not for other processes
  ASSERT_EQ(machine.streams.create_event(0, 6, &event), success);
  ASSERT_EQ(machine.sharing.export_event(event, &event_handle), success);
  EXPECT_EQ(machine.sharing.open_event(handle, 0, &opened_event), invalid_value);  // a handle of memory

  const auto child = fork();
  if (child == 0) {
    Machine other(small_device());
    Address first = 0, second = 0;
    bool good = other.sharing.open_memory(handle, &first) == success && other.sharing.open_memory(handle, &second) == success;
    good = good && first == second && other.memory.used(0) == 0 && other.memory.find(first)->bytes == 5 * mebibyte;
    good = good && other.sharing.close_memory(first) == success && other.memory.find(first).has_value();
    good = good && other.sharing.close_memory(first) == success && !other.memory.find(first).has_value();
    good =
        good && other.sharing.close_memory(first) == invalid_value && other.sharing.open_event(event_handle, 0, &opened_event) == success;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace standin
