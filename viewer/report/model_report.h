// What a model predicts of a step's memory: its peaks, what lives at them, and the curve event by event. whatif, predict and compare share
// it.
#pragma once
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "viewer/model/whatif.h"
#include "viewer/report/text.h"

namespace liveset::report {

// Of a peak of requested with what is rounded (model::MemoryCurve::peak_is_rounded).
inline constexpr std::string_view rounded_reason =
    "requested is an estimate: of blocks that nothing is stated of (temporaries) the block's size counts, and what was asked for may be "
    "less";
// Of a peak that is an estimate (model::MemoryEvent::is_estimate); `of_new_states`: it is the optimizer's, in the step that makes its
// states.
std::string_view reason_of(bool of_new_states = false);

// Of model::names_no_layer().
inline constexpr std::string_view no_layer_reason = "names no layer: nothing runs again, as under save-all";

// Bytes by name of the class; without those of which nothing lives.
nlohmann::ordered_json held_classes_json(const ledger::ClassBytes& classes);
// peak, counters, costs, copies, phases, classes, parts, live: what one policy takes. Events are those of the memory curve. `in_time`:
// costs are nanoseconds and are called so (extra_time_ns; forward_time_ns, one forward without re-runs); else they are in the model's unit
// (extra_cost; forward_cost, re-runs included).
nlohmann::ordered_json outcome_json(const model::Outcome& outcome, model::CounterKind counter, bool in_time);
// The peak of each counter, and what lives at the peak of requested; empty where the model has no bytes.
std::string memory_text(const model::Outcome& outcome, const Style& style);
// "copies 2.00 MiB to the host and 2.00 MiB back; ..."; empty: nothing is copied.
std::string copies_text(const model::Outcome& outcome, const Style& style);

// A row for each allocation and free: event, phase, op that runs or ran last, value, change, requested bytes after it; in csv and md also
// the module, the microbatch, whether it is an estimate, and the bytes of each class. It has as many rows as the step has events.
void write_curve(std::ostream& out, const model::Model& model, const model::Prediction& prediction, TableFormat format, const Style& style);
// One JSON object: `head`'s fields, then static_bytes and curve[] of the same rows.
void write_curve_json(std::ostream& out, const model::Model& model, const model::Prediction& prediction,
                      const nlohmann::ordered_json& head);

}  // namespace liveset::report
