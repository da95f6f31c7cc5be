#include "viewer/model/expectations.h"

#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "viewer/model/whatif.h"

namespace liveset::model {
namespace {

struct Figures {
  Outcome outcome;
  std::uint64_t peak_bytes = 0;  // of the logical ledger
};

std::optional<std::uint64_t> counter_bytes(const Outcome& outcome, CounterKind kind) {
  const CounterPeak* const peak = counter_peak(outcome.counters, kind);
  return peak == nullptr ? std::nullopt : std::optional(peak->bytes);
}

// Every counter, one line each; model_file.cpp refuses other names.
struct Counter {
  std::string_view name;
  std::optional<std::uint64_t> (*of)(const Figures& figures);
};
template <CounterKind kind>
std::optional<std::uint64_t> of_memory(const Figures& figures) {
  return counter_bytes(figures.outcome, kind);
}
constexpr std::array counters{Counter{"peak_ids", [](const Figures& figures) { return std::optional(figures.outcome.peak_ids); }},
                              Counter{"peak_bytes", [](const Figures& figures) { return std::optional(figures.peak_bytes); }},
                              Counter{"requested", of_memory<CounterKind::requested>},
                              Counter{"allocated", of_memory<CounterKind::allocated>},
                              Counter{"active", of_memory<CounterKind::active>},
                              Counter{"reserved", of_memory<CounterKind::reserved>},
                              Counter{"forward_cost", [](const Figures& figures) { return std::optional(figures.outcome.forward_cost); }}};

Error bad_model(std::string what, std::string hint) {
  return {ErrorKind::unreadable, "", {}, "bad model: " + std::move(what), std::move(hint)};
}

Result<Figures> figures_of(const Model& model, const Expectation& expectation) {
  const Result<Policy> policy = parse_policy(expectation.policy);
  if (!policy) return policy.error();
  const Result<Prediction> prediction = predict(model, *policy);
  if (!prediction) return prediction.error();
  Result<Outcome> found = outcome(model, *policy, *prediction);
  if (!found) return found.take_error();
  return Figures{std::move(*found), prediction->ledger.peak_bytes};
}

}  // namespace

bool CheckedExpectation::holds() const {
  const std::uint64_t apart = predicted > expected.value ? predicted - expected.value : expected.value - predicted;
  return apart == 0 || static_cast<double>(apart) <= expected.tolerance * static_cast<double>(expected.value);
}

Result<std::vector<CheckedExpectation>> check_expectations(const Model& model) {
  if (model.expectations.empty())
    return bad_model("it expects nothing", "add what it should predict: expect { policy: \"full\" counter: \"peak_ids\" value: 7 }");
  std::map<std::string, Figures> figures;
  std::vector<CheckedExpectation> checked;
  for (const Expectation& expectation : model.expectations) {
    if (figures.count(expectation.policy) == 0) {
      Result<Figures> found = figures_of(model, expectation);
      if (!found) return bad_model(expectation.policy_place + ": " + found.error().what, found.error().hint);
      figures.emplace(expectation.policy, std::move(*found));
    }
    const Counter* counter = counters.begin();
    while (counter != counters.end() && counter->name != expectation.counter) ++counter;
    const std::optional<std::uint64_t> predicted = counter == counters.end() ? std::nullopt : counter->of(figures.at(expectation.policy));
    if (!predicted)
      return bad_model(expectation.counter_place + ": the model does not tell of '" + expectation.counter + "'",
                       "allocated, active and reserved are told with physical { allocator: \"cuda\" }");
    checked.push_back({expectation, *predicted});
  }
  return checked;
}

}  // namespace liveset::model
