// A policy says which activations of a step are kept, which are made again and which are moved elsewhere.
//
//   save-all            nothing is made again
//   segment:K           segments of K layers, each run again as a whole before its backward (rule of thumb: 5 to 10)
//   segments:N,N,...    segments of these lengths, in the order of the forward
//   sqrt                segment:K with K the square root of the number of layers, rounded up (Chen 2016)
//   greedy:BYTES        a new segment where the bytes since the last cut exceed BYTES (Chen 2016)
//   full                every layer (block) a segment of its own
//   over:BYTES          layers that keep more than BYTES for backward are made again (rule of thumb: 10MB)
//   under:COST          layers whose forward costs less than COST are made again (rule of thumb: 5ms); a number without a unit is of the
//                       model's own
//   regions:A,B,...     these layers or modules of the tree, by name, every call of them ("GPT.bs.0#2": the second); a name
//                       may be a pattern ("bs.0", "GPT.bs.*.attn"; module_tree.h says what comes first), or have up to 4 ranges of
//                       numbers ("GPT.bs.0..5"). None may lie inside of another
//   selective:OP,...    every layer a segment; outputs of these operators are kept
//   offload:BYTES[,N]   values of at least BYTES go to the host when forward has read them last, and come back before their backward; N of
//                       them stay on the device while their copies run (default 0: copies take no time; see offload.h)
//   revolve:C           binomial schedule with C snapshots (Griewank and Walther 2000)
//   rotor:BYTES         the least time within BYTES, among persistent schedules (Beaumont et al. 2019)
//   moves:f1,f2,d1,...  a schedule of a chain, move by move: forward of layer 1, of layer 2, drop of what layer 1 made, b2: backward of
//                       layer 2; what exact search finds (plan/chain.h)
//   by-hand             what the model file's regions say
//
// A layer is what the model file calls a unit: of a chain each layer, of a recorded step each of its repeated modules.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/model/model.h"
#include "viewer/plan/chain.h"

namespace liveset::model {

struct Policy {
  enum class Kind : std::uint8_t {
    save_all,
    equal_segments,
    segments,
    square_root,
    greedy,
    full,
    over,
    under,
    regions,
    selective,
    offload,
    revolve,
    rotor,
    moves,
    by_hand
  };
  Kind kind = Kind::save_all;
  std::uint64_t number = 0;            // length of equal segments; bytes; cost; snapshots
  bool in_time = false;                // of under: the cost was given as a time, with its unit
  std::uint64_t window = 0;            // of offload
  std::vector<std::uint64_t> lengths;  // segments
  std::vector<std::string> names;      // regions: layers, with their ranges; selective: operators
  std::vector<plan::Move> moves;
  std::string text;  // as it was given
};

// Sizes and costs may carry a unit (ledger/quantity.h): "10MB" (10^6), "1.5GiB", "5ms".
Result<Policy> parse_policy(std::string_view text);
// The same policy in fewer words, for people: regions by ranges of numbers.
std::string in_ranges(const std::string& text);
// The texts of all policies, for help and error messages.
std::string_view policy_forms();

// Values that go to the host and back.
struct Offload {
  std::vector<std::uint32_t> tensors;
  std::uint64_t window = 0;  // how many of them stay on the device while their copies run
};

// A run of forward ops, [begin, end), whose values are given up in the forward and made again before their backward.
struct Region {
  std::uint32_t begin = 0, end = 0;
  std::string name;
  std::vector<bool> keeps_outputs;  // per op of the region: its outputs are kept and it is not run again; empty: none
  bool preserve_rng = true;
  std::optional<bool> early_stop;  // default: the conventions'
};

// What a policy makes of a model, before it is a list of instructions.
struct Regions {
  std::vector<Region> recomputed;         // in order, no two overlap
  std::vector<Offload> offloaded;         // no tensor twice
  std::vector<std::uint64_t> boundaries;  // where segments of layers begin and end: 0 .. layers
};

// Why a policy means nothing to a model, whatever its layers are; empty: it may mean something.
std::string mismatch(const Model& model, const Policy& policy);

// Of every policy but revolve, rotor and moves, which are no set of regions.
Result<Regions> regions_of(const Model& model, const Policy& policy);

}  // namespace liveset::model
