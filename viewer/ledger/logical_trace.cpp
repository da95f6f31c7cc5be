#include "viewer/ledger/logical_trace.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "viewer/ledger/retained.h"

namespace liveset::ledger {
namespace {

using trace::Kind;
using trace::Phase;

// What the chunks hold, read from their kinds alone, so that passes can leave out what says nothing.
struct Survey {
  std::vector<bool> logical;  // per chunk: value, scope or step events
  bool derived = false;       // some events speak of storages rather than of named values
};

bool is_value(Kind kind) { return kind >= Kind::value_create && kind <= Kind::value_mutate; }
bool is_logical(Kind kind) { return is_value(kind) || (kind >= Kind::step_begin && kind <= Kind::backward_end) || kind == Kind::storage; }

Result<Survey> survey_chunks(const trace::TraceFile& file) {
  constexpr std::uint8_t kind_bits = 0x7f;
  Survey survey;
  trace::Columns columns;
  for (std::size_t chunk = 0; chunk < file.chunks().size(); ++chunk) {
    if (Status status = file.read_chunk(chunk, 0, columns); !status) return status.take_error();
    bool logical = false;
    for (const std::uint8_t byte : columns.kind) {
      const Kind kind{static_cast<std::uint8_t>(byte & kind_bits)};
      logical = logical || is_logical(kind);
      // Programs that name values retain them too; a graph walk ends in backward_begin.
      survey.derived = survey.derived || kind == Kind::storage || kind == Kind::backward_begin;
    }
    survey.logical.push_back(logical);
  }
  return survey;
}

std::optional<LogicalKind> logical_kind(Kind kind) {
  switch (kind) {
    case Kind::value_create: return LogicalKind::create;
    case Kind::value_retain: return LogicalKind::keep;
    case Kind::value_drop: return LogicalKind::drop;
    case Kind::value_use: return LogicalKind::use;
    case Kind::value_remake: return LogicalKind::rerun;
    case Kind::value_merge: return LogicalKind::merge;
    case Kind::value_release: return LogicalKind::release;
    case Kind::value_alias: return LogicalKind::alias;
    case Kind::value_offload: return LogicalKind::offload;
    case Kind::value_prefetch: return LogicalKind::prefetch;
    case Kind::value_mutate: return LogicalKind::mutate;
    default: return std::nullopt;
  }
}

class TraceLedger {
 public:
  TraceLedger(const trace::Dictionary& dictionary, RetainedBlocks retained, const Range& range)
      : dictionary_(dictionary), retained_(std::move(retained)), range_(range) {
    for (const trace::Value& value : dictionary.values)
      if (value.group != 0) builder_.add_group(dictionary.string(value.group));
    value_of_.assign(dictionary.values.size(), no_index);
  }

  // False when the range has ended.
  bool visit(const trace::Event& event) {
    if (event.index >= range_.end) return false;
    builder_.set_keeping(event.index >= range_.first);
    if (is_value(event.kind) && event.value != 0) return value_event(event), true;
    switch (event.kind) {
      case Kind::step_begin: step_ = event.number; break;
      case Kind::step_end: step_ = no_number; break;
      case Kind::scope_begin: scope_begin(event); break;
      case Kind::scope_end: scope_end(event); break;
      case Kind::attribute: attribute(event); break;
      case Kind::backward_begin:
        builder_.mark_loss(kept_);
        kept_.clear();
        break;
      case Kind::alloc:
      case Kind::free_requested: block_event(event); break;
      case Kind::storage:
      case Kind::value_retain: keep_event(event); break;
      default: break;
    }
    return true;
  }

  LogicalLedger finish() { return builder_.finish(); }

 private:
  std::uint32_t value_of(std::uint32_t id) {
    // An id beyond the dictionary (a damaged file has such) must not make room for all below it.
    std::uint32_t& value = id < value_of_.size() ? value_of_[id] : unnamed_.try_emplace(id, no_index).first->second;
    if (value != no_index) return value;
    LogicalValue named;
    if (id < dictionary_.values.size()) {
      named.name = dictionary_.string(dictionary_.values[id].name);
      named.group = dictionary_.string(dictionary_.values[id].group);
      named.layer = dictionary_.values[id].layer;
    }
    if (named.name.empty()) named.name = "value" + std::to_string(id);
    return value = builder_.add_value(std::move(named));
  }

  void append(const trace::Event& event, LogicalKind kind, std::uint32_t value, std::uint64_t bytes = 0, std::int64_t layer = no_number,
              std::span<const std::uint32_t> reads = {}) {
    LogicalInput input;
    input.phase = event.phase;
    input.kind = kind;
    input.value = value;
    input.bytes = bytes;
    input.layer = layer;
    input.reads = reads;
    input.trace_event = event.index;
    input.step = step_;
    builder_.append(input);
  }

  void value_event(const trace::Event& event) {
    // A program whose loss names no use: what it holds when it turns back is what the loss left it with.
    if (event.phase == Phase::backward || event.phase == Phase::recompute) builder_.mark_loss();
    const std::optional<LogicalKind> kind = logical_kind(event.kind);
    if (!kind) return;
    reads_.clear();
    for (std::uint32_t i = 0; i < event.read_count; ++i) reads_.push_back(value_of(event.reads[i]));
    append(event, *kind, value_of(event.value), event.size, event.number, reads_);
  }

  // Values of an earlier block are never asked for again, so a block's value is added when it is born.
  void block_event(const trace::Event& event) {
    const auto block = retained_.blocks.find(event.allocation);
    if (block == retained_.blocks.end()) return;
    if (event.kind == Kind::free_requested) {
      const auto born = block_values_.find(event.allocation);
      if (born == block_values_.end()) return;
      append(event, LogicalKind::release, born->second);
      block_values_.erase(born);
      return;
    }
    LogicalValue value;
    value.name = block->second.name;
    value.bytes = block->second.bytes;
    value.memory_class = block->second.memory_class;
    value.derived = true;
    value.module = block->second.module;
    value.op = block->second.op;
    value.slot = block->second.slot;
    value.microbatch = block->second.microbatch;
    value.original_event = block->second.original_event;
    value.incarnation = std::max(block->second.incarnation, 1U) - 1;  // its rerun counts one on
    const std::uint32_t index = builder_.add_value(std::move(value));
    block_values_[event.allocation] = index;
    append(event, block->second.recomputed ? LogicalKind::rerun : LogicalKind::create, index, event.size);
  }

  void keep_event(const trace::Event& event) {
    while (next_keep_ < retained_.keeps.size() && retained_.keeps[next_keep_].event < event.index) ++next_keep_;
    if (next_keep_ == retained_.keeps.size() || retained_.keeps[next_keep_].event != event.index) return;
    const auto born = block_values_.find(retained_.keeps[next_keep_].allocation);
    if (born == block_values_.end()) return;
    append(event, LogicalKind::keep, born->second);
    kept_.push_back(born->second);
  }

  void scope_begin(const trace::Event& event) {
    const bool region = event.scope < dictionary_.scopes.size() && dictionary_.scopes[event.scope].kind == trace::ScopeKind::region;
    if (region)
      scopes_[event.thread].begin(event.scope,
                                  builder_.begin_region(std::string(dictionary_.string(dictionary_.scopes[event.scope].name))));
  }

  void scope_end(const trace::Event& event) {
    const auto open = scopes_.find(event.thread);
    if (open == scopes_.end()) return;
    open->second.end(event.scope, [&](std::uint32_t region) { builder_.end_region(region, event.phase, event.index, step_); });
  }

  void attribute(const trace::Event& event) {
    if (dictionary_.string(event.name).starts_with("standin.")) return;  // of the dry run, wherever it happened
    const auto open = scopes_.find(event.thread);
    if (open == scopes_.end() || open->second.empty() || open->second.key() != event.scope) return;
    builder_.set_attribute(open->second.back(), std::string(dictionary_.string(event.name)), std::string(dictionary_.string(event.text)));
  }

  const trace::Dictionary& dictionary_;
  RetainedBlocks retained_;
  Range range_;
  LogicalBuilder builder_;
  std::vector<std::uint32_t> value_of_;                       // dictionary id -> value
  std::unordered_map<std::uint32_t, std::uint32_t> unnamed_;  // the same for ids that the dictionary does not have
  std::vector<std::uint32_t> reads_;
  std::unordered_map<std::uint64_t, std::uint32_t> block_values_;       // allocation -> value, of those that live
  std::unordered_map<std::uint32_t, OpenStack<std::uint32_t>> scopes_;  // open regions, per thread
  std::vector<std::uint32_t> kept_;                                     // since the last backward began: what its graph walk states
  std::size_t next_keep_ = 0;
  std::int64_t step_ = no_number;
};

}  // namespace

Result<LogicalLedger> build_logical(const trace::TraceFile& file, const Range& range) {
  Result<Survey> survey = survey_chunks(file);
  if (!survey) return survey.take_error();
  RetainedBlocks retained;
  if (survey->derived) {
    Result<PhysicalLedger> physical = build_physical(file);
    if (!physical) return physical.take_error();
    const Result<Lineage> lineage = trace_lineage(file, *physical);
    if (!lineage) return lineage.error();
    RetainedFinder finder(file.dictionary(), *physical, *lineage);
    const auto visit = [&](const trace::Event& event) { return finder.visit(event), true; };
    if (Status status = trace::for_each_event(file, visit); !status) return status.take_error();
    retained = finder.finish();
  }
  const bool every_chunk = !retained.blocks.empty();
  TraceLedger ledger(file.dictionary(), std::move(retained), range);
  bool more = true;
  for (std::size_t chunk = 0; chunk < file.chunks().size() && more; ++chunk) {
    if (!every_chunk && !survey->logical[chunk]) continue;
    const auto visit = [&](const trace::Event& event) { return more = ledger.visit(event); };
    if (Status status = trace::for_each_event(file, chunk, chunk + 1, visit); !status) return status.take_error();
  }
  return ledger.finish();
}

}  // namespace liveset::ledger
