// Everything this program tells liveset: the values of the step, where they live, and what each chunk was.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "hooks/api/liveset.hpp"
#include "samples/gradient_cache/encoder.h"

namespace gradient_cache {

// What the step holds: three hidden vectors (t, m, z), a representation (r) and its gradient (g) a row, and the scores.
enum Item { item_t, item_m, item_z, item_r, item_g, item_count };
using ValueId = std::size_t;
constexpr ValueId scores_value = 2 * row_count * item_count;
constexpr ValueId value_id(Side side, std::size_t row, Item item) { return (side * row_count + row) * item_count + item; }

// The numbers of the values, each in a block of an arena that reports its allocations.
class Store {
 public:
  Store();
  // `reads`: the values it is made from.
  void create(ValueId id, const double* numbers, std::size_t count, const std::vector<ValueId>& reads);
  // Again after a drop.
  void remake(ValueId id, const double* numbers, std::size_t count, const std::vector<ValueId>& reads);
  // Made again although it is still held; the numbers are not touched.
  void merge(ValueId id, const std::vector<ValueId>& reads);
  void use(ValueId id, const std::vector<ValueId>& reads);
  void drop(ValueId id);
  void release(ValueId id);
  const double* numbers(ValueId id) const { return blocks_[id].numbers; }

  std::size_t hidden_live() const { return hidden_live_; }
  std::size_t hidden_peak() const { return hidden_peak_; }

 private:
  struct Block {
    double* numbers = nullptr;
    std::size_t bytes = 0;
  };
  void store(ValueId id, const double* numbers, std::size_t count);
  void forget(ValueId id);
  liveset::Value::Reads handles(const std::vector<ValueId>& ids) const;

  liveset::Arena arena_{"cpu/arena"};
  std::vector<liveset::Value> values_;
  std::vector<Block> blocks_;
  std::size_t hidden_live_ = 0, hidden_peak_ = 0;
};

}  // namespace gradient_cache
