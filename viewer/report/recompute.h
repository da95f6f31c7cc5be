// What `liveset recompute` says: each checkpoint region of each step, what it held and did not hold, what it made again, what that
// cost, and for every value that was made again its original.
#pragma once
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/ledger/lineage.h"
#include "viewer/ledger/path_names.h"
#include "viewer/report/text.h"

namespace liveset::report {

// What the job says of a region: few different texts, of many regions.
struct AboutRegion {
  std::string kind;  // "non_reentrant", "reentrant", "selective", "by_phase", "" when the job does not say
  std::vector<std::string> input_dtypes;
  std::string autocast;  // "cpu bfloat16"; "" when it was off or the job does not say
  bool autocast_known = false;
  std::optional<bool> preserve_rng;
};

// Texts of figures point into the report, and into the trace, which must stay open.
struct RegionFigure {
  std::string_view module;   // the innermost that contains all that the region saved
  std::string_view scope;    // its own place: "GPT/checkpoint:0"; of an inferred one: the node of backward that recomputed
  const char* matched = "";  // how originals were found: "position", "order", "" when none was
  std::shared_ptr<const AboutRegion> about;
  std::optional<std::int64_t> step, microbatch;
  std::uint64_t times = 0, unfinished = 0;
  std::optional<bool> early_stopped;
  std::optional<std::uint64_t> held_bytes;  // absent: the job does not say which storages the region holds
  std::uint64_t input_bytes = 0, random_bytes = 0, selective_bytes = 0;
  std::uint64_t slots = 0, dropped_blocks = 0, dropped_bytes = 0, not_held_bytes = 0, still_live_bytes = 0;
  std::uint64_t remade_blocks = 0, remade_bytes = 0, extra_ns = 0;
  bool inferred = false;
};

struct RemadeFigure {
  std::string_view base, module, slot, region, dtype;  // base: "GPT.block/AddmmBackward0.mat1"
  const char* matched = "";
  std::optional<std::int64_t> step, microbatch;
  std::uint32_t original_number = 0;  // of the originals with this base in the step; 0: the original was not found
  std::uint32_t incarnation = 1, block = 0, original_block = ledger::no_block, slots = 0;
  std::uint64_t bytes = 0;
  bool guess = false;

  std::string original() const;  // "GPT.block/AddmmBackward0.mat1#2"; "" when it was not found
  std::string name() const;      // that, and "@1" for the first time that it is made again
  std::string_view op() const { return slot.substr(0, slot.find('.')); }
};

struct StepRecompute {
  std::optional<std::int64_t> step;
  std::uint64_t regions = 0, times = 0, not_held_bytes = 0, remade_bytes = 0, extra_ns = 0;  // extra: of recomputes inside others once
};

struct RecomputeReport {
  std::string file;
  std::shared_ptr<ledger::PathNames> names;  // what the figures point at
  std::vector<RegionFigure> regions;
  std::vector<StepRecompute> steps;
  std::vector<RemadeFigure> values;        // of all steps, or only of the shown one
  std::optional<std::int64_t> shown_step;  // the last that made something again, else the last with a region
  std::uint64_t remade_values = 0;         // in all
  StepRecompute all;
  bool device = false;  // the job used a device that works on its own: times are of the host
  std::uint64_t unmatched_values = 0, unmatched_bytes = 0, guessed_values = 0, conflicts = 0, stray_statements = 0, left_out = 0,
                reused_slots = 0;
  std::vector<std::string> warnings;
};

struct RecomputeOptions {
  ledger::Range range;
  bool all_values = true;  // false: only those of the shown step, which are enough for a table
  ledger::Progress progress;
};

Result<RecomputeReport> build_recompute(const trace::TraceFile& file, const RecomputeOptions& options);
void write_recompute_json(std::ostream& out, const RecomputeReport& report);
// The regions of one step (the last that recomputed), the sums of the steps, the largest values of that step.
std::string recompute_text(const RecomputeReport& report, std::size_t top, const Style& style);
std::string recompute_markdown(const RecomputeReport& report, std::size_t top, const Style& style);
void write_recompute_csv(std::ostream& out, const RecomputeReport& report);  // the regions

}  // namespace liveset::report
