// Graphs of the stand-in driver.
#include <gtest/gtest.h>

#include <string>

#include "tests/standin/driver.h"

namespace standin {
namespace {

TEST_F(DriverTest, ACapturedAllocationLivesFromLaunchToFree) {
  void *stream = nullptr, *graph = nullptr, *executable = nullptr;
  Address address = 0;
  ASSERT_EQ(call("cuStreamCreate", &stream, 1u), success);
  ASSERT_EQ(call("cuStreamBeginCapture", stream, 2), success);
  ASSERT_EQ(call("cuMemAllocAsync", &address, 2 * mebibyte, stream), success);
  ASSERT_EQ(call("cuMemsetD8Async", address, static_cast<unsigned char>(5), std::size_t{64}, stream), success);
  ASSERT_EQ(call("cuStreamEndCapture", stream, &graph), success);
  std::size_t count = 0;
  EXPECT_EQ(call("cuGraphGetNodes", graph, static_cast<void**>(nullptr), &count), success);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(used(), context_bytes);
  ASSERT_EQ(call("cuGraphInstantiate", &executable, graph, 0ull), success);
  ASSERT_EQ(call("cuGraphLaunch", executable, stream), success);
  EXPECT_EQ(used(), context_bytes + 2 * mebibyte);
  unsigned char value = 0;
  EXPECT_EQ(call("cuMemcpyDtoH", static_cast<void*>(&value), address + 63, std::size_t{1}), success);
  EXPECT_EQ(value, 5);
  EXPECT_EQ(call("cuMemFreeAsync", address, stream), success);
  EXPECT_EQ(used(), context_bytes);
  EXPECT_EQ(call("cuGraphExecDestroy", executable), success);
  EXPECT_EQ(call("cuGraphDestroy", graph), success);
  EXPECT_EQ(call("cuGraphLaunch", executable, stream), invalid_value);
  EXPECT_EQ(call("cuStreamDestroy", stream), success);
}

TEST_F(DriverTest, AnExternalEventIsRecordedAtEachLaunch) {
  void *stream = nullptr, *event = nullptr, *graph = nullptr, *executable = nullptr;
  ASSERT_EQ(call("cuStreamCreate", &stream, 1u), success);
  ASSERT_EQ(call("cuEventCreate", &event, 0u), success);
  ASSERT_EQ(call("cuStreamBeginCapture", stream, 2), success);
  EXPECT_EQ(call("cuEventRecordWithFlags", event, stream, 1u), success);
  EXPECT_EQ(call("cuStreamWaitEvent", stream, event, 1u), success);
  EXPECT_EQ(call("cuEventQuery", event), success);  // no part of the capture
  ASSERT_EQ(call("cuStreamEndCapture", stream, &graph), success);
  std::size_t count = 2;
  void* nodes[2] = {};
  ASSERT_EQ(call("cuGraphGetNodes", graph, static_cast<void**>(nodes), &count), success);
  ASSERT_EQ(count, 2u);
  int record = 0, wait = 0;
  EXPECT_EQ(call("cuGraphNodeGetType", nodes[0], &record), success);
  EXPECT_EQ(call("cuGraphNodeGetType", nodes[1], &wait), success);
  EXPECT_EQ(record, 7);
  EXPECT_EQ(wait, 6);
  ASSERT_EQ(call("cuGraphInstantiate", &executable, graph, 0ull), success);
  float milliseconds = 0;
  EXPECT_EQ(call("cuEventElapsedTime", &milliseconds, event, event), invalid_handle);  // never recorded
  EXPECT_EQ(call("cuGraphLaunch", executable, stream), success);
  EXPECT_EQ(call("cuEventElapsedTime", &milliseconds, event, event), success);
  EXPECT_EQ(call("cuGraphExecDestroy", executable), success);
  EXPECT_EQ(call("cuGraphDestroy", graph), success);
  EXPECT_EQ(call("cuEventDestroy", event), success);
  EXPECT_EQ(call("cuStreamDestroy", stream), success);
}

// A box of 3 x 2 bytes in the middle of rows of 8: places, pitch and planes of both sides count.
TEST_F(DriverTest, ACopyNodeCopiesTheBoxThatIsAsked) {
  void *graph = nullptr, *node = nullptr, *executable = nullptr;
  const auto address = allocate(mebibyte);
  const std::string from = "01234567abcdefghABCDEFGH";
  std::string back(16, '.');
  ASSERT_EQ(call("cuMemcpyHtoD", address, static_cast<const void*>(from.data()), from.size()), success);
  Copy3D box{};
  box.from.type = 2;
  box.from.device = address;
  box.from.pitch = 8;
  box.from.x = 2;
  box.from.y = 1;
  box.to.type = 1;
  box.to.host = back.data();
  box.to.pitch = 4;
  box.to.y = 1;
  box.width = 3;
  box.height = 2;
  box.depth = 1;
  const auto add = [&](const Copy3D& parameters) {
    return call("cuGraphAddMemcpyNode", &node, graph, static_cast<void* const*>(nullptr), std::size_t{0}, &parameters,
                static_cast<void*>(nullptr));
  };
  ASSERT_EQ(call("cuGraphCreate", &graph, 0u), success);
  ASSERT_EQ(add(box), success);
  Copy3D array = box;  // what it holds is not kept
  array.to.type = 3;
  EXPECT_EQ(add(array), success);
  Copy3D nowhere{};
  nowhere.width = nowhere.height = nowhere.depth = 1;
  EXPECT_EQ(add(nowhere), invalid_value);
  ASSERT_EQ(call("cuGraphInstantiate", &executable, graph, 0ull), success);
  EXPECT_EQ(call("cuGraphLaunch", executable, static_cast<void*>(nullptr)), success);
  EXPECT_EQ(back, "....cde.CDE.....");
  EXPECT_EQ(call("cuGraphExecDestroy", executable), success);
  EXPECT_EQ(call("cuGraphDestroy", graph), success);
  EXPECT_EQ(call("cuMemFree", address), success);
}

TEST_F(DriverTest, AContextTakesItsMemoryWithIt) {
  void* own = nullptr;
  ASSERT_EQ(call("cuCtxCreate", &own, static_cast<void*>(nullptr), 0u, 0), success);
  allocate(3 * mebibyte);
  EXPECT_EQ(call("cuCtxDestroy", own), success);
  EXPECT_EQ(call("cuCtxSetCurrent", context), success);
  EXPECT_EQ(used(), context_bytes);
}

}  // namespace
}  // namespace standin
