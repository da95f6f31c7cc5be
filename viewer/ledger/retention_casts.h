// Storages that a graph holds in two floating dtypes: most likely a cast of each other.
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "viewer/ledger/retention.h"

namespace liveset::ledger {

class Casts {
 public:
  // One walk may state so many; what is more is counted.
  static constexpr std::size_t max_saved = 4'000'000;

  // The graph holds it. `bytes`: of the tensor.
  void saved(std::uint32_t scope, std::uint32_t slot, std::uint32_t block, std::uint64_t bytes, int dtype);
  // The walk is over.
  void end_of_walk();
  std::vector<TwoDtypes> take();
  std::uint64_t left_out() const { return left_out_; }

 private:
  struct Saved {
    std::uint32_t scope, slot, block;
    std::uint64_t elements;
    std::int16_t dtype;
  };
  std::vector<Saved> saved_;
  std::uint64_t left_out_ = 0;
  std::map<std::tuple<std::uint32_t, std::uint64_t, std::int16_t, std::int16_t>, TwoDtypes> found_;
};

}  // namespace liveset::ledger
