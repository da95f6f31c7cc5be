#include "viewer/report/model_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "viewer/report/json_stream.h"
#include "viewer/report/or_null.h"

namespace liveset::report {
namespace {

using model::CounterKind;
using model::CounterPeak;
using model::MemoryCurve;
using model::MemoryEvent;
using nlohmann::ordered_json;

bool is_estimate(const model::Outcome& outcome, CounterKind kind) {
  return outcome.is_estimate[static_cast<std::size_t>(kind)] ||
         (kind == CounterKind::requested ? outcome.peak_is_rounded : !outcome.counters.cache_estimate.empty());
}

ordered_json peak_json(const model::Outcome& outcome, CounterKind kind, const CounterPeak& peak) {
  const ordered_json event = peak.event == model::never ? ordered_json(nullptr) : ordered_json(peak.event);
  return {{"bytes", peak.bytes},
          {"event", event},
          {"memory_event", event},  // as compare calls it beside the ledger's events
          {"phase", trace::phase_name(peak.phase)},
          {"estimate", outcome.of_estimates || is_estimate(outcome, kind)}};
}

// Goes through a memory curve: what the row of an event says.
class Curve {
 public:
  Curve(const model::Model& model, const model::Prediction& prediction) : model_(model), prediction_(prediction) {
    classes_ = model::class_bytes_after(memory(), model::never);
    requested_ = memory().static_bytes;
    for (std::size_t index = 0; index < classes_.size(); ++index) occurs_[index] = classes_[index] != 0;
    for (const model::PredictedBlock& block : memory().blocks) occurs_[static_cast<std::size_t>(block.memory_class)] = true;
  }

  const MemoryCurve& memory() const { return prediction_.memory; }
  // Classes that some event holds.
  bool occurs(std::size_t index) const { return occurs_[index]; }

  void apply(const MemoryEvent& event) {
    block_ = &memory().blocks[event.block];
    op_ = event.op == model::none ? nullptr : &model_.ops[event.op];
    std::uint64_t& of_class = classes_[static_cast<std::size_t>(block_->memory_class)];
    of_class = event.alloc ? of_class + block_->bytes : of_class - block_->bytes;
    requested_ = event.alloc ? requested_ + block_->bytes : requested_ - block_->bytes;
    change_ = static_cast<std::int64_t>(event.alloc ? block_->bytes : ~block_->bytes + 1);
  }

  bool is_estimate(const MemoryEvent& event) const { return event.is_estimate || !model_.estimate.empty(); }
  std::string op() const { return op_ == nullptr ? "" : op_->name.empty() ? op_->id : op_->name; }
  std::string module() const { return op_ == nullptr || op_->module == model::none ? "" : model_.modules[op_->module]; }
  std::string value() const { return prediction_.tensor_name(model_, block_->tensor); }
  std::uint32_t microbatch() const { return block_->microbatch; }
  std::int64_t change() const { return change_; }
  std::uint64_t requested() const { return requested_; }
  const ledger::ClassBytes& classes() const { return classes_; }

 private:
  const model::Model& model_;
  const model::Prediction& prediction_;
  ledger::ClassBytes classes_{};
  std::array<bool, trace::class_count> occurs_{};
  const model::PredictedBlock* block_ = nullptr;
  const model::Op* op_ = nullptr;
  std::uint64_t requested_ = 0;
  std::int64_t change_ = 0;
};

// "aten.addmm" is "addmm" where there is little room.
std::string_view op_name(std::string_view name) {
  constexpr std::string_view usual = "aten.";
  return name.substr(0, usual.size()) == usual ? name.substr(usual.size()) : name;
}

}  // namespace

std::string_view reason_of(bool of_new_states) {
  return of_new_states ? "an estimate: all that the optimizer makes in this step is counted from its start on"
                       : "an estimate: the step without regions does not tell all that a region holds, nor when all of it goes";
}

ordered_json held_classes_json(const ledger::ClassBytes& classes) {
  ordered_json json = ordered_json::object();
  for (std::size_t index = 0; index < classes.size(); ++index)
    if (classes[index] != 0) json[std::string(trace::class_name(static_cast<trace::MemoryClass>(index)))] = classes[index];
  return json;
}

ordered_json outcome_json(const model::Outcome& outcome, CounterKind counter, bool in_time) {
  ordered_json json{{"policy", outcome.policy}};
  ordered_json peak{{"counter", model::counter_name(counter)}};
  if (const CounterPeak* const found = model::counter_peak(outcome.counters, counter); found != nullptr)
    peak.update(peak_json(outcome, counter, *found));
  json["peak"] = peak;
  json["counters"] = ordered_json::object();
  for (const CounterKind kind : model::counter_kinds)
    if (const CounterPeak* const found = outcome.counters.of(kind); found != nullptr)
      json["counters"][std::string(model::counter_name(kind))] = peak_json(outcome, kind, *found);
  json["static_bytes"] = outcome.static_bytes;
  json[in_time ? "extra_time_ns" : "extra_cost"] = outcome.extra_cost;
  if (in_time)
    json["forward_time_ns"] = outcome.single_forward_cost();
  else
    json["forward_cost"] = outcome.forward_cost;
  json["copies"] = nullptr;
  if (outcome.copies())
    json["copies"] = {{"to_host_bytes", outcome.offloaded_bytes}, {"to_device_bytes", outcome.prefetched_bytes}, {"time_ns", nullptr}};
  json["phases"] = ordered_json::object();
  for (std::size_t phase = 0; phase < trace::phase_count; ++phase)
    if (outcome.phase_peak[phase] != 0)
      json["phases"][std::string(trace::phase_name(static_cast<trace::Phase>(phase)))] = {
          {"peak_bytes", outcome.phase_peak[phase]},
          {"estimate", outcome.of_estimates || outcome.phase_is_estimate[phase] || outcome.phase_is_rounded[phase]}};
  json["classes"] = held_classes_json(outcome.class_bytes);
  json["parts"] = ordered_json::array();
  for (const model::PeakPart& part : outcome.parts) {
    json["parts"].push_back(
        {{"name", part.name}, {"class", trace::class_name(part.memory_class)}, {"count", part.count}, {"bytes", part.bytes}});
    if (part.formula.formula.empty()) continue;
    json["parts"].back()["formula"] = part.formula.formula;
    json["parts"].back()["source"] = part.formula.source;
  }
  json["live"] = ordered_json::array();
  for (const model::LiveTensor& tensor : outcome.live)
    json["live"].push_back({{"name", tensor.name}, {"class", trace::class_name(tensor.memory_class)}, {"bytes", tensor.bytes}});
  json["live_left_out"] = {{"count", outcome.live_left_out}, {"bytes", outcome.bytes_left_out}};
  return json;
}

std::string copies_text(const model::Outcome& outcome, const Style& style) {
  if (!outcome.copies()) return "";
  return "copies " + format_bytes(outcome.offloaded_bytes, style.exact_bytes) + " to the host and " +
         format_bytes(outcome.prefetched_bytes, style.exact_bytes) + " back; how long that takes is not known";
}

std::string memory_text(const model::Outcome& outcome, const Style& style) {
  if (outcome.counters.requested.bytes == 0) return "";
  Table peaks({{"peak", true}, {"counter"}, {"in"}}, TableFormat::text, style);
  for (const CounterKind kind : model::counter_kinds)
    if (const CounterPeak* const peak = outcome.counters.of(kind); peak != nullptr)
      peaks.row({Cell::bytes(peak->bytes), Cell::words(model::counter_name(kind)),
                 Cell::words(std::string(peak->event == model::never ? "all phases alike" : trace::phase_name(peak->phase)) +
                             (is_estimate(outcome, kind) ? ", an estimate" : ""))});
  Table classes({{"at that of requested", true}, {"of it", true}, {"holds"}}, TableFormat::text, style);
  for (std::size_t index = 0; index < outcome.class_bytes.size(); ++index)
    if (const std::uint64_t bytes = outcome.class_bytes[index]; bytes != 0)
      classes.row({Cell::bytes(bytes), Cell::percent(bytes, outcome.counters.requested.bytes),
                   Cell::words(trace::class_name(static_cast<trace::MemoryClass>(index)))});
  std::string text = "memory of the step, " + format_bytes(outcome.static_bytes, style.exact_bytes) + " of it static\n" + peaks.render() +
                     "\n" + classes.render();
  const auto add = [&](std::string_view line) { text += "  " + wrapped(line, style, 2) + "\n"; };
  if (outcome.counters.outside != 0)
    add(format_bytes(outcome.counters.outside, style.exact_bytes) + " outside of the allocator come on top (context, communication)");
  if (std::find(outcome.is_estimate.begin(), outcome.is_estimate.end(), true) != outcome.is_estimate.end()) add(reason_of());
  if (outcome.peak_is_rounded) add(rounded_reason);
  if (!outcome.counters.cache_estimate.empty()) add(outcome.counters.cache_estimate);
  if (outcome.copies()) add(copies_text(outcome, style));
  if (outcome.names_no_layer) add(outcome.policy + " " + std::string(no_layer_reason));
  return text;
}

void write_curve(std::ostream& out, const model::Model& model, const model::Prediction& prediction, TableFormat format,
                 const Style& style) {
  Curve curve(model, prediction);
  const bool text = format == TableFormat::text;
  constexpr std::size_t op_width = 10, change_width = 12, bytes_width = 11, phase_width = 9, separators = 12;
  const std::size_t event_width = std::max<std::size_t>(format_count(curve.memory().events.size()).size(), 5);
  const std::size_t others = event_width + phase_width + op_width + change_width + bytes_width + separators;
  const std::size_t name_width = std::max<std::size_t>(style.columns > others ? style.columns - others : 0, 15);
  std::vector<Column> columns{{"event", true, text ? event_width : 0}, {"phase", false, text ? phase_width : 0}};
  if (!text) columns.insert(columns.end(), {{"microbatch", true}, {"module"}});
  columns.insert(columns.end(), {{"op", false, text ? op_width : 0},
                                 {"value", false, text ? name_width : 0},
                                 {"change", true, text ? change_width : 0},
                                 {"requested", true, text ? bytes_width : 0}});
  if (!text) {
    columns.push_back({"estimate"});
    for (std::size_t index = 0; index < trace::class_count; ++index)
      if (curve.occurs(index)) columns.push_back({std::string(trace::class_name(static_cast<trace::MemoryClass>(index))), true});
  }
  const Table table(columns, format, style);
  out << table.render_titles();
  for (std::size_t i = 0; i < curve.memory().events.size(); ++i) {
    const MemoryEvent& event = curve.memory().events[i];
    curve.apply(event);
    std::vector<Cell> row{Cell::count(i), Cell::words(trace::phase_name(event.phase))};
    if (!text) row.insert(row.end(), {Cell::count(curve.microbatch()), Cell::words(curve.module())});
    row.insert(row.end(), {Cell::words(text ? op_name(curve.op()) : curve.op()),
                           Cell::words(text ? short_name(curve.value(), name_width) : curve.value()),
                           Cell::words(text ? format_change(curve.change(), style.exact_bytes) : std::to_string(curve.change())),
                           Cell::bytes(curve.requested())});
    if (!text) {
      row.push_back(Cell::words(curve.is_estimate(event) ? "yes" : ""));
      for (std::size_t index = 0; index < trace::class_count; ++index)
        if (curve.occurs(index)) row.push_back(Cell::bytes(curve.classes()[index]));
    }
    out << table.render_row(row);
  }
}

void write_curve_json(std::ostream& out, const model::Model& model, const model::Prediction& prediction, const ordered_json& head) {
  Curve curve(model, prediction);
  JsonStream stream(out);
  stream.members(head);
  stream.members({{"static_bytes", curve.memory().static_bytes}});
  std::uint64_t index = 0;
  stream.list("curve", curve.memory().events, [&](const MemoryEvent& event) -> ordered_json {
    curve.apply(event);
    return {{"event", index++},
            {"phase", trace::phase_name(event.phase)},
            {"microbatch", curve.microbatch()},
            {"module", or_null(curve.module())},
            {"op", or_null(curve.op())},
            {"value", curve.value()},
            {"change", curve.change()},
            {"requested", curve.requested()},
            {"estimate", curve.is_estimate(event)},
            {"classes", held_classes_json(curve.classes())}};
  });
}

}  // namespace liveset::report
