// One side of a comparison of peaks: what a trace recorded or what a model predicts, as plain data of one shape.
//
// A side has one peak of the counter that is compared. Its live set stands there item by item, in blocks as the allocator gives them out,
// and what the counter says beyond them: of `reserved` what is cached, of `requested` what rounding adds (below 0), of `active` what
// still waits for a stream, of `device` what is cached and what libraries hold beside the allocator. So items, extras and `outside` sum
// to the counter, exactly.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "viewer/ledger/classes.h"
#include "viewer/ledger/places.h"
#include "viewer/ledger/range.h"
#include "viewer/trace/records.h"

namespace liveset::compare {

// The classes of a difference, in the order in which they are shown.
enum class GapClass : std::uint8_t {
  missing_values,         // values that backward needs: the other side holds them, this one does not
  extra_values,           // and those that only this side holds
  resized_values,         // held by both, in another size
  recompute_working_set,  // what recomputes have made, and hold at once
  temporaries,            // and workspace
  gradients,              // of parameters and of activations
  static_memory,          // parameters, buffers, optimizer states, inputs
  communication,
  over_retention,  // values that only one side holds, beyond their last use; blocks that are freed and wait for a stream
  rounding,        // of the same block, to the allocator's sizes
  cached,          // reserved, and in no block: free for reuse, or too small a piece
  outside_allocator,
  unattributed
};
inline constexpr std::size_t gap_classes = 13;
using GapBytes = std::array<std::int64_t, gap_classes>;
std::string_view gap_class_name(GapClass gap_class);  // "missing_values", ...; static_memory is "static"

// What a block counts as where it has no partner. A temporary of a recompute belongs to what the recompute holds at once.
enum class Family : std::uint8_t { value, recompute, temporary, gradient, fixed, communication, unattributed };
inline constexpr std::size_t families = 7;
Family family_of(trace::MemoryClass memory_class, trace::Phase birth);

// What nothing names: "GPT.bs.0/temporary", "gradient of AddmmBackward0".
std::string unnamed_text(std::string_view module, trace::MemoryClass memory_class, std::string_view op);

struct Item {
  std::uint32_t name = 0;    // in Side::texts: "GPT.bs.0/BmmBackward0.self", "bs.0.f1.weight", "AddmmBackward0 (backward)"
  std::uint32_t module = 0;  // in Side::texts; where it was made
  std::uint32_t slot = 0;    // in Side::texts: what holds it, or made it
  std::uint32_t order = 0;   // from 1: which block of its size that its module made in its phase of the step; 0: not known
  std::uint32_t incarnation = 0;
  trace::MemoryClass memory_class = trace::MemoryClass::none;
  trace::Phase phase = trace::Phase::other;  // at birth
  Family family = Family::unattributed;
  bool is_own_name = false;  // the program or the model names this very block
  bool is_overdue = false;   // its last use in backward is over
  bool is_older = false;     // than the step
  std::uint64_t bytes = 0;   // of the block
};

struct Moment {
  std::uint64_t event = ledger::no_event;
  std::optional<std::uint64_t> time_ns;
  ledger::Place place;
  ledger::FoundBy found_by = ledger::FoundBy::nothing;  // of a moment that was looked for
  std::optional<std::uint64_t> bytes;                   // of the counter that is compared
  std::uint64_t block_bytes = 0;
  ledger::ClassBytes classes{};  // sum to block_bytes
};

struct StepPeak {
  std::int64_t number = 0;
  std::uint64_t bytes = 0;  // of the blocks
  trace::Phase phase = trace::Phase::other;
};

struct KnownCounter {
  std::string name;
  std::uint64_t bytes = 0;
  bool sampled = false;  // read now and then by the recorder
};

struct Side {
  std::string file;
  bool is_model = false;
  std::string heap, counter;  // heap: empty where the model states none
  Moment peak;
  std::optional<Moment> at_other;    // the moment at the other side's peak
  bool peak_moment_known = true;     // false: the counter's highest value is known and not when it was; the moment is that of `allocated`
  bool peak_is_estimate = false;     // of a model (model::MemoryEvent::is_estimate)
  bool peak_has_new_states = false;  // of a model: the optimizer's, in the step that makes its states
  bool peak_is_rounded = false;      // of a model, of requested (model::MemoryCurve)
  std::vector<Item> items;           // live at the peak, in the order of birth; the first max_items
  std::vector<std::string> texts;    // index 0 is empty
  GapBytes extras{};                 // of the counter, beyond blocks
  std::vector<std::pair<std::string, std::uint64_t>> outside;  // of the counter `device`: who held memory beside the allocator
  std::array<std::uint64_t, families> rest{};                  // bytes of blocks beyond max_items
  std::uint64_t rest_blocks = 0;
  std::vector<KnownCounter> counters;              // those that are known
  std::optional<std::uint64_t> outside_allocator;  // most that libraries held of the device beside the allocator
  std::vector<StepPeak> steps;
  std::array<std::optional<std::uint64_t>, trace::phase_count> phase_peaks;  // of blocks
  bool tells_of_values = false;                                              // somewhere, not only at the peak
  std::vector<std::string> known;                    // of all of the run or model: paths of modules, names of the program's values
  std::vector<std::string> warnings, peak_warnings;  // peak_warnings: of the moment of the peak

  static constexpr std::size_t max_items = 1'000'000;
};

inline bool is_on_device(const Side& side) { return side.heap.starts_with("cuda"); }

// Puts a side's items together: each text once.
class ItemBuilder {
 public:
  explicit ItemBuilder(Side& side) : side_(side) { side.texts.assign(1, ""); }
  std::uint32_t text(std::string_view text);
  // False: there are too many; it is in `rest`.
  bool add(Item item);

 private:
  Side& side_;
  std::unordered_map<std::string, std::uint32_t> ids_;
};

}  // namespace liveset::compare
