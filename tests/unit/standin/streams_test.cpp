#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/standin/machine.h"

namespace standin {
namespace {

constexpr Nanoseconds forever = 3'600'000'000'000;

struct StreamsTest : testing::Test {
  Machine machine{small_device("devices=2\n")};
  Streams& streams = machine.streams;
  StreamReference first = make(1), second = make(1);

  StreamReference make(unsigned flags) {
    void* handle = nullptr;
    EXPECT_EQ(streams.create(0, flags, 0, &handle), success);
    return {handle, 0};
  }
  void* event(unsigned flags = 0) {
    void* handle = nullptr;
    EXPECT_EQ(streams.create_event(0, flags, &handle), success);
    return handle;
  }
  Error query(void* handle) {
    bool early = false;
    return streams.query_event(handle, &early);
  }
  Error work(StreamReference stream) {
    bool capturing = false;
    auto error = streams.enter(stream, &capturing);
    return error == success && capturing ? streams.add_node(stream, std::make_unique<Node>()) : error;
  }
};

TEST_F(StreamsTest, DestroyedHandlesAreInvalid) {
  auto* handle = event();
  EXPECT_EQ(streams.destroy_event(handle), success);
  EXPECT_EQ(streams.destroy_event(handle), invalid_handle);
  EXPECT_EQ(streams.record(handle, first), invalid_handle);
  EXPECT_EQ(query(handle), invalid_handle);
  EXPECT_EQ(streams.destroy(first.handle), success);
  EXPECT_EQ(streams.destroy(first.handle), invalid_handle);
  EXPECT_EQ(work(first), invalid_handle);
  EXPECT_EQ(streams.synchronize(first), invalid_handle);
}

TEST_F(StreamsTest, AnEventOfABusyStreamIsNotReady) {
  auto* handle = event();
  EXPECT_EQ(query(handle), success);  // never recorded
  streams.occupy(first, forever);
  ASSERT_EQ(streams.record(handle, first), success);
  EXPECT_EQ(query(handle), not_ready);
  EXPECT_EQ(streams.query(first), not_ready);
  EXPECT_EQ(streams.query(second), success);
  ASSERT_EQ(streams.record(handle, second), success);
  EXPECT_EQ(query(handle), success);
}

TEST_F(StreamsTest, AStreamThatWaitsIsAsBusyAsTheEvent) {
  auto* handle = event();
  streams.occupy(first, forever);
  ASSERT_EQ(streams.record(handle, first), success);
  ASSERT_EQ(streams.wait(second, handle), success);
  EXPECT_EQ(streams.query(second), not_ready);
}

TEST_F(StreamsTest, TheLegacyStreamWaitsForStreamsThatDoNotRefuse) {
  const StreamReference legacy{nullptr, 0}, other_device{nullptr, 1};
  const auto blocking = make(0);
  streams.occupy(first, forever);
  EXPECT_EQ(streams.query(legacy), success);
  streams.occupy(blocking, forever);
  EXPECT_EQ(streams.query(legacy), not_ready);
  EXPECT_EQ(streams.query(other_device), success);
  streams.occupy(legacy, forever);
  EXPECT_EQ(streams.query(make(0)), not_ready);
  EXPECT_EQ(streams.query(make(1)), success);
}

TEST_F(StreamsTest, AThreadsStreamIsItsOwn) {
  streams.occupy({thread_stream, 0}, forever);
  EXPECT_EQ(streams.query({thread_stream, 0}), not_ready);
  std::thread([this] { EXPECT_EQ(streams.query({thread_stream, 0}), success); }).join();
}

TEST_F(StreamsTest, TimesAreBetweenRecordedEventsThatKeepThem) {
  float milliseconds = -1;
  auto *begin = event(), *end = event(), *untimed = event(2);
  EXPECT_EQ(streams.elapsed(begin, end, &milliseconds), invalid_handle);
  ASSERT_EQ(streams.record(begin, first), success);
  streams.occupy(first, 1'000'000);
  ASSERT_EQ(streams.record(end, first), success);
  ASSERT_EQ(streams.record(untimed, first), success);
  ASSERT_EQ(streams.synchronize_event(end), success);
  EXPECT_EQ(streams.elapsed(begin, end, &milliseconds), success);
  EXPECT_GE(milliseconds, 1.0F);
  EXPECT_EQ(streams.elapsed(begin, untimed, &milliseconds), invalid_handle);
  streams.occupy(first, forever);
  ASSERT_EQ(streams.record(end, first), success);
  EXPECT_EQ(streams.elapsed(begin, end, &milliseconds), not_ready);
}

TEST_F(StreamsTest, EventsAreEarlyOnceBehindWorkThatNobodyWaitedFor) {
  bool early = false;
  auto* handle = event(2);
  ASSERT_EQ(streams.record(handle, first), success);
  ASSERT_EQ(streams.query_event(handle, &early), success);
  EXPECT_FALSE(early);  // nothing was enqueued
  ASSERT_EQ(work(first), success);
  ASSERT_EQ(streams.record(handle, first), success);
  ASSERT_EQ(streams.query_event(handle, &early), success);
  EXPECT_TRUE(early);
  ASSERT_EQ(streams.query_event(handle, &early), success);
  EXPECT_FALSE(early);
  ASSERT_EQ(work(first), success);
  ASSERT_EQ(streams.synchronize(first), success);
  ASSERT_EQ(streams.record(handle, first), success);
  ASSERT_EQ(streams.query_event(handle, &early), success);
  EXPECT_FALSE(early);
}

TEST_F(StreamsTest, ACaptureSpreadsByEventsAndIsJoinedByThem) {
  ASSERT_EQ(streams.begin_capture(first, nullptr, 2), success);
  auto *fork = event(2), *join = event(2);
  ASSERT_EQ(work(first), success);
  ASSERT_EQ(streams.record(fork, first), success);
  ASSERT_EQ(streams.wait(second, fork), success);
  CaptureInfo info;
  ASSERT_EQ(streams.capture_info(second, &info), success);
  EXPECT_EQ(info.status, CaptureStatus::active);
  ASSERT_EQ(work(second), success);
  ASSERT_EQ(work(first), success);
  EXPECT_EQ(query(fork), captured_event);
  ASSERT_EQ(streams.record(join, second), success);
  ASSERT_EQ(streams.wait(first, join), success);
  ASSERT_EQ(work(first), success);
  Graph* graph = nullptr;
  EXPECT_EQ(streams.end_capture(second, &graph), capture_unmatched);
  ASSERT_EQ(streams.end_capture(first, &graph), success);
  ASSERT_EQ(graph->nodes.size(), 4u);
  EXPECT_EQ(graph->nodes[1]->dependencies, std::vector<Node*>{graph->nodes[0].get()});
  EXPECT_EQ(graph->nodes[3]->dependencies, (std::vector<Node*>{graph->nodes[2].get(), graph->nodes[1].get()}));
  ASSERT_EQ(streams.capture_info(second, &info), success);
  EXPECT_EQ(info.status, CaptureStatus::none);
}

TEST_F(StreamsTest, AStreamThatNobodyJoinedSpoilsTheCapture) {
  ASSERT_EQ(streams.begin_capture(first, nullptr, 2), success);
  auto* fork = event(2);
  ASSERT_EQ(work(first), success);
  ASSERT_EQ(streams.record(fork, first), success);
  ASSERT_EQ(streams.wait(second, fork), success);
  ASSERT_EQ(work(second), success);
  Graph* graph = nullptr;
  EXPECT_EQ(streams.end_capture(first, &graph), capture_unjoined);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(streams.end_capture(first, &graph), illegal_state);
}

TEST_F(StreamsTest, WhatACaptureCannotHoldInvalidatesIt) {
  Graph* graph = nullptr;
  ASSERT_EQ(streams.begin_capture(first, nullptr, 0), success);
  EXPECT_EQ(streams.forbid_while_capturing(2), success);  // the thread relaxed it
  EXPECT_EQ(streams.forbid_while_capturing(0), capture_unsupported);
  EXPECT_EQ(work(first), capture_invalidated);
  EXPECT_EQ(streams.end_capture(first, &graph), capture_invalidated);

  ASSERT_EQ(streams.begin_capture(first, nullptr, 2), success);
  EXPECT_EQ(streams.forbid_while_capturing(0), success);
  EXPECT_EQ(streams.synchronize(first), capture_unsupported);
  EXPECT_EQ(streams.end_capture(first, &graph), capture_invalidated);

  EXPECT_EQ(streams.begin_capture({nullptr, 0}, nullptr, 0), capture_unsupported);
  ASSERT_EQ(streams.begin_capture(first, nullptr, 1), success);
  EXPECT_EQ(streams.begin_capture(first, nullptr, 1), illegal_state);
  std::thread([&] { EXPECT_EQ(streams.forbid_while_capturing(0), success); }).join();
  std::thread([&] { EXPECT_EQ(streams.end_capture(first, &graph), capture_wrong_thread); }).join();
  EXPECT_EQ(streams.end_capture(first, &graph), success);
}

}  // namespace
}  // namespace standin
