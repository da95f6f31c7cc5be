// What a dry run cannot know exactly, and how wrong its numbers can be. The stand-in device tells both in the trace, as attributes
// (standin.device once, standin.estimate again and again with rising counts); so every reader of the trace can say it.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/report/text.h"
#include "viewer/trace/trace_file.h"

namespace liveset::report {

// Of which numbers something makes an estimate.
enum class Reach {
  none,       // of none unless the job decides by it
  allocator,  // of what PyTorch's allocator holds: allocated, reserved
  outside     // of device memory that others hold: libraries, the context
};

struct Estimate {
  std::string what, detail, why;
  std::uint64_t count = 0;
  std::vector<std::string> first;  // the Python stack of the first time, innermost first: "train.py:12 step"
  Reach reach = Reach::allocator;
};

// The real figure lies, as far as such models were compared with real GPUs, between low and high times ours. high 0: no bound is known.
struct Factor {
  double low = 1, high = 1;
  bool is_known() const { return high != 0; }
  std::uint64_t of_low(std::uint64_t bytes) const;
  std::uint64_t of_high(std::uint64_t bytes) const;
  bool is_wide() const { return is_known() && (high > 1.01 || low < 0.99); }  // else the two ends look the same
};

struct ErrorBand {
  std::string kind;   // of model: "eager"
  std::string basis;  // what it was seen on; empty: on nothing
  Factor allocated, reserved;
};

struct DryRun {
  std::string gpu, name;  // "h100", "NVIDIA H100 80GB HBM3"
  int capability = 0;     // 10 * major + minor
  std::uint64_t memory_bytes = 0, context_bytes = 0;
  std::int64_t devices = 1, world = 1;
  std::string backing;
  std::vector<std::string> assumed;  // which of the GPU's facts are
  std::vector<Estimate> estimates;   // in the order of their first time, no more than 1,000
  std::uint64_t left_out = 0;        // statements about further ones
  bool counts_are_minima = false;    // the job did not end by itself: what it counted last is not in the trace
  ErrorBand band;

  bool has(const std::string& what) const;
  // Whether allocated, active and requested are estimates; reserved always is.
  bool estimates_allocator() const;
};

// Whether the process had a context on a stand-in device; cheap.
bool used_stand_in(const trace::TraceFile& file);
// Nothing when the trace is of no dry run.
Result<std::optional<DryRun>> find_dry_run(const trace::TraceFile& file);
// By what was estimated. `trained`: there was a backward.
ErrorBand error_band(const std::vector<Estimate>& estimates, bool trained);
// "exact", "exact if nothing depends on values read from the device", "estimate". `heap`: "cuda:0", or "cuda:0/nccl" of a library.
// Reserved follows from the addresses that the driver gives too, and those are assumed.
std::string label_of(const DryRun& dry_run, const std::string& heap, const std::string& counter);
// Nothing where no such counter was compared with a real GPU's.
std::optional<Factor> factor_of(const DryRun& dry_run, const std::string& heap, const std::string& counter);

// An allocator had no memory for what was asked.
struct Shortage {
  std::uint64_t times = 0;
  bool went_on = false;  // the job allocated more after the last time
};

// Of the shown device; 0 where the trace does not tell.
struct DevicePeaks {
  std::uint64_t allocated = 0, reserved = 0;
  std::uint64_t held = 0;                // taken from the driver by all libraries
  bool lacks_allocator_figures = false;  // PyTorch took memory by an allocator that states no blocks
};

// How the job ended, as far as known.
struct Ending {
  std::optional<int> status;  // what `dryrun` saw: the job's own, 128 + N when signal N killed it
  std::string by_trace;       // Health::end: "exit", "killed", "exec"; empty: the trace was cut
};

nlohmann::ordered_json estimates_json(const DryRun& dry_run);
nlohmann::ordered_json dry_run_json(const DryRun& dry_run, const DevicePeaks& peaks);
// The block under the summary.
std::string dry_run_text(const DryRun& dry_run, const DevicePeaks& peaks, const Shortage& shortage, const Ending& ending,
                         const Style& style);
// "20.00 GiB to 25.00 GiB" where the band is wide, else the bytes.
std::string bytes_in_band(std::uint64_t bytes, const Factor& factor, const Style& style);

}  // namespace liveset::report
