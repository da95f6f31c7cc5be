#include "viewer/plan/chain.h"

#include <algorithm>
#include <charconv>

namespace liveset::plan {

namespace detail {

Error refused(std::string what, std::string hint) { return {ErrorKind::usage, "", {}, std::move(what), std::move(hint)}; }

std::uint64_t total(std::span<const std::uint64_t> numbers) {
  std::uint64_t sum = 0;
  for (const std::uint64_t number : numbers) sum += number;
  return sum;
}

bool within_total(std::span<const std::uint64_t> numbers) {
  std::uint64_t sum = 0;
  for (const std::uint64_t number : numbers) {
    if (number > max_total || (sum += number) > max_total) return false;
  }
  return true;
}

}  // namespace detail

Chain uniform_chain(std::uint64_t layers) { return {std::vector<std::uint64_t>(layers + 1, 1), std::vector<std::uint64_t>(layers, 1)}; }

Status check(const Chain& chain) {
  using detail::refused;
  if (chain.cost.empty()) return refused("a chain needs at least one layer");
  if (chain.layers() > max_chain_layers)
    return refused("the chain has " + std::to_string(chain.layers()) + " layers, at most " + std::to_string(max_chain_layers));
  if (chain.bytes.size() != chain.layers() + 1)
    return refused("a chain of " + std::to_string(chain.layers()) + " layers has " + std::to_string(chain.layers() + 1) + " values, not " +
                   std::to_string(chain.bytes.size()));
  if (!detail::within_total(chain.bytes)) return refused("the bytes of the chain's values sum to more than 2^60");
  if (!detail::within_total(chain.cost)) return refused("the costs of the chain's layers sum to more than 2^60");
  return Done{};
}

std::string text_of(std::span<const Move> moves) {
  std::string text;
  for (const Move& move : moves) {
    if (!text.empty()) text += ' ';
    text += move.kind == Move::Kind::forward ? 'f' : move.kind == Move::Kind::drop ? 'd' : 'b';
    text += std::to_string(move.layer);
  }
  return text;
}

std::optional<Move> read_move(std::string_view text) {
  if (text.size() < 2) return std::nullopt;
  Move move;
  switch (text.front()) {
    case 'f': move.kind = Move::Kind::forward; break;
    case 'd': move.kind = Move::Kind::drop; break;
    case 'b': move.kind = Move::Kind::reverse; break;
    default: return std::nullopt;
  }
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + 1, last, move.layer);
  return error == std::errc() && end == last ? std::optional(move) : std::nullopt;
}

Result<Figures> replay(const Chain& chain, std::span<const Move> moves) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  std::vector<bool> live(chain.bytes.size(), false);
  live[0] = true;
  std::uint64_t next = chain.layers(), held = chain.bytes[0];
  Figures figures{held, 0};
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const Move& move = moves[i];
    const std::uint64_t layer = move.layer;
    const auto impossible = [&](const char* why) {
      return detail::refused("move " + std::to_string(i + 1) + ", " + text_of({&move, 1}) + ", is not possible: " + why);
    };
    if (next == 0) return impossible("all layers are reversed");
    if (layer > next) return impossible("beyond the next layer to reverse");
    if (move.kind != Move::Kind::drop && (layer == 0 || !live[layer - 1])) return impossible("its input is not live");
    if (live[layer] == (move.kind == Move::Kind::forward)) return impossible(live[layer] ? "its value is live" : "its value is not live");
    if (move.kind == Move::Kind::reverse && layer != next) return impossible("another layer is to be reversed first");
    if (move.kind == Move::Kind::forward) {
      held += chain.bytes[layer];
      if (__builtin_add_overflow(figures.cost, chain.cost[layer - 1], &figures.cost)) return impossible("the costs exceed 2^64");
    } else {
      held -= chain.bytes[layer];
      if (move.kind == Move::Kind::reverse) --next;
    }
    live[layer] = move.kind == Move::Kind::forward;
    figures.peak = std::max(figures.peak, held);
  }
  if (next != 0) return detail::refused("the moves end before layer " + std::to_string(next) + " is reversed");
  return figures;
}

std::uint64_t least_peak(const Chain& chain) {
  std::uint64_t least = 0;
  for (std::size_t i = 1; i < chain.bytes.size(); ++i)
    least = std::max(least, chain.bytes[i - 1] + chain.bytes[i] + (i > 1 ? chain.bytes[0] : 0));
  return least;
}

}  // namespace liveset::plan
