#include "viewer/model/whatif.h"

#include <algorithm>
#include <map>
#include <utility>

#include "viewer/ledger/value_names.h"

namespace liveset::model {

ledger::ClassBytes class_bytes_after(const MemoryCurve& memory, std::uint64_t event, std::uint64_t (*size)(std::uint64_t)) {
  ledger::ClassBytes bytes{};
  const auto add = [&](trace::MemoryClass memory_class, std::uint64_t asked) {
    bytes[static_cast<std::size_t>(memory_class)] += size == nullptr ? asked : size(asked);
  };
  for (const StaticStorage& storage : memory.statics) add(storage.memory_class, storage.bytes);
  if (event == never) return bytes;
  for (const PredictedBlock& block : memory.blocks)
    if (block.made <= event && block.freed > event) add(block.memory_class, block.bytes);
  return bytes;
}

const CounterPeak* counter_peak(const PredictedCounters& counters, CounterKind kind) {
  if (const CounterPeak* const found = counters.of(kind); found != nullptr) return found;
  return kind == CounterKind::reserved ? nullptr : &counters.requested;
}

namespace {

void add_largest_live(const Model& model, const Prediction& prediction, Outcome& out) {
  const MemoryCurve& memory = prediction.memory;
  std::vector<const PredictedBlock*> blocks;
  if (memory.peak_event != never)
    for (const PredictedBlock& block : memory.blocks)
      if (block.made <= memory.peak_event && block.freed > memory.peak_event) blocks.push_back(&block);
  std::stable_sort(blocks.begin(), blocks.end(), [](const PredictedBlock* a, const PredictedBlock* b) { return a->bytes > b->bytes; });
  for (const PredictedBlock* const block : blocks) {
    if (out.live.size() < Outcome::max_live) {
      out.live.push_back(
          {ledger::incarnation_name(prediction.tensor_name(model, block->tensor), block->incarnation), block->memory_class, block->bytes});
    } else {
      ++out.live_left_out;
      out.bytes_left_out += block->bytes;
    }
  }
}

// "layer.3/softmax output" and "layer.4/softmax output#2" are the same part.
std::string_view part_name(std::string_view id) { return ledger::without_number(id.substr(id.rfind('/') + 1)); }

std::vector<PeakPart> parts_at_peak(const Model& model, const Prediction& prediction) {
  const MemoryCurve& memory = prediction.memory;
  std::map<std::pair<std::string, trace::MemoryClass>, PeakPart> parts;
  const auto add = [&](std::string_view id, trace::MemoryClass memory_class, std::uint64_t bytes) {
    PeakPart& part = parts[{std::string(part_name(id)), memory_class}];
    ++part.count;
    part.bytes += bytes;
  };
  // Of a recorded step there are hundreds, whose names say where they are.
  for (const StaticStorage& storage : memory.statics)
    add(model.formulas.contains(storage.id) ? std::string_view(storage.id) : trace::class_name(storage.memory_class), storage.memory_class,
        storage.bytes);
  if (memory.peak_event != never)
    for (const PredictedBlock& block : memory.blocks)
      if (block.made <= memory.peak_event && block.freed > memory.peak_event)
        add(prediction.tensor_name(model, block.tensor), block.memory_class, block.bytes);
  std::vector<PeakPart> out;
  for (auto& [key, part] : parts) {
    part.name = key.first;
    part.memory_class = key.second;
    if (const auto found = model.formulas.find(key.first); found != model.formulas.end()) part.formula = found->second;
    out.push_back(std::move(part));
  }
  std::stable_sort(out.begin(), out.end(), [](const PeakPart& a, const PeakPart& b) { return a.bytes > b.bytes; });
  return out;
}

}  // namespace

Result<Outcome> outcome(const Model& model, const Policy& policy, const PredictOptions& options) {
  Result<Prediction> prediction = predict(model, policy, options);
  if (!prediction) return prediction.take_error();
  return outcome(model, policy, *prediction);
}

Result<Outcome> outcome(const Model& model, const Policy& policy, const Prediction& prediction) {
  Result<PredictedCounters> counters = predict_counters(model, policy, prediction.memory);
  if (!counters) return counters.take_error();
  Outcome out;
  out.policy = policy.text;
  out.names_no_layer = names_no_layer(model, policy);
  out.of_estimates = !model.estimate.empty();
  out.counters = *counters;
  const MemoryCurve& memory = prediction.memory;
  for (const CounterKind kind : counter_kinds)
    if (const CounterPeak* const peak = counter_peak(out.counters, kind); peak != nullptr && peak->event < memory.events.size())
      out.is_estimate[static_cast<std::size_t>(kind)] =
          peak == &out.counters.requested ? memory.peak_is_estimate : memory.may_be_higher || memory.events[peak->event].is_estimate;
  // When the cache grew to what is reserved is not known, and it depends on all that went before.
  bool& reserved = out.is_estimate[static_cast<std::size_t>(CounterKind::reserved)];
  reserved = out.counters.reserved &&
             (reserved || out.is_estimate[static_cast<std::size_t>(CounterKind::allocated)] || memory.order_is_estimate());
  std::copy(std::begin(memory.phase_is_estimate), std::end(memory.phase_is_estimate), std::begin(out.phase_is_estimate));
  out.peak_is_rounded = memory.peak_is_rounded;
  std::copy(std::begin(memory.phase_is_rounded), std::end(memory.phase_is_rounded), std::begin(out.phase_is_rounded));
  out.static_bytes = memory.static_bytes;
  std::copy(std::begin(prediction.memory.phase_peak), std::end(prediction.memory.phase_peak), std::begin(out.phase_peak));
  out.forward_cost = prediction.forward_cost;
  out.extra_cost = prediction.extra_cost;
  out.offloaded_bytes = prediction.offloaded_bytes;
  out.prefetched_bytes = prediction.prefetched_bytes;
  out.peak_ids = prediction.ledger.peak_ids;
  out.class_bytes = class_bytes_after(prediction.memory, prediction.memory.peak_event);
  out.parts = parts_at_peak(model, prediction);
  add_largest_live(model, prediction, out);
  return out;
}

bool names_no_layer(const Model& model, const Policy& policy) {
  if (policy.kind != Policy::Kind::over && policy.kind != Policy::Kind::under) return false;
  const Result<Regions> regions = regions_of(model, policy);
  return regions && regions->recomputed.empty();
}

std::vector<Policy> usual_policies(const Model& model) {
  std::vector<std::string> texts{"save-all", "full", "sqrt"};
  const std::uint64_t layers = model.units.size();
  for (const std::uint64_t length : {std::uint64_t{2}, std::uint64_t{5}, layers})
    if (length > 1 && length <= layers) texts.push_back("segment:" + std::to_string(length));
  std::vector<Policy> policies;
  for (const std::string& text : texts) {
    const bool known = std::any_of(policies.begin(), policies.end(), [&](const Policy& policy) { return policy.text == text; });
    if (!known) policies.push_back(std::move(*parse_policy(text)));
  }
  return policies;
}

}  // namespace liveset::model
