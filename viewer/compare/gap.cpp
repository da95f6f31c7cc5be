#include "viewer/compare/gap.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "viewer/compare/match.h"
#include "viewer/ledger/counter.h"

namespace liveset::compare {
namespace {

using ledger::size_of;
using ledger::wrapping_difference;
using ledger::wrapping_sum;

std::int64_t signed_bytes(std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); }

GapClass class_of(Family family, bool is_measured) {
  switch (family) {
    case Family::value: return is_measured ? GapClass::extra_values : GapClass::missing_values;
    case Family::recompute: return GapClass::recompute_working_set;
    case Family::temporary: return GapClass::temporaries;
    case Family::gradient: return GapClass::gradients;
    case Family::fixed: return GapClass::static_memory;
    case Family::communication: return GapClass::communication;
    case Family::unattributed: break;
  }
  return GapClass::unattributed;
}

bool is_value(const Item& item) { return item.family == Family::value || item.memory_class == trace::MemoryClass::recomputed_activation; }

// Sums by class, and by name in each class.
class Sums {
 public:
  void add(GapClass gap_class, const std::string& name, std::uint64_t measured, std::uint64_t predicted) {
    const auto index = static_cast<std::size_t>(gap_class);
    const std::int64_t bytes = wrapping_difference(signed_bytes(measured), signed_bytes(predicted));
    bytes_[index] = wrapping_sum(bytes_[index], bytes);
    GapRow& row = rows_[index][name];
    row.bytes = wrapping_sum(row.bytes, bytes);
    row.measured += measured;
    row.predicted += predicted;
    ++row.blocks;
  }
  void add_nameless(GapClass gap_class, std::int64_t bytes) {
    std::int64_t& sum = bytes_[static_cast<std::size_t>(gap_class)];
    sum = wrapping_sum(sum, bytes);
  }
  void finish(Gap& gap) {
    for (std::size_t i = 0; i < gap_classes; ++i) {
      GapPart& part = gap.parts[i];
      part.bytes = bytes_[i];
      for (auto& [name, row] : rows_[i]) {
        if (row.bytes == 0) continue;  // what one side has more under this name the other has less
        row.name = name;
        part.rows.push_back(std::move(row));
      }
      part.all_rows = part.rows.size();
      const auto larger = [](const GapRow& a, const GapRow& b) {
        return size_of(a.bytes) != size_of(b.bytes) ? size_of(a.bytes) > size_of(b.bytes) : a.name < b.name;
      };
      const std::size_t kept = std::min(part.rows.size(), Gap::max_rows);
      std::partial_sort(part.rows.begin(), part.rows.begin() + static_cast<std::ptrdiff_t>(kept), part.rows.end(), larger);
      part.rows.resize(kept);
    }
  }

 private:
  GapBytes bytes_{};
  std::unordered_map<std::string, GapRow> rows_[gap_classes];
};

// Only a device's allocator gives out other sizes than it was asked for; of sides that name no heap that is not known.
bool may_round(const Side& measured, const Side& predicted) {
  const bool unknown = measured.heap.empty() && predicted.heap.empty();
  return unknown || is_on_device(measured) || is_on_device(predicted);
}

// `is_rounded`: a difference within one size of the allocator is its rounding.
void add_pair(const Item& measured, const Item& predicted, const std::string& name, bool is_rounded, bool is_by_size, Gap& gap,
              Sums& sums) {
  if (is_value(measured)) {
    ++gap.values.matched;
    gap.values.matched_bytes += measured.bytes;
  }
  if (measured.bytes == predicted.bytes) return;
  const bool is_rounding = is_by_size || (is_rounded && ledger::size_units(measured.bytes) == ledger::size_units(predicted.bytes));
  if (is_rounding) return sums.add(GapClass::rounding, name, measured.bytes, predicted.bytes);
  gap.values.resized += is_value(measured);
  if (measured.family == Family::value) return sums.add(GapClass::resized_values, name, measured.bytes, predicted.bytes);
  sums.add(class_of(measured.family, true), name, measured.bytes, predicted.bytes);
}

void add_single(const Item& item, const std::string& name, bool is_measured, Gap& gap, Sums& sums) {
  if (is_value(item)) {
    ++(is_measured ? gap.values.extra : gap.values.missing);
    (is_measured ? gap.values.extra_bytes : gap.values.missing_bytes) += item.bytes;
  }
  const GapClass gap_class = item.is_overdue && is_value(item) ? GapClass::over_retention : class_of(item.family, is_measured);
  sums.add(gap_class, name, is_measured ? item.bytes : 0, is_measured ? 0 : item.bytes);
}

}  // namespace

Gap compare_peaks(const Side& measured, const Side& predicted) {
  Gap gap;
  gap.difference = wrapping_difference(signed_bytes(measured.peak.bytes.value_or(0)), signed_bytes(predicted.peak.bytes.value_or(0)));
  const Match match = match_items(measured, predicted);
  gap.paired_by_size = match.paired_by_size;
  const bool is_rounded = may_round(measured, predicted);
  Sums sums;
  for (std::size_t i = 0; i < measured.items.size(); ++i) {
    const Item& item = measured.items[i];
    const std::uint32_t partner = match.partner_of_measured[i];
    if (partner != Match::none)
      add_pair(item, predicted.items[partner], measured.texts[item.name], is_rounded, !match.is_by_size.empty() && match.is_by_size[i], gap,
               sums);
    else
      add_single(item, measured.texts[item.name], true, gap, sums);
  }
  for (std::size_t i = 0; i < predicted.items.size(); ++i)
    if (match.partner_of_predicted[i] == Match::none)
      add_single(predicted.items[i], predicted.texts[predicted.items[i].name], false, gap, sums);
  // Blocks beyond the first million are in no pair: what they are for is not known.
  for (std::size_t family = 0; family < families; ++family)
    sums.add_nameless(GapClass::unattributed,
                      wrapping_difference(signed_bytes(measured.rest[family]), signed_bytes(predicted.rest[family])));
  for (const auto& [owner, bytes] : measured.outside) sums.add(GapClass::outside_allocator, owner, bytes, 0);
  for (const auto& [owner, bytes] : predicted.outside) sums.add(GapClass::outside_allocator, owner, 0, bytes);
  for (std::size_t i = 0; i < gap_classes; ++i)
    sums.add_nameless(static_cast<GapClass>(i), wrapping_difference(measured.extras[i], predicted.extras[i]));
  sums.finish(gap);
  return gap;
}

Verdict verdict_of(const Side& measured, const Side& predicted) {
  if (!measured.tells_of_values || !predicted.tells_of_values)
    return measured.tells_of_values == predicted.tells_of_values ? Verdict::no_values : Verdict::no_values_on_one_side;
  const std::unordered_set<std::string_view> names(predicted.known.begin(), predicted.known.end());
  const bool share =
      std::any_of(measured.known.begin(), measured.known.end(), [&](const std::string& name) { return names.contains(name); });
  return share ? Verdict::comparable : Verdict::another_network;
}

}  // namespace liveset::compare
