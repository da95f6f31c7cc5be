#include "viewer/report/estimates.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/tiny_trace.h"
#include "viewer/report/summary.h"

namespace liveset::report {
namespace {

using nlohmann::ordered_json;
using test::TinyTrace;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::uint64_t gib = 1ULL << 30;

const char* const device =
    R"({"gpu":"h100","name":"NVIDIA H100 80GB HBM3","capability":90,"memory_bytes":85018279936,"context_bytes":549453824,"devices":1,)"
    R"("world":1,"backing":"small","assumed":["context_bytes"]})";

std::string estimate(const std::string& what, int count, const std::string& detail = "") {
  return ordered_json(
             {{"what", what}, {"detail", detail}, {"count", count}, {"first", {"/s/torch/nn/functional.py:7 f", "/jobs/train.py:12 step"}}})
      .dump();
}

// 10 GiB allocated in 16 GiB reserved on cuda:0, by a step with a backward.
class DryRunTrace : public testing::Test {
 protected:
  void record(const std::vector<std::string>& estimates, bool with_backward = true, bool with_modules = true) {
    if (with_modules) {
      trace.source("c10");
      trace.scope(proto::SCOPE_MODULE, "model");
    }
    const auto heap = trace.heap("cuda:0");
    trace.attribute("standin.device", device);
    trace.step(0);
    trace.alloc(heap, 0x1000, 10 * gib, 10 * gib, 16 * gib);
    if (with_backward) trace.backward(1);
    for (const std::string& each : estimates) trace.attribute("standin.estimate", each);
    trace.free(heap, 0x1000, 0, 16 * gib);
  }
  Summary summary(const std::string& counter = "allocated") {
    const trace::TraceFile file = trace.open();
    SummaryOptions options;
    options.counter = counter;
    Result<Summary> made = summarize(file, options);
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  DryRun dry_run() {
    Result<std::optional<DryRun>> found = find_dry_run(trace.open());
    EXPECT_TRUE(found && *found);
    return **found;
  }

  TinyTrace trace;
};

TEST_F(DryRunTrace, NoneWithoutTheDevice) {
  trace.alloc(trace.heap("cuda:0"), 0x1000, 512, 512, 1024);
  const Summary made = summary();
  EXPECT_FALSE(made.dry_run);
  EXPECT_FALSE(summary_json(made).contains("dry_run"));
  EXPECT_FALSE(summary_json(made).contains("estimates"));
  EXPECT_FALSE(summary_json(made)["counters"]["cuda:0"]["allocated"].contains("estimate"));
  EXPECT_THAT(summary_text(made, {}), Not(HasSubstr("DRY RUN")));
}

TEST_F(DryRunTrace, TheLastCountOfEachWins) {
  record({estimate("device_value_read", 1), estimate("workspace", 1, "cusolverDnSgetrf_bufferSize"), estimate("device_value_read", 2),
          estimate("workspace", 1, "cusparseSpMM_bufferSize"), estimate("device_value_read", 3)});
  const DryRun found = dry_run();
  ASSERT_EQ(found.estimates.size(), 3U);
  EXPECT_EQ(found.estimates[0].what, "device_value_read");
  EXPECT_EQ(found.estimates[0].count, 3U);
  EXPECT_THAT(found.estimates[0].first, ElementsAre("/s/torch/nn/functional.py:7 f", "/jobs/train.py:12 step"));
  EXPECT_EQ(found.estimates[1].detail, "cusolverDnSgetrf_bufferSize");
  EXPECT_EQ(found.estimates[2].detail, "cusparseSpMM_bufferSize");
  EXPECT_EQ(found.gpu, "h100");
  EXPECT_EQ(found.memory_bytes, 85018279936U);
  EXPECT_THAT(found.assumed, ElementsAre("context_bytes"));
}

TEST_F(DryRunTrace, NothingEstimatedIsExact) {
  record({});
  const Summary made = summary();
  const ordered_json json = summary_json(made);
  EXPECT_EQ(json["counters"]["cuda:0"]["allocated"]["estimate"], false);
  EXPECT_EQ(json["counters"]["cuda:0"]["allocated"]["label"], "exact");
  EXPECT_EQ(json["peak"]["estimate"], false);
  EXPECT_THAT(json["estimates"], IsEmpty());
  EXPECT_EQ(json["dry_run"]["band"]["kind"], "eager, without convolutions");
  Style wide;
  wide.columns = 200;
  EXPECT_THAT(summary_text(made, wide), HasSubstr("fits: 16.00 GiB reserved at the peak, of 78.67 GiB beside the context (524.00 MiB)"));
}

// It follows from the addresses that the driver gives, and a stand-in gives its own.
TEST_F(DryRunTrace, ReservedIsAlwaysAnEstimate) {
  record({});
  const Summary made = summary("reserved");
  const ordered_json json = summary_json(made);
  EXPECT_EQ(json["counters"]["cuda:0"]["reserved"]["estimate"], true);
  EXPECT_EQ(json["counters"]["cuda:0"]["reserved"]["label"], "estimate");
  EXPECT_EQ(json["counters"]["cuda:0"]["reserved"]["low"], 17093969838);  // 0.995 and 1.005 times 17,179,869,184
  EXPECT_EQ(json["counters"]["cuda:0"]["reserved"]["high"], 17265768530);
  EXPECT_EQ(json["peak"]["estimate"], true);
  Style wide;
  wide.columns = 200;
  const std::string text = summary_text(made, wide);
  EXPECT_THAT(text, HasSubstr("PEAK  16.00 GiB reserved on cuda:0  estimate"));
  EXPECT_THAT(text, HasSubstr("allocated: exact\n"));
  EXPECT_THAT(text, HasSubstr("reserved: estimate"));
  EXPECT_THAT(text, HasSubstr("compared with real GPUs (eager, without convolutions): allocated -0.01 % to +0.01 %, reserved -0.5 %"));
}

TEST_F(DryRunTrace, AReadValueLeavesNumbersExactWithACondition) {
  record({estimate("device_value_read", 5)});
  const ordered_json json = summary_json(summary());
  EXPECT_EQ(json["counters"]["cuda:0"]["allocated"]["estimate"], false);
  EXPECT_EQ(json["counters"]["cuda:0"]["allocated"]["label"], "exact if nothing depends on values read from the device");
  EXPECT_EQ(json["estimates"][0]["count"], 5);
  EXPECT_EQ(json["estimates"][0]["exact"], false);
  EXPECT_THAT(json["estimates"][0]["why"].get<std::string>(), HasSubstr("kernels compute nothing here"));
}

// -20 % of the real reserved is what public convolutional networks showed: 16 GiB may be 20.
TEST_F(DryRunTrace, AConvolutionsReservedIsARange) {
  record({estimate("convolution", 4)});
  const Summary made = summary();
  const ordered_json json = summary_json(made);
  EXPECT_EQ(json["counters"]["cuda:0"]["reserved"]["estimate"], true);
  EXPECT_EQ(json["counters"]["cuda:0"]["reserved"]["low"], 16 * gib);
  EXPECT_EQ(json["counters"]["cuda:0"]["reserved"]["high"], 20 * gib);
  EXPECT_EQ(json["dry_run"]["band"]["reserved"]["high_bytes"], 20 * gib);
  const std::string text = summary_text(made, {});
  EXPECT_THAT(text, HasSubstr("cuda:0  reserved   16.00 GiB to 20.00 GiB  >= 16.00 GiB  estimate"));
  EXPECT_THAT(text, HasSubstr("reserved 0 % to +25 %"));
}

TEST_F(DryRunTrace, TheHeadlineShowsARangeWhereOnlyThatIsKnown) {
  record({estimate("convolution", 4)});
  const Summary made = summary("reserved");
  EXPECT_THAT(summary_text(made, {}), HasSubstr("PEAK  16.00 GiB to 20.00 GiB reserved on cuda:0  estimate"));
  EXPECT_THAT(summary_markdown(made, {}), HasSubstr("**16.00 GiB to 20.00 GiB** (estimate) reserved"));
  EXPECT_EQ(summary_json(made)["peak"]["high"], 20 * gib);
}

TEST_F(DryRunTrace, ACompiledModuleIsKnownByItsParameters) {
  trace.string("_orig_mod.0.weight");
  record({});
  const ordered_json json = summary_json(summary());
  EXPECT_EQ(json["estimates"][0]["what"], "compiled");
  EXPECT_EQ(json["dry_run"]["band"]["kind"], "compiled");
  EXPECT_EQ(json["counters"]["cuda:0"]["reserved"]["estimate"], true);
}

// A compiled function gives no parameter a name; its kernels tell.
TEST_F(DryRunTrace, ACompiledFunctionIsKnownByWhatTheStandInSays) {
  trace.string("_orig_mod.0.weight");
  record({estimate("compiled", 3, "triton_poi_fused_gelu_0")});
  const DryRun found = dry_run();
  ASSERT_EQ(found.estimates.size(), 1U);
  EXPECT_EQ(found.estimates[0].count, 3U);
  EXPECT_EQ(found.band.kind, "compiled");
  EXPECT_EQ(label_of(found, "cuda:0", "allocated"), "estimate");
}

TEST_F(DryRunTrace, MemoryOfOthersTakesRoomToo) {
  const Ending ended{0, "exit"};
  DryRun dry_run;
  dry_run.memory_bytes = 80 * gib;
  Style wide;
  wide.columns = 200;
  DevicePeaks peaks{10 * gib, 70 * gib, 75 * gib};
  EXPECT_THAT(dry_run_text(dry_run, peaks, {}, ended, wide),
              HasSubstr("fits: 70.00 GiB reserved at the peak and 5.00 GiB outside PyTorch's"));
  peaks.held = 81 * gib;
  EXPECT_THAT(dry_run_text(dry_run, peaks, {}, ended, wide), HasSubstr("may not fit: 70.00 GiB reserved"));
  EXPECT_THAT(dry_run_text(dry_run, peaks, {1, false}, ended, wide), HasSubstr("does not fit"));
  EXPECT_THAT(dry_run_text(dry_run, {0, 0, gib}, {}, ended, wide),
              HasSubstr("fits: 1.00 GiB taken from the driver at the peak, of 80.00 GiB"));
  EXPECT_THAT(dry_run_text(dry_run, {0, 0, gib}, {}, ended, wide), Not(HasSubstr("compared with")));
}

TEST_F(DryRunTrace, TheContextLiesOutsideTheAllocator) {
  trace.source("driver");
  trace.segment(trace.heap("cuda:0/nccl", 1), 0x900000, 1 * gib);
  record({estimate("context_bytes", 1)});
  const ordered_json outside = summary_json(summary())["counters"]["cuda:0"]["outside_allocator"];
  EXPECT_EQ(outside["peak"], gib + 549453824);
  EXPECT_EQ(outside["final"], gib + 549453824);
  EXPECT_EQ(outside["estimate"], true);
}

TEST_F(DryRunTrace, UnknownFunctionsAreNamedAndBoundNothing) {
  record({estimate("unknown_function", 2, "libcusparse.so.12: cusparseFrobnicate")});
  const Summary made = summary();
  EXPECT_EQ(summary_json(made)["counters"]["cuda:0"]["allocated"]["high"], nullptr);
  Style wide;
  wide.columns = 200;
  const std::string text = summary_text(made, wide);
  EXPECT_THAT(text, HasSubstr("libcusparse.so.12: cusparseFrobnicate  train.py:12 step"));
  EXPECT_THAT(text, HasSubstr("none was, error not known"));
  EXPECT_THAT(text, HasSubstr("fits unless the estimates below are far off"));
}

TEST_F(DryRunTrace, WhatLivedWhenItRanOut) {
  const auto heap = trace.heap("cuda:0");
  trace.attribute("standin.device", device);
  trace.alloc(heap, 0x1000, 10 * gib, 10 * gib, 16 * gib);
  trace.storage(heap, 0x1000, proto::CLASS_PARAMETER);
  trace.alloc(heap, 0x2000, gib, 11 * gib, 16 * gib);
  trace.out_of_memory(heap, 90 * gib);
  trace.free(heap, 0x2000, 10 * gib, 16 * gib);
  const Summary made = summary();
  const std::string text = summary_text(made, {});
  EXPECT_THAT(text, HasSubstr("what lived then"));
  EXPECT_THAT(text, HasSubstr("does not fit"));
  EXPECT_EQ(summary_json(made)["out_of_memory"][0]["classes"]["parameter"], 10 * gib);
}

// Jobs look for the largest batch so.
TEST_F(DryRunTrace, AJobThatWentOnFits) {
  trace.source("c10");
  trace.scope(proto::SCOPE_MODULE, "model");
  const auto heap = trace.heap("cuda:0");
  trace.attribute("standin.device", device);
  trace.out_of_memory(heap, 90 * gib);
  trace.out_of_memory(heap, 85 * gib);
  trace.alloc(heap, 0x1000, 10 * gib, 10 * gib, 16 * gib);
  const Summary made = summary();
  Style wide;
  wide.columns = 200;
  EXPECT_THAT(summary_text(made, wide), HasSubstr("ran out of memory 2 times and went on; so it fits: 16.00 GiB reserved at the peak"));
  EXPECT_EQ(summary_json(made)["went_on_after_out_of_memory"], true);
}

// What comes after the end of a job that failed is not known to fit.
TEST_F(DryRunTrace, AJobThatFailedFitsUpToThere) {
  record({});
  Summary made = summary();
  Style wide;
  wide.columns = 200;
  made.job_status = 0;
  EXPECT_THAT(summary_text(made, wide), HasSubstr("         fits: 16.00 GiB"));
  made.job_status = 3;
  EXPECT_THAT(summary_text(made, wide), HasSubstr("up to where it ended (exit status 3), fits: 16.00 GiB"));
  EXPECT_EQ(summary_json(made)["job_status"], 3);
  made.job_status = 137;
  EXPECT_THAT(summary_text(made, wide), HasSubstr("up to where it ended (exit status 137, as of signal 9), fits: 16.00 GiB"));
  made.job_status.reset();
  made.health.end = "killed";
  EXPECT_THAT(summary_text(made, wide), HasSubstr("up to where it was killed, fits: 16.00 GiB"));
  EXPECT_FALSE(summary_json(made).contains("job_status"));
}

TEST_F(DryRunTrace, AJobWithoutModulesIsLikeNoneThatWasCompared) {
  record({}, true, false);
  const Summary made = summary();
  EXPECT_EQ(summary_json(made)["dry_run"]["band"]["allocated"], nullptr);
  Style wide;
  wide.columns = 200;
  EXPECT_THAT(summary_text(made, wide), HasSubstr("(of jobs without PyTorch's modules): none was, error not known"));
  EXPECT_THAT(summary_text(made, wide), HasSubstr("         fits: 16.00 GiB (error not known) reserved"));
}

TEST_F(DryRunTrace, MarkdownSaysTheSame) {
  record({estimate("convolution", 4)});
  const std::string text = summary_markdown(summary(), {});
  EXPECT_THAT(text, HasSubstr("DRY RUN  NVIDIA H100"));
  EXPECT_THAT(text, HasSubstr("convolution: cuDNN chooses"));
  EXPECT_THAT(text, HasSubstr("Health: nothing lost"));
}

TEST_F(DryRunTrace, AnotherBackendThatGoesOnAfterAShortage) {
  trace.source("c10");
  trace.source("driver");
  trace.writer().define_heap(1, trace.string("cuda:0"), 1, 0, 1);
  trace.attribute("standin.device", device);
  trace.out_of_memory(1, 90 * gib);
  trace.segment(1, 0x1000, 8 * gib);
  EXPECT_THAT(summary_text(summary(), {}), HasSubstr("ran out of memory once and went on"));
}

// backend:cudaMallocAsync: segments on PyTorch's heap, no blocks.
TEST_F(DryRunTrace, AnAllocatorWithoutBlocksHasNoStatistics) {
  trace.source("c10");
  trace.source("driver");
  const std::uint32_t heap = 1;
  trace.writer().define_heap(heap, trace.string("cuda:0"), 1, 0, 1);
  trace.attribute("standin.device", device);
  trace.segment(heap, 0x1000, 8 * gib);
  trace.out_of_memory(heap, 90 * gib);
  const Summary made = summary();
  Style wide;
  wide.columns = 200;
  const std::string text = summary_text(made, wide);
  EXPECT_THAT(text, HasSubstr("90.00 GiB asked of cuda:0, which had 8.00 GiB allocated"));
  EXPECT_THAT(text, HasSubstr("does not fit"));
  EXPECT_THAT(text, HasSubstr("PyTorch's own statistics are not there"));
}

TEST_F(DryRunTrace, MoreThanAStandInKnowsIsCountedAndNotKept) {
  std::vector<std::string> many;
  for (int i = 0; i < 1200; ++i) many.push_back(estimate("device_value_read", 1, "place " + std::to_string(i)));
  many.push_back(estimate("device_value_read", 7, "place 3"));
  record(many);
  const Summary made = summary();
  ASSERT_EQ(made.dry_run->estimates.size(), 1000U);
  EXPECT_EQ(made.dry_run->estimates[3].count, 7U);
  EXPECT_EQ(made.dry_run->left_out, 200U);
  EXPECT_EQ(label_of(*made.dry_run, "cuda:0", "allocated"), "estimate");  // nobody knows what the others say
  EXPECT_FALSE(made.dry_run->band.allocated.is_known());
  EXPECT_THAT(summary_text(made, {}), HasSubstr("(970 more; --format json lists them)"));
}

TEST_F(DryRunTrace, BytesBeyondAllBoundsStayThere) {
  constexpr std::uint64_t most = ~std::uint64_t{0};
  EXPECT_EQ((Factor{1, 1.25}).of_high(most), most);
  EXPECT_EQ((Factor{1, 1.25}).of_high(std::uint64_t{1} << 62), 5 * (std::uint64_t{1} << 60));
  EXPECT_EQ((Factor{1, 1.25}).of_high(std::uint64_t{1} << 63), 5 * (std::uint64_t{1} << 61));
}

TEST_F(DryRunTrace, RubbishIsPassedOver) {
  trace.attribute("standin.device", R"({"gpu": 7, "memory_bytes": -1, "devices": 18446744073709551615, "assumed": [1, "name"]})");
  trace.attribute("standin.device", "[]");
  trace.attribute("standin.estimate", "{");
  trace.attribute("standin.estimate", R"({"what": "", "count": 1})");
  trace.attribute("standin.estimate", R"({"what": "new_kind", "count": "many", "first": "here"})");
  const DryRun found = dry_run();
  EXPECT_EQ(found.gpu, "");
  EXPECT_EQ(found.memory_bytes, 0U);
  EXPECT_THAT(found.assumed, ElementsAre("name"));
  ASSERT_EQ(found.estimates.size(), 1U);
  EXPECT_EQ(found.estimates[0].count, 0U);
  EXPECT_TRUE(found.estimates_allocator());  // what is not known is no reason to call a number exact
}

TEST(Labels, WhatLibrariesTakeIsAssumed) {
  const DryRun dry_run;
  EXPECT_EQ(label_of(dry_run, "cuda:0", "allocated"), "exact");
  EXPECT_EQ(label_of(dry_run, "cuda:0/program", "allocated"), "exact");
  EXPECT_EQ(label_of(dry_run, "cuda:0/nccl", "allocated"), "estimate");
  EXPECT_EQ(label_of(dry_run, "cuda:0", "outside_allocator"), "estimate");
  EXPECT_EQ(label_of(dry_run, "cuda:0", "device"), "estimate");
  EXPECT_EQ(label_of(dry_run, "cuda:0", "segments"), "estimate");
  EXPECT_EQ(label_of(dry_run, "cuda:0", "requested"), "exact");
  EXPECT_EQ(label_of(dry_run, "cuda:0", "waiting_for_streams"), "estimate");
}

std::vector<Estimate> of(const std::vector<std::string>& names) {
  std::vector<Estimate> all(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) all[i].what = names[i];
  return all;
}

// What was seen: ours was -1.6 to +1.4 % (training), -33 to -58 % (inference), -11 % (compiled) off the real allocated.
TEST(ErrorBands, FollowTheEvidence) {
  EXPECT_THAT(error_band(of({"convolution"}), true).allocated.high, DoubleNear(1 / 0.984, 1e-12));
  EXPECT_THAT(error_band(of({"convolution"}), true).allocated.low, DoubleNear(1 / 1.014, 1e-12));
  EXPECT_THAT(error_band(of({"convolution"}), true).reserved.high, DoubleNear(1.25, 1e-12));
  EXPECT_THAT(error_band(of({"convolution"}), false).allocated.high, DoubleNear(1 / 0.42, 1e-12));
  EXPECT_THAT(error_band(of({"convolution", "compiled"}), true).allocated.high, DoubleNear(1 / 0.89, 1e-12));
  EXPECT_FALSE(error_band(of({"convolution", "compiled"}), true).reserved.is_known());
  EXPECT_THAT(error_band(of({"compiled"}), true).reserved.high, DoubleNear(1 / 0.967, 1e-12));
  EXPECT_THAT(error_band(of({"device_value_read"}), true).allocated.high, DoubleNear(1.0001, 1e-12));
  EXPECT_THAT(error_band(of({"collective"}), true).allocated.high, DoubleNear(1.0001, 1e-12));
  EXPECT_FALSE(error_band(of({"collective"}), true).reserved.is_known());
  EXPECT_FALSE(error_band(of({"dynamic_shape"}), true).allocated.is_known());
  EXPECT_FALSE(error_band(of({"collective", "side_stream_free"}), true).allocated.is_known());
  EXPECT_FALSE(error_band(of({"workspace"}), true).reserved.is_known());
}

}  // namespace
}  // namespace liveset::report
