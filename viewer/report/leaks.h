// What `liveset leaks` says: values that live on after backward has used them for the last time, values that no backward uses,
// contents that are saved in two dtypes, and what every step leaves more of.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "viewer/ledger/retention.h"
#include "viewer/report/text.h"

namespace liveset::report {

struct LeakFigure {
  std::string name, module, slot, kind;  // kind: "retained", "remade", "given_up" (by a checkpoint region), "region_input"
  std::optional<std::int64_t> step;      // in which it was made
  std::uint64_t bytes = 0, held_ns = 0;
  std::uint32_t block = 0, incarnation = 0;
  bool freed = true;
  std::string holder;    // "" when nothing tells
  bool guess = false;    // the holder is inferred from how the value went
  std::string evidence;  // how that was
};

// All values of one name, kind and holder.
struct LeakRow {
  LeakFigure example;  // one of the largest
  std::uint64_t times = 0, most_bytes = 0, longest_ns = 0;
  double byte_seconds = 0;
};

struct TwoDtypesFigure {
  std::string module, slots[2], dtypes[2];
  std::uint64_t bytes = 0, elements = 0, pairs = 0, backwards = 0;
};

struct GrowthFigure {
  std::string module, memory_class, holder;
  std::uint64_t bytes = 0, block_bytes = 0, blocks = 0;
  std::int64_t first_step = 0, last_step = 0;
};

// Memory of a heap that the job had freed and that waited for a stream (record_stream) when it was sampled: no fault, but it was not there
// for others.
struct StreamFigure {
  std::string heap;
  std::uint64_t bytes = 0, event = 0, samples = 0;  // the most, and when
  std::optional<std::int64_t> step;
};

struct LeaksReport {
  std::string file;
  bool nodes = false;                         // the trace has backward's nodes
  std::uint64_t overdue = 0, never_used = 0;  // how many there are; the lists have the largest
  std::vector<LeakFigure> values, unused;
  std::vector<LeakRow> rows, unused_rows;  // of all of them, by bytes x time, falling
  std::vector<TwoDtypesFigure> two_dtypes;
  std::vector<GrowthFigure> growth;
  std::vector<StreamFigure> streams;
  std::vector<std::string> stream_names;  // as run --who-holds states them
  std::vector<std::string> warnings;
  // Of what is a leak: waiting for a stream is none.
  bool empty() const { return values.empty() && unused.empty() && two_dtypes.empty() && growth.empty(); }
};

struct LeaksOptions {
  ledger::Range range;
  std::uint64_t min_bytes = 1024, min_delay_ns = 0;
  ledger::Progress progress;
};

Result<LeaksReport> build_leaks(const trace::TraceFile& file, const LeaksOptions& options);
void write_leaks_json(std::ostream& out, const LeaksReport& report);
std::string leaks_text(const LeaksReport& report, std::size_t top, const Style& style);
std::string leaks_markdown(const LeaksReport& report, const Style& style);
std::string leaks_csv(const LeaksReport& report);

}  // namespace liveset::report
