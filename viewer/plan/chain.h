// What the planners of chains have in common: the chain, what it costs, and moves on it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/trace/result.h"

namespace liveset::plan {

// Values h_0 .. h_n; layer i makes h_i from h_{i-1}, its backward needs both. Bytes and costs are whole numbers of any unit.
struct Chain {
  std::vector<std::uint64_t> bytes;  // n + 1
  std::vector<std::uint64_t> cost;   // n; cost[i - 1] is that of layer i

  std::uint64_t layers() const { return cost.size(); }
};

// n layers of one byte and one cost each: peaks are numbers of values, costs numbers of layers.
Chain uniform_chain(std::uint64_t layers);

inline constexpr std::uint64_t max_chain_layers = 1'000'000;
inline constexpr std::uint64_t max_total = std::uint64_t{1} << 60;  // of all bytes, and of all costs: any two such sums can be added

// Whole: at least one layer, one value more than layers, totals within max_total.
Status check(const Chain& chain);

// What a schedule of one forward and backward pass needs: the most bytes held at once, and the cost of all forward layers run, re-runs
// included.
struct Figures {
  std::uint64_t peak = 0;
  std::uint64_t cost = 0;
};

// The moves of an arbitrary schedule: forward of a layer (h_i is made while h_{i-1} lives), drop of a value, reversal of a layer (h_i and
// h_{i-1} live, h_i is released). Layers are reversed n, n-1, .., 1, each once.
struct Move {
  enum class Kind : std::uint8_t { forward, drop, reverse };
  Kind kind = Kind::forward;
  std::uint32_t layer = 0;  // of drop: the value

  bool operator==(const Move&) const = default;
};

std::string text_of(std::span<const Move> moves);      // "f1 f2 d1 b2": forward, drop, reverse
std::optional<Move> read_move(std::string_view text);  // of one; nothing: it is none

// Runs the moves; an error says which one is not possible and why. h_0 lives at the start, and the last move must be the reversal of
// layer 1.
Result<Figures> replay(const Chain& chain, std::span<const Move> moves);

// The least peak of any schedule whatever, and every chain has a schedule that reaches it:
//   max over layers i of bytes[i-1] + bytes[i] + (i > 1 ? bytes[0] : 0).
// Bound: layer i is run at least once, with h_{i-1} and h_i live together; h_0 cannot be made again and the reversal of layer 1 needs it,
// so it lives until the end. Reached by starting each reversal over from h_0 with nothing else kept: every state of it is one of the sums
// above.
std::uint64_t least_peak(const Chain& chain);

namespace detail {

Error refused(std::string what, std::string hint = "");

// Sums that cannot wrap, for totals that were checked; a bug otherwise.
std::uint64_t total(std::span<const std::uint64_t> numbers);

// False when the sum exceeds max_total.
bool within_total(std::span<const std::uint64_t> numbers);

}  // namespace detail
}  // namespace liveset::plan
