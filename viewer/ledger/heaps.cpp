// Which heap people ask about, and figures over all heaps.
#include <algorithm>

#include "viewer/ledger/physical.h"

namespace liveset::ledger {

const PhaseFigures& Step::peak() const {
  return *std::max_element(phases.begin(), phases.end(), [](const PhaseFigures& a, const PhaseFigures& b) {
    return a.peak_bytes != b.peak_bytes ? a.peak_bytes < b.peak_bytes : a.peak_event > b.peak_event;
  });
}

std::uint64_t PhysicalLedger::mismatched_events() const {
  std::uint64_t sum = 0;
  for (const HeapLedger& heap : heaps) sum += heap.mismatched_events;
  return sum;
}

std::uint64_t PhysicalLedger::open_blocks() const {
  std::uint64_t sum = 0;
  for (const HeapLedger& heap : heaps) sum += heap.live_blocks;
  return sum;
}

std::uint32_t choose_heap(const trace::TraceFile& file) {
  if (file.chunks().empty()) return 0;
  const trace::Dictionary& names = file.dictionary();
  const auto rank = [&](const trace::HeapTotal& total) {
    const std::string_view name = total.heap < names.heaps.size() ? names.string(names.heaps[total.heap].name) : std::string_view();
    const int kind = name.substr(0, 4) == "cuda" ? 2 : name == "cpu" ? 1 : 0;
    return std::pair(total.peak_bytes == 0 ? -1 : kind, total.peak_bytes);
  };
  std::uint32_t best = 0;
  std::pair<int, std::uint64_t> best_rank(-2, 0);
  for (const trace::HeapTotal& total : file.chunks().back().totals) {
    if (total.heap > Block::max_heap || rank(total) <= best_rank) continue;
    best = total.heap;
    best_rank = rank(total);
  }
  return best;
}

Result<std::uint32_t> find_heap(const trace::TraceFile& file, std::string_view name) {
  const trace::Dictionary& names = file.dictionary();
  std::string known;
  for (std::uint32_t id = 1; id < names.heaps.size(); ++id) {
    const std::string_view heap = names.string(names.heaps[id].name);
    if (heap == name) return id;
    known += (known.empty() ? "" : ", ") + std::string(heap);
  }
  Error error{ErrorKind::usage, file.path(), std::nullopt, "the trace has no heap \"" + std::string(name) + "\"", ""};
  error.hint = known.empty() ? "it has no heap at all" : "its heaps are " + known;
  return error;
}

}  // namespace liveset::ledger
