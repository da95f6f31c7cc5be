// Reductions of gradients beside recomputes, a step at a time: which recompute of a region ended after the gradients of its modules had
// been reduced. A part of distributed.h's pass.
#pragma once
#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "viewer/ledger/block_finder.h"
#include "viewer/ledger/distributed.h"

namespace liveset::ledger {

class Reductions {
 public:
  // `finder` knows the blocks up to the event that is visited.
  Reductions(const trace::Dictionary& names, BlockFinder& finder, RankFacts& out) : names_(names), finder_(finder), out_(out) {}

  void visit(const trace::Event& event);
  void recomputed(const RegionRun& run);
  void begin_step(std::int64_t number) { step_ = number; }
  void end_step();

 private:
  static constexpr std::uint32_t outside = 0xffffffffU;
  struct Reduction {
    std::uint64_t event;
    std::uint32_t backward;  // ordinal in the step, or `outside` of any
    std::int64_t block;      // ordinal; BlockFinder::none
    std::int64_t bucket;     // -1: none
  };
  struct Recompute {
    std::uint64_t end;
    std::uint32_t backward, scope;
    std::vector<std::uint32_t> modules;
  };
  using Parameters = std::map<std::string, std::vector<Reduction>, std::less<>>;  // by path: when it was reduced

  void reduce(const trace::Event& event);
  void gradient(const trace::Event& event);
  void bucket(const trace::Event& event);
  Parameters join();
  // -> whether the module has a parameter that is known
  bool judge(const Recompute& recompute, const std::string& module, const Parameters& parameters);
  void late(const Recompute& recompute, const std::string& module, const std::string& parameter, bool same_backward);

  const trace::Dictionary& names_;
  BlockFinder& finder_;
  RankFacts& out_;
  std::vector<Reduction> reductions_;
  std::vector<Recompute> recomputes_;
  absl::flat_hash_map<std::int64_t, std::vector<std::uint32_t>> gradients_;  // block -> String ids of parameters' paths
  std::map<std::int64_t, std::vector<std::string>> buckets_;                 // of all steps from its statement on
  absl::flat_hash_map<std::uint32_t, bool> reduces_;                         // String id of an operation
  absl::flat_hash_set<std::uint32_t> bucket_texts_;                          // String ids
  // Scope of the region, whether in the same backward -> parameter -> index into out_.late.
  std::map<std::pair<std::uint32_t, bool>, std::map<std::string, std::size_t, std::less<>>> known_;
  std::int64_t step_ = -1;
  std::uint32_t backwards_ = 0, backward_ = outside;
  std::size_t bucket_names_ = 0, gradient_names_ = 0, module_names_ = 0, work_ = 0;
};

}  // namespace liveset::ledger
