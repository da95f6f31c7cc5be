// The writer's small parts.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "profiler/writer/live_blocks.h"
#include "profiler/writer/sink.h"
#include "profiler/writer/utf8.h"
#include "tests/support/temporary_folder.h"

namespace liveset::writer {
namespace {

TEST(ValidUtf8, KeepsWhatIsWellFormed) {
  for (const char* text :
       {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x92\xa1", "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(valid_utf8(text), text);
  }
}

TEST(ValidUtf8, ReplacesWhatIsNot) {
  EXPECT_EQ(valid_utf8("a\x80z"), "a?z") << "continuation alone";
  EXPECT_EQ(valid_utf8("\xc3"), "?") << "torn";
  EXPECT_EQ(valid_utf8("\xc0\xaf"), "??") << "overlong";
  EXPECT_EQ(valid_utf8("\xe0\x80\xaf"), "???") << "overlong";
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "???") << "surrogate";
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), "????") << "beyond the last code point";
  EXPECT_EQ(valid_utf8("\xff\xfe"), "??");
}

TEST(LiveHeap, KeepsSumsAndPeak) {
  LiveHeap heap;
  heap.allocate(1, {0, 100}, 0);
  heap.allocate(2, {1, 50}, 1);
  LiveBlock block;
  EXPECT_TRUE(heap.free(1, false, block));
  EXPECT_EQ(block.size, 100);
  EXPECT_FALSE(heap.free(1, false, block));
  heap.allocate(3, {2, 100}, 3);  // as high as before: the first moment counts
  proto::HeapTotal total;
  heap.describe(4, total);
  EXPECT_EQ(total.heap(), 4);
  EXPECT_EQ(total.live_bytes(), 150);
  EXPECT_EQ(total.live_blocks(), 2);
  EXPECT_EQ(total.peak_bytes(), 150);
  EXPECT_EQ(total.peak_event(), 1);
  EXPECT_FALSE(total.has_allocator_total());
}

TEST(LiveHeap, ReportsDifferences) {
  LiveHeap heap;
  heap.allocate(1, {0, 100}, 0);
  LiveHeap::Reported reported = heap.report(90, 4096);
  EXPECT_EQ(reported.total_error, -10);
  EXPECT_EQ(reported.reserved_delta, 4096);
  EXPECT_FALSE(reported.mismatch) << "the first one is the baseline";
  reported = heap.report(91, 2048);
  EXPECT_EQ(reported.reserved_delta, -2048);
  EXPECT_TRUE(reported.mismatch);
}

TEST(FileSink, ReservesWithoutGrowingTheFileAndGivesBack) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("f");
  std::string error;
  const std::unique_ptr<Sink> sink = open_file_sink(path, &error);
  ASSERT_NE(sink, nullptr) << error;
  ASSERT_TRUE(sink->append("hello"));
  ASSERT_TRUE(sink->reserve(1 << 20));
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_size, 5);
  ASSERT_TRUE(sink->append(" world"));
  ASSERT_TRUE(sink->close());
  EXPECT_EQ(test::read_file(path), "hello world");
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_LT(status.st_blocks * 512, 1 << 20);
}

}  // namespace
}  // namespace liveset::writer
