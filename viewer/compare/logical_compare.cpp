#include "viewer/compare/logical_compare.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "viewer/compare/align.h"

namespace liveset::compare {
namespace {

using ledger::LogicalEvent;
using ledger::LogicalKind;
using ledger::LogicalLedger;

// Same event: phase, kind, value, layer and reads, by name.
class Keys {
 public:
  std::uint32_t key_of(const LogicalLedger& ledger, const LogicalEvent& event) {
    std::string text = std::to_string(static_cast<int>(event.phase)) + "/" + std::to_string(static_cast<int>(event.kind)) + "/" +
                       std::to_string(event.layer) + "/" + ledger.values[event.value].name;
    for (const std::uint32_t read : ledger.reads_of(event)) text += "\n" + ledger.values[read].name;
    return ids_.emplace(std::move(text), static_cast<std::uint32_t>(ids_.size())).first->second;
  }

 private:
  std::unordered_map<std::string, std::uint32_t> ids_;
};

// Indices of the events that speak of values.
std::vector<std::uint64_t> value_events(const LogicalLedger& ledger) {
  std::vector<std::uint64_t> indices;
  for (std::uint64_t i = 0; i < ledger.events.size(); ++i)
    if (ledger.events[i].value != ledger::no_index) indices.push_back(i);
  return indices;
}

double relative(std::uint64_t a, std::uint64_t b) {
  return a == b ? 0 : static_cast<double>(std::max(a, b) - std::min(a, b)) / static_cast<double>(std::max(a, b));
}

double share(std::uint64_t part, std::uint64_t whole) {
  return part == 0 ? 0 : static_cast<double>(part) / static_cast<double>(std::max<std::uint64_t>(whole, 1));
}

std::uint64_t gap(std::uint64_t a, std::uint64_t b) { return std::max(a, b) - std::min(a, b); }

void compare_events(const LogicalLedger& predicted, const LogicalLedger& recorded, LogicalComparison& result) {
  const std::vector<std::uint64_t> left = value_events(predicted), right = value_events(recorded);
  Keys keys;
  std::vector<std::uint32_t> left_keys, right_keys;
  for (const std::uint64_t i : left) left_keys.push_back(keys.key_of(predicted, predicted.events[i]));
  for (const std::uint64_t i : right) right_keys.push_back(keys.key_of(recorded, recorded.events[i]));
  std::uint64_t most_ids = 0, most_bytes = 0;
  for (const auto& [l, r] : align(left_keys, right_keys)) {
    AlignedEvent row;
    if (l != absent) row.predicted = left[l];
    if (r != absent) row.recorded = right[r];
    result.predicted_only += r == absent;
    result.recorded_only += l == absent;
    if (row.same_event()) {
      const LogicalEvent &a = predicted.events[row.predicted], &b = recorded.events[row.recorded];
      row.same_live = a.live_ids == b.live_ids && a.live_bytes == b.live_bytes;
      result.live_differs += !row.same_live;
      most_ids = std::max(most_ids, gap(a.live_ids, b.live_ids));
      most_bytes = std::max(most_bytes, gap(a.live_bytes, b.live_bytes));
    }
    result.rows.push_back(row);
  }
  RelativeErrors& errors = result.errors;
  errors.events = share(result.predicted_only + result.recorded_only, std::max(left.size(), right.size()));
  errors.peak_ids = relative(predicted.peak_ids, recorded.peak_ids);
  errors.peak_bytes = relative(predicted.peak_bytes, recorded.peak_bytes);
  if (predicted.counts_layers() && recorded.counts_layers()) errors.layers = relative(predicted.forward_layers, recorded.forward_layers);
  errors.live_ids = share(most_ids, std::max(predicted.peak_ids, recorded.peak_ids));
  errors.live_bytes = share(most_bytes, std::max(predicted.peak_bytes, recorded.peak_bytes));
}

// What each value was made in, by its last create or rerun up to the loss.
std::vector<trace::Phase> birth_phases(const LogicalLedger& ledger) {
  std::vector<trace::Phase> phases(ledger.values.size(), trace::Phase::other);
  const std::uint64_t end = std::min<std::uint64_t>(ledger.loss_event, ledger.events.size());
  for (std::uint64_t i = 0; i < end; ++i) {
    const LogicalEvent& event = ledger.events[i];
    if (event.value != ledger::no_index && (event.kind == LogicalKind::create || event.kind == LogicalKind::rerun))
      phases[event.value] = event.phase;
  }
  return phases;
}

// What only one side has, as multisets of keys.
template <class Key>
void subtract(const std::vector<HeldValue>& from, const std::vector<HeldValue>& what, Key key, std::vector<HeldValue>& rest) {
  std::map<decltype(key(from[0])), std::uint64_t> count;
  for (const HeldValue& value : what) ++count[key(value)];
  for (const HeldValue& value : from) {
    std::uint64_t& left = count[key(value)];
    if (left == 0)
      rest.push_back(value);
    else
      --left;
  }
}

void compare_held(const LogicalLedger& predicted, const LogicalLedger& recorded, LogicalComparison& result) {
  HeldComparison& held = result.held;
  for (const std::uint32_t id : predicted.held_at_loss) held.predicted.push_back({predicted.values[id].name, predicted.values[id].bytes});
  const std::vector<trace::Phase> births = birth_phases(recorded);
  for (const std::uint32_t id : recorded.held_at_loss) {
    const ledger::LogicalValue& value = recorded.values[id];
    if (value.derived) held.by_name = false;
    const bool of_the_loss = value.derived && births[id] == trace::Phase::loss;
    (of_the_loss ? held.of_the_loss : held.recorded).push_back({value.name, value.bytes});
  }
  if (held.by_name) {
    const auto key = [](const HeldValue& value) { return std::make_pair(value.name, value.bytes); };
    subtract(held.predicted, held.recorded, key, held.only_predicted);
    subtract(held.recorded, held.predicted, key, held.only_recorded);
  } else {
    const auto key = [](const HeldValue& value) { return value.bytes; };
    subtract(held.predicted, held.recorded, key, held.only_predicted);
    subtract(held.recorded, held.predicted, key, held.only_recorded);
  }
  result.errors.held =
      share(std::max(held.only_predicted.size(), held.only_recorded.size()), std::max(held.predicted.size(), held.recorded.size()));
}

}  // namespace

LogicalComparison compare_logical(const LogicalLedger& predicted, const LogicalLedger& recorded, bool held_only) {
  LogicalComparison result;
  result.held_only = held_only || !recorded.names_values();
  if (!result.held_only) compare_events(predicted, recorded, result);
  compare_held(predicted, recorded, result);
  const RelativeErrors& errors = result.errors;
  result.error =
      std::max({errors.events, errors.peak_ids, errors.peak_bytes, errors.layers, errors.live_ids, errors.live_bytes, errors.held});
  return result;
}

}  // namespace liveset::compare
