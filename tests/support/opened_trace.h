// Bytes as a file, opened.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "viewer/trace/trace_file.h"

namespace liveset::test {

class OpenedTraceTest : public testing::Test {
 protected:
  Result<trace::TraceFile> open(const std::string& bytes) {
    write_file(path_, bytes);
    return trace::TraceFile::open(path_);
  }
  // Fails the test where it cannot be opened.
  trace::TraceFile open_good(const std::string& bytes) {
    Result<trace::TraceFile> file = open(bytes);
    if (!file) throw std::runtime_error(file.error().message());
    return std::move(*file);
  }
  // What is wrong with a file that cannot be opened, or with its first chunk that cannot be read.
  std::string error_of(const std::string& bytes) {
    Result<trace::TraceFile> file = open(bytes);
    if (!file) return file.error().message();
    const Status status = trace::for_each_event(*file, [](const trace::Event&) { return true; });
    return status ? "" : status.error().message();
  }
  static std::vector<trace::Event> events_of(const trace::TraceFile& file) {
    std::vector<trace::Event> events;
    const Status status = trace::for_each_event(file, [&](const trace::Event& event) {
      events.push_back(event);
      events.back().reads = nullptr;  // it points into the chunk
      return true;
    });
    EXPECT_TRUE(status) << status.error().message();
    return events;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("a.liveset");
};

}  // namespace liveset::test
