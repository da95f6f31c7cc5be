#include "viewer/plan/knapsack.h"

#include <algorithm>

namespace liveset::plan {
namespace {

constexpr std::uint32_t none = 0xffffffff;

struct State {
  std::uint64_t memory = 0, value = 0;
  std::uint32_t parent = none, item = none;
};

// Denser items first.
bool denser(const KnapsackItem& a, const KnapsackItem& b) {
  return static_cast<unsigned __int128>(a.value) * b.memory > static_cast<unsigned __int128>(b.value) * a.memory;
}

// Items with memory that fit, densest first.
class Lists {
 public:
  // Answers of a value below `to_beat` need not be found.
  Lists(std::span<const KnapsackItem> items, const std::vector<std::uint32_t>& order, std::uint64_t capacity, std::uint64_t max_states,
        std::uint64_t to_beat)
      : items_(items), order_(order), capacity_(capacity), to_beat_(to_beat) {
    longest_ = std::max<std::uint64_t>(max_states / std::max<std::size_t>(order_.size(), 1), 2);
    states_.push_back({});
    list_.push_back(0);
    for (std::size_t i = 0; i < order_.size(); ++i) take(i);
  }

  bool exact() const { return exact_; }
  bool any() const { return !list_.empty(); }  // not when states were left out and all that remained were hopeless
  const State& best() const { return states_[list_.back()]; }
  void mark(std::vector<bool>& kept) const {
    for (std::uint32_t at = list_.back(); at != none; at = states_[at].parent) {
      if (states_[at].item != none) kept[states_[at].item] = true;
    }
  }

 private:
  // The list with and without the item: two lists in order of memory become one, in which the value rises too.
  void take(std::size_t i) {
    const KnapsackItem& item = items_[order_[i]];
    std::vector<std::uint32_t> merged;
    merged.reserve(2 * list_.size());
    std::size_t without = 0, with = 0;
    std::uint64_t value = 0;
    const auto fits = [&](std::size_t at) { return at < list_.size() && states_[list_[at]].memory <= capacity_ - item.memory; };
    while (without < list_.size() || fits(with)) {
      const State* old = without < list_.size() ? &states_[list_[without]] : nullptr;
      const bool add =
          fits(with) && (!old || before({states_[list_[with]].memory + item.memory, states_[list_[with]].value + item.value}, *old));
      if (!add) {
        if (merged.empty() || old->value > value) {
          value = old->value;
          merged.push_back(list_[without]);
        }
        ++without;
        continue;
      }
      const State& base = states_[list_[with]];
      const State next{base.memory + item.memory, base.value + item.value, list_[with], order_[i]};
      ++with;
      if (next.value <= value && !merged.empty()) continue;
      value = next.value;
      merged.push_back(static_cast<std::uint32_t>(states_.size()));
      states_.push_back(next);
    }
    list_ = std::move(merged);
    if (i + 1 < order_.size()) leave_out_hopeless(items_[order_[i + 1]]);
    if (list_.size() > longest_) thin();
  }

  // What is left of the capacity cannot be filled with anything denser than the next item.
  void leave_out_hopeless(const KnapsackItem& next) {
    std::erase_if(list_, [&](std::uint32_t at) {
      const State& state = states_[at];
      return state.value + static_cast<unsigned __int128>(capacity_ - state.memory) * next.value / next.memory < to_beat_;
    });
  }

  // In order of memory; of the same memory the higher value first.
  static bool before(const State& a, const State& b) { return a.memory != b.memory ? a.memory < b.memory : a.value > b.value; }

  // Of each part of the capacity the most valuable state stays, and the last of all does.
  void thin() {
    exact_ = false;
    const std::uint64_t part = capacity_ / (longest_ - 1) + 1;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const bool last = i + 1 == list_.size() || states_[list_[i + 1]].memory / part != states_[list_[i]].memory / part;
      if (last || i == 0) list_[kept++] = list_[i];
    }
    list_.resize(kept);
  }

  std::span<const KnapsackItem> items_;
  const std::vector<std::uint32_t>& order_;
  std::uint64_t capacity_, to_beat_, longest_ = 2;
  std::vector<State> states_;
  std::vector<std::uint32_t> list_;
  bool exact_ = true;
};

// One answer, to be beaten: the densest items that still fit, one after another.
void take_greedily(std::span<const KnapsackItem> items, const std::vector<std::uint32_t>& order, std::uint64_t capacity,
                   KnapsackAnswer& answer) {
  for (const std::uint32_t index : order) {
    if (items[index].memory > capacity - answer.memory) continue;
    answer.memory += items[index].memory;
    answer.value += items[index].value;
    answer.kept[index] = true;
  }
}

// The optimum with items that can be cut (Dantzig), rounded down: values are whole, so is the optimum.
std::uint64_t fractional(std::span<const KnapsackItem> items, const std::vector<std::uint32_t>& order, std::uint64_t capacity) {
  std::uint64_t value = 0;
  for (const std::uint32_t index : order) {
    const KnapsackItem& item = items[index];
    if (item.memory > capacity)
      return value + static_cast<std::uint64_t>(static_cast<unsigned __int128>(item.value) * capacity / item.memory);
    capacity -= item.memory;
    value += item.value;
  }
  return value;
}

Status check_items(std::span<const KnapsackItem> items) {
  std::uint64_t memory = 0, value = 0;
  if (items.size() > max_knapsack_items)
    return detail::refused("the knapsack takes at most " + std::to_string(max_knapsack_items) + " items, not " +
                           std::to_string(items.size()));
  for (const KnapsackItem& item : items) {
    if (item.memory > max_total || item.value > max_total || (memory += item.memory) > max_total || (value += item.value) > max_total)
      return detail::refused("the memory or the values of the items sum to more than 2^60");
  }
  return Done{};
}

}  // namespace

Result<KnapsackAnswer> knapsack(std::span<const KnapsackItem> items, std::uint64_t capacity, const KnapsackOptions& options) {
  if (Status fine = check_items(items); !fine) return fine.take_error();
  KnapsackAnswer answer;
  answer.kept.assign(items.size(), false);
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    if (items[i].memory == 0) {
      answer.kept[i] = true;
      answer.value += items[i].value;
    } else if (items[i].memory <= capacity && items[i].value > 0) {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return denser(items[a], items[b]); });
  const std::uint64_t free_value = answer.value;
  const std::vector<bool> free_items = answer.kept;
  take_greedily(items, order, capacity, answer);
  bool exact = false;
  // What one search finds lets the next one leave out more.
  for (int rounds = 0; rounds < 4 && !exact; ++rounds) {
    const std::uint64_t to_beat = answer.value - free_value;
    const Lists lists(items, order, capacity, options.max_states, to_beat);
    exact = lists.exact();
    const bool better = lists.any() && lists.best().value > to_beat;
    if (better || exact) {
      answer.memory = lists.best().memory;
      answer.value = free_value + lists.best().value;
      answer.kept = free_items;
      lists.mark(answer.kept);
    }
    if (!better) break;
  }
  answer.bound = exact ? answer.value : free_value + fractional(items, order, capacity);
  answer.exact = answer.bound == answer.value;
  return answer;
}

}  // namespace liveset::plan
