// One level of checkpoints: the chain is cut into segments; the values at the cuts are kept, everything else of a segment is dropped in
// forward and made again, at once, before its backward.
//
// Closed form. With b_0 = 0, b_1, .., b_m = n the cuts, the peak is
//   max over segments j = 1..m of  (bytes at b_0 .. b_j) + (bytes inside segment j),
// which for equal bytes is max (j + n_j), n_j the segment's length. Why: a value is released after the backward of its layer, so when
// segment j is complete again the cuts 0..j and the inside of j live. In the forward pass through j only a part of those lives. Source of
// the method: Chen et al. 2016, https://arxiv.org/abs/1604.06174; the form was checked against every split of chains up to 8 layers.
#pragma once
#include "viewer/plan/chain.h"

namespace liveset::plan {

// How a segment is taken to run. Defaults: whole, the re-run end of a segment is the value that was kept.
struct SegmentRules {
  bool count_input = true;              // h_0 counts
  bool rerun_boundary = true;           // the layer that makes a segment's end is run again too
  bool copy_boundary = false;           // ... and its result is a second copy until it is released
  bool checkpoint_last_segment = true;  // false: the last segment keeps everything and is not re-run
};

// Lengths are at least 1 and sum to the chain's layers. O(n).
Result<Figures> segment_figures(const Chain& chain, std::span<const std::uint64_t> lengths, const SegmentRules& rules = {});

// The same schedule as moves (rerun_boundary = false, which moves imply: a live value is not made again).
Result<std::vector<Move>> segment_moves(std::span<const std::uint64_t> lengths);

// Everything kept: no segments, every layer once.
Result<Figures> save_all_figures(const Chain& chain);

// Lists of lengths, of at most max_chain_layers layers.
std::vector<std::uint64_t> equal_segments(std::uint64_t layers, std::uint64_t length);  // the last one takes what is left
std::vector<std::uint64_t> sqrt_segments(std::uint64_t layers);                         // equal, of length ceil(sqrt n)

// The least P with P (P - 1) / 2 >= n: the best peak of one level on n equal layers, reached by lengths that fall by one. With m segments
// peak P allows lengths up to P-1, P-2, .., and these sum to P (P - 1) / 2 at most.
std::uint64_t best_one_level_peak(std::uint64_t layers);

// The segment list of least peak for any chain, exact: the least peak P is found by bisection; for one P the least bytes of cuts up to each
// place are found from left to right, with a heap of the places that can still begin a segment. O(n log n log bytes).
Result<std::vector<std::uint64_t>> best_one_level(const Chain& chain);

// Chen's greedy list: walk forward, sum the bytes made, cut after the value with which the sum exceeds `limit`. O(n).
Result<std::vector<std::uint64_t>> greedy_segments(const Chain& chain, std::uint64_t limit);

// The greedy list of least peak over a sweep of limits between the largest value and the total (limits in steps of 1/16; not every limit is
// tried, so the best of all may be missed). Ties: fewer cuts. O(n) each, about 16 log2(total / largest) of them.
Result<std::vector<std::uint64_t>> best_greedy_segments(const Chain& chain);

}  // namespace liveset::plan
