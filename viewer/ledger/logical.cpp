#include "viewer/ledger/logical.h"

#include <algorithm>
#include <array>

namespace liveset::ledger {
namespace {

constexpr std::size_t broken_shown = 100;

bool makes_live(LogicalKind kind) { return kind == LogicalKind::create || kind == LogicalKind::rerun || kind == LogicalKind::alias; }
bool makes_dead(LogicalKind kind) { return kind == LogicalKind::drop || kind == LogicalKind::release; }

}  // namespace

std::string_view logical_kind_name(LogicalKind kind) {
  static constexpr std::array<std::string_view, 12> names{"create",  "keep",  "drop",    "rerun",    "merge",  "use",
                                                          "release", "alias", "offload", "prefetch", "mutate", "region"};
  return names[static_cast<std::size_t>(kind)];
}

void LiveSet::apply(const LogicalEvent& event) {
  if (event.value == no_index) return;
  if (makes_live(event.kind)) ids_.insert(event.value);
  if (makes_dead(event.kind)) ids_.erase(event.value);
}

std::vector<std::uint32_t> live_after(const LogicalLedger& ledger, std::uint64_t index) {
  LiveSet live(ledger);
  for (std::uint64_t i = 0; i <= index && i < ledger.events.size(); ++i) live.apply(ledger.events[i]);
  return {live.ids().begin(), live.ids().end()};
}

std::uint32_t LogicalBuilder::add_value(LogicalValue value) {
  State state;
  if (!value.group.empty()) state.group = add_group(value.group);
  states_.push_back(state);
  ledger_.values.push_back(std::move(value));
  return static_cast<std::uint32_t>(ledger_.values.size() - 1);
}

std::uint32_t LogicalBuilder::add_group(std::string_view name) {
  const auto found =
      std::find_if(ledger_.groups.begin(), ledger_.groups.end(), [&](const LogicalGroup& group) { return group.name == name; });
  if (found != ledger_.groups.end()) return static_cast<std::uint32_t>(found - ledger_.groups.begin());
  ledger_.groups.push_back({std::string(name)});
  groups_.push_back({});
  return static_cast<std::uint32_t>(ledger_.groups.size() - 1);
}

void LogicalBuilder::set_keeping(bool keeping) {
  if (keeping && !keeping_ && ledger_.events.empty()) {
    ledger_.opening_live.assign(live_.begin(), live_.end());
    ledger_.opening_ids = live_ids_;
    ledger_.opening_bytes = live_bytes_;
  }
  keeping_ = keeping;
}

std::uint32_t LogicalBuilder::new_storage(std::uint64_t bytes) {
  if (free_storages_.empty()) {
    storages_.push_back({bytes, 0});
    return static_cast<std::uint32_t>(storages_.size() - 1);
  }
  const std::uint32_t storage = free_storages_.back();
  free_storages_.pop_back();
  storages_[storage] = {bytes, 0};
  return storage;
}

void LogicalBuilder::make_live(std::uint32_t value, std::uint32_t storage) {
  State& state = states_[value];
  if (state.life == Life::live) make_dead(value, Life::released);  // a rule was broken; never count an id twice
  state.life = Life::live;
  state.storage = storage;
  live_.insert(value);
  const bool first = storages_[storage].holders++ == 0;
  if (!ledger_.values[value].counted) return;
  ++live_ids_;
  if (first) live_bytes_ += storages_[storage].bytes;
  if (state.group == no_index) return;
  GroupState& group = groups_[state.group];
  ++group.ids;
  group.bytes += ledger_.values[value].bytes;
  for (const std::uint32_t region : open_regions_) {
    auto& most = regions_[region].region.group_live;
    if (most.size() <= state.group) most.resize(state.group + 1);
    most[state.group] = std::max(most[state.group], group.ids);
  }
}

void LogicalBuilder::make_dead(std::uint32_t value, Life life) {
  State& state = states_[value];
  if (state.life != Life::live) return;
  if (storages_[state.storage].holders == 1) move(value, false);
  state.life = life;
  live_.erase(value);
  Storage& storage = storages_[state.storage];
  const bool last = --storage.holders == 0;
  if (last) free_storages_.push_back(state.storage);
  state.storage = no_index;
  if (!ledger_.values[value].counted) return;
  live_ids_ -= 1 + state.copies;
  live_bytes_ -= state.copy_bytes + (last ? storage.bytes : 0);
  state.copies = 0;
  state.copy_bytes = 0;
  if (state.group == no_index) return;
  --groups_[state.group].ids;
  groups_[state.group].bytes -= ledger_.values[value].bytes;
}

void LogicalBuilder::break_rule(const LogicalInput& input, const char* what) {
  if (!keeping_) return;
  ++ledger_.broken_count;
  if (ledger_.broken.size() < broken_shown)
    ledger_.broken.push_back(
        {ledger_.events.size(), std::string(logical_kind_name(input.kind)) + " " + ledger_.values[input.value].name + ": " + what});
}

void LogicalBuilder::check_reads(const LogicalInput& input) {
  for (const std::uint32_t read : input.reads)
    if (states_[read].life != Life::live)
      break_rule(input, states_[read].life == Life::released ? "reads a value after its release" : "reads a value that is not live");
}

void LogicalBuilder::merge(const LogicalInput& input) {
  State& state = states_[input.value];
  if (state.life != Life::live) {
    break_rule(input, "merged with a value that is not live");
    make_live(input.value, new_storage(ledger_.values[input.value].bytes));
    return;
  }
  if (!merge_copies_ || !ledger_.values[input.value].counted) return;
  ++state.copies;
  state.copy_bytes += ledger_.values[input.value].bytes;
  ++live_ids_;
  live_bytes_ += ledger_.values[input.value].bytes;
}

// Values that share a storage move with it.
void LogicalBuilder::move(std::uint32_t value, bool away) {
  if (states_[value].life != Life::live || (away && !ledger_.values[value].counted)) return;
  Storage& storage = storages_[states_[value].storage];
  if (storage.away == away) return;
  storage.away = away;
  away_bytes_ = away ? away_bytes_ + storage.bytes : away_bytes_ - storage.bytes;
  ledger_.moves = true;
}

void LogicalBuilder::apply(const LogicalInput& input) {
  State& state = states_[input.value];
  LogicalValue& value = ledger_.values[input.value];
  const bool live = state.life == Life::live;
  switch (input.kind) {
    case LogicalKind::create:
    case LogicalKind::rerun:
      if (live) {
        break_rule(input, "made although it is live");
        make_dead(input.value, Life::released);
      } else if (input.kind == LogicalKind::rerun && state.life != Life::dropped && !value.derived) {
        break_rule(input, "made again although it was never dropped");
      }
      if (input.bytes != 0) value.bytes = input.bytes;
      value.incarnation = input.kind == LogicalKind::rerun ? value.incarnation + 1 : 0;
      make_live(input.value, new_storage(value.bytes));
      break;
    case LogicalKind::alias: {
      const std::uint32_t source = input.reads.empty() ? no_index : states_[input.reads[0]].storage;
      if (live) break_rule(input, "made although it is live");
      if (!live) make_live(input.value, source != no_index ? source : new_storage(value.bytes));
      break;
    }
    case LogicalKind::merge: merge(input); break;
    case LogicalKind::drop:
    case LogicalKind::release:
      if (!live)
        break_rule(input, input.kind == LogicalKind::drop ? "dropped although it is not live" : "released although it is not live");
      make_dead(input.value, input.kind == LogicalKind::drop ? Life::dropped : Life::released);
      if (!live && input.kind == LogicalKind::release) state.life = Life::released;
      break;
    case LogicalKind::keep:
    case LogicalKind::offload:
    case LogicalKind::prefetch:
    case LogicalKind::mutate:
      if (!live) break_rule(input, "said of a value that is not live");
      if (input.kind == LogicalKind::offload || input.kind == LogicalKind::prefetch) move(input.value, input.kind == LogicalKind::offload);
      break;
    case LogicalKind::use:
    case LogicalKind::region: break;
  }
}

void LogicalBuilder::append(const LogicalInput& input) {
  if (input.value >= states_.size()) return;
  if (input.kind == LogicalKind::use && input.phase == trace::Phase::loss) mark_loss();
  check_reads(input);
  apply(input);
  const bool executes = input.kind == LogicalKind::create || input.kind == LogicalKind::rerun || input.kind == LogicalKind::merge;
  if (executes && !input.reads.empty() && keeping_) ++forward_layers_;
  store(input, no_index);
}

void LogicalBuilder::store(const LogicalInput& input, std::uint32_t region) {
  if (!keeping_) return;
  LogicalEvent event;
  event.live_ids = live_ids_;
  event.live_bytes = live_bytes_;
  event.away_bytes = away_bytes_;
  event.forward_layers = forward_layers_;
  event.trace_event = input.trace_event;
  event.step = input.step;
  event.value = input.value;
  event.region = region;
  event.layer = input.layer == no_number && input.value != no_index ? ledger_.values[input.value].layer : input.layer;
  event.reads_begin = static_cast<std::uint32_t>(ledger_.reads.size());
  event.read_count = static_cast<std::uint32_t>(input.reads.size());
  event.phase = input.phase;
  event.kind = input.kind;
  ledger_.reads.insert(ledger_.reads.end(), input.reads.begin(), input.reads.end());
  const std::uint64_t index = ledger_.events.size();
  if (live_ids_ > ledger_.peak_ids || index == 0) {
    ledger_.peak_ids = live_ids_;
    ledger_.peak_ids_event = index;
  }
  if (live_bytes_ > ledger_.peak_bytes || index == 0) {
    ledger_.peak_bytes = live_bytes_;
    ledger_.peak_bytes_event = index;
  }
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    ledger_.groups[i].peak_ids = std::max(ledger_.groups[i].peak_ids, groups_[i].ids);
    ledger_.groups[i].peak_bytes = std::max(ledger_.groups[i].peak_bytes, groups_[i].bytes);
  }
  ledger_.events.push_back(event);
}

void LogicalBuilder::mark_loss(std::span<const std::uint32_t> kept) {
  if (ledger_.has_loss || !keeping_) return;
  ledger_.has_loss = true;
  ledger_.loss_event = ledger_.events.size();
  const std::set<std::uint32_t> derived(kept.begin(), kept.end());
  for (const std::uint32_t value : live_)
    if (!ledger_.values[value].derived || derived.count(value) != 0) {
      ledger_.held_at_loss.push_back(value);
      ledger_.held_at_loss_bytes += ledger_.values[value].bytes;
    }
}

std::uint32_t LogicalBuilder::begin_region(std::string name) {
  OpenRegion region;
  region.open = true;
  region.region.name = std::move(name);
  for (const GroupState& group : groups_) region.region.group_live.push_back(group.ids);
  regions_.push_back(std::move(region));
  open_regions_.push_back(static_cast<std::uint32_t>(regions_.size() - 1));
  return open_regions_.back();
}

void LogicalBuilder::set_attribute(std::uint32_t region, std::string key, std::string json) {
  if (region < regions_.size() && regions_[region].open) regions_[region].region.attributes.emplace_back(std::move(key), std::move(json));
}

void LogicalBuilder::end_region(std::uint32_t region, trace::Phase phase, std::uint64_t trace_event, std::int64_t step) {
  if (region >= regions_.size() || !regions_[region].open) return;
  OpenRegion& ended = regions_[region];
  ended.open = false;
  open_regions_.erase(std::find(open_regions_.begin(), open_regions_.end(), region));
  if (!ended.region.attributes.empty() && keeping_) {
    LogicalInput input;
    input.phase = phase;
    input.kind = LogicalKind::region;
    input.trace_event = trace_event;
    input.step = step;
    ledger_.regions.push_back(std::move(ended.region));
    store(input, static_cast<std::uint32_t>(ledger_.regions.size() - 1));
  }
  ended.region = {};
  while (!regions_.empty() && !regions_.back().open) regions_.pop_back();
}

LogicalLedger LogicalBuilder::finish() {
  ledger_.forward_layers = forward_layers_;
  ledger_.live_at_end.assign(live_.begin(), live_.end());
  for (LogicalRegion& region : ledger_.regions) region.group_live.resize(ledger_.groups.size());
  return std::move(ledger_);
}

}  // namespace liveset::ledger
