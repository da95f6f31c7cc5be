#include "viewer/model/search.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "viewer/model/multilevel.h"
#include "viewer/model/selective_search.h"
#include "viewer/plan/frontier.h"
#include "viewer/plan/revolve.h"
#include "viewer/plan/segments.h"

namespace liveset::model {
namespace {

constexpr std::uint64_t exact_layers = 12;
constexpr std::uint64_t max_points = 32;
constexpr std::uint64_t max_candidate_ops = 20'000'000;  // ops that all candidates together may run

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

class Search {
 public:
  Search(const Model& model, const SearchOptions& options) : model_(model), options_(options) {}

  Result<SearchResult> run() {
    out_.lower_bound = peak_bound(model_, options_.predict);
    std::vector<std::string> keep_all;
    if (model_.rotor) keep_all = words(plan::text_of(plan::rotor_keep_all(model_.rotor->stages())));
    if (Status status = try_policy("save-all", std::move(keep_all)); !status) return status.take_error();
    if (Status status = given(); !status) return status.take_error();
    const Result<ChainOfLayers> chain = chain_of_layers(model_);
    if (chain) {
      if (Status status = rotor(chain->stages); !status) return status.take_error();
      if (!model_.rotor) {
        if (Status status = exact(chain->values); !status) return status.take_error();
        revolve();
        segment_lists(chain->values);
      }
    } else {
      out_.absent.push_back({"revolve, rotor, exact search", chain.error().what});
    }
    if (!model_.rotor) {
      segments();
      for (const std::string& policy : selective_policies(model_)) attempt(policy);
      regions();
    }
    rules_of_thumb();
    return finish();
  }

 private:
  // A candidate that cannot be is none; a model that contradicts itself shows under save-all.
  Status try_policy(const std::string& text, std::vector<std::string> operations = {}) {
    if (!seen_.insert(text).second || spent_ > max_candidate_ops) return Done{};
    const Result<Policy> policy = parse_policy(text);
    if (!policy) return policy.error();
    return add(text, predict(model_, *policy, options_.predict), std::move(operations));
  }
  Status add(const std::string& text, const Result<Prediction>& prediction, std::vector<std::string> operations) {
    if (!prediction) return prediction.error();
    ++out_.tried;
    spent_ += prediction->memory.events.size() + model_.ops.size();
    if (options_.progress) options_.progress(std::min(spent_, all_ops()), all_ops());
    found_.push_back(candidate(text, *prediction, std::move(operations)));
    return Done{};
  }
  static Candidate candidate(const std::string& text, const Prediction& prediction, std::vector<std::string> operations) {
    return {text,
            prediction.memory.peak_bytes,
            prediction.memory.peak_is_estimate,
            prediction.extra_cost,
            prediction.forward_cost,
            std::move(operations),
            false};
  }
  void attempt(const std::string& text) { (void)static_cast<bool>(try_policy(text)); }
  std::uint64_t all_ops() const { return max_candidate_ops + options_.regions.max_ops; }

  Result<Listed> listed(const Policy& policy) {
    const Result<Prediction> prediction = predict(model_, policy, options_.predict);
    if (!prediction) return prediction.error();
    Listed listed;
    listed.candidate = candidate(policy.text, *prediction, {});
    listed.to_host_bytes = prediction->offloaded_bytes;
    listed.to_device_bytes = prediction->prefetched_bytes;
    return listed;
  }
  Status given() {
    for (const Policy& policy : options_.given) {
      Result<Listed> each = listed(policy);
      if (!each) return each.take_error();
      out_.given.push_back(std::move(*each));
    }
    return Done{};
  }
  void rules_of_thumb() {
    const std::uint64_t layers = model_.units.size();
    for (const char* const text : {"full", "sqrt", "segment:5", "segment:10", "over:10MB", "under:5ms"}) {
      const Policy policy = *parse_policy(text);
      Listed rule;
      rule.candidate.policy = text;
      if (policy.kind == Policy::Kind::equal_segments && policy.number > layers) {
        rule.refused = "the model has " + std::to_string(layers) + (layers == 1 ? " layer" : " layers");
      } else if (policy.kind == Policy::Kind::under && !model_.costs_are_times()) {
        rule.refused = "the model's costs are no times";
      } else if (Result<Listed> each = listed(policy); each) {
        rule = std::move(*each);
      } else {
        rule.refused = each.error().what;
      }
      out_.rules.push_back(std::move(rule));
    }
  }

  // The table's budgets, at most max_points of them, and the one that was asked for.
  Status rotor(const plan::RotorChain& stages) {
    const std::uint64_t fixed = static_bytes(model_, options_.predict);
    std::uint64_t most = 0;
    for (const std::uint64_t bytes : stages.abar) most += bytes;
    for (const std::uint64_t bytes : stages.a) most += bytes;
    for (const std::uint64_t bytes : stages.delta) most += bytes;
    const Result<plan::RotorTable> table = plan::RotorTable::make(stages, most);
    if (!table) {
      if (model_.rotor) return table.error();
      out_.absent.push_back({"rotor", table.error().what});
      return Done{};
    }
    std::vector<std::uint64_t> budgets;
    const std::vector<plan::RotorTable::Step> steps = table->steps();
    const std::size_t stride = std::max<std::size_t>(1, steps.size() / max_points);
    for (std::size_t i = 0; i < steps.size(); i += stride) budgets.push_back(steps[i].budget);
    if (!steps.empty()) budgets.push_back(steps.back().budget);
    if (options_.budget && *options_.budget >= fixed) budgets.push_back(*options_.budget - fixed);
    for (const std::uint64_t budget : budgets) {
      const std::optional<plan::RotorPlan> plan = table->plan(budget);
      if (plan)
        if (Status status = try_policy("rotor:" + std::to_string(budget), words(plan::text_of(plan->operations))); !status && model_.rotor)
          return status.take_error();
    }
    if (!model_.rotor) return Done{};
    out_.least_is_exact = true;
    out_.least_of = "persistent schedules";
    out_.least_budget = table->least_budget() + fixed;
    out_.backward_cost = 0;
    for (const std::uint64_t cost : stages.ub) *out_.backward_cost += cost;
    return Done{};
  }

  Status exact(const plan::Chain& chain) {
    if (chain.layers() > exact_layers) {
      out_.absent.push_back({"exact search", "the model has " + std::to_string(chain.layers()) + " layers, and it is for up to " +
                                                 std::to_string(exact_layers)});
      return Done{};
    }
    const Result<plan::Frontier> frontier = plan::exact_frontier(chain);
    if (!frontier) return Done{};
    for (const plan::FrontierPoint& point : frontier->points) {
      Result<Schedule> schedule = schedule_of(model_, point.moves);
      if (!schedule) return schedule.take_error();
      std::vector<std::string> operations = words(plan::text_of(point.moves));
      std::string policy = "moves:" + operations.front();
      for (std::size_t i = 1; i < operations.size(); ++i) policy += "," + operations[i];
      if (Status status = add(policy, execute(model_, std::move(*schedule), options_.predict), std::move(operations)); !status)
        return status.take_error();
      found_.back().searched = true;
    }
    return Done{};
  }

  void revolve() {
    for (std::uint64_t snapshots = 1; snapshots < model_.units.size() && snapshots <= max_points; ++snapshots)
      attempt("revolve:" + std::to_string(snapshots));
  }

  static std::string listed(const std::vector<std::uint64_t>& lengths) {
    std::string text = "segments:";
    for (const std::uint64_t length : lengths) text += (text.back() == ':' ? "" : ",") + std::to_string(length);
    return text;
  }
  void segment_lists(const plan::Chain& chain) {
    if (const auto lengths = plan::best_one_level(chain); lengths) attempt(listed(*lengths));
    if (const auto lengths = plan::best_greedy_segments(chain); lengths) attempt(listed(*lengths));
  }

  void segments() {
    const std::uint64_t layers = model_.units.size();
    attempt("full");
    attempt("sqrt");
    for (std::uint64_t length = 1; length <= layers; length += length < max_points ? 1 : length / 4)
      attempt("segment:" + std::to_string(length));
    // Lengths that fall by one are the best of one level where layers are alike: the last of them need not be run again at once.
    for (std::uint64_t most = 2; most < layers && most <= max_points; ++most) {
      std::vector<std::uint64_t> lengths;
      std::uint64_t left = layers;
      for (std::uint64_t length = most; left > 0; length = std::max<std::uint64_t>(1, length - 1)) {
        lengths.push_back(std::min(length, left));
        left -= lengths.back();
      }
      if (lengths.size() <= 1000) attempt(listed(lengths));
    }
  }

  // Sets of modules.
  void regions() {
    RegionSearchOptions wanted;
    wanted.budget = options_.budget;
    wanted.statics = static_bytes(model_, options_.predict);
    wanted.limits = options_.regions;
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    const RegionSearchResult result = search_regions(model_, wanted, [&](const std::string& text) -> std::optional<plan::Figures> {
      seen_.insert(text);
      const Result<Policy> policy = parse_policy(text);
      if (!policy || !add(text, predict(model_, *policy, options_.predict), {})) return std::nullopt;
      const plan::Figures figures{found_.back().peak_bytes, found_.back().extra_cost};
      least = std::min(least, figures.peak);
      return figures;
    });
    out_.modules = result.modules;
    if (result.all_sets) least_of_sets_ = least;
  }

  Result<SearchResult> finish() {
    for (const std::vector<Listed>* const list : {&out_.given, &out_.rules})
      for (const Listed& each : *list)
        if (each.refused.empty() && !each.copies()) found_.push_back(each.candidate);
    // Of equal ones the simplest to follow: regions before schedules of several levels, those before moves, and what was tried first.
    const auto rank = [this](const Candidate& each) {
      const int effort = each.policy.starts_with("moves:") ? 2 : !model_.rotor && !each.operations.empty() ? 1 : 0;
      return std::tuple(each.peak_bytes, each.extra_cost, effort);
    };
    std::stable_sort(found_.begin(), found_.end(), [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
    for (Candidate& candidate : found_) {
      if (out_.frontier.empty() || candidate.extra_cost < out_.frontier.back().extra_cost)
        out_.frontier.push_back(std::move(candidate));
      else if (candidate.peak_bytes == out_.frontier.back().peak_bytes && candidate.extra_cost == out_.frontier.back().extra_cost)
        out_.frontier.back().searched |= candidate.searched;
    }
    if (!out_.least_is_exact) {
      out_.least_budget = out_.frontier.front().peak_bytes;
      if (out_.least_budget == out_.lower_bound)
        out_.least_of = "all schedules";
      else if (out_.least_budget == least_of_sets_)
        out_.least_of = "sets of modules";
      if (out_.frontier.front().peak_is_estimate) out_.least_of.clear();
      out_.least_is_exact = !out_.least_of.empty();
    }
    if (options_.budget)
      for (const Candidate& candidate : out_.frontier)
        if (candidate.peak_bytes <= *options_.budget) out_.best = candidate;  // later ones are faster
    return std::move(out_);
  }

  const Model& model_;
  const SearchOptions& options_;
  SearchResult out_;
  std::vector<Candidate> found_;
  std::set<std::string> seen_;
  std::uint64_t spent_ = 0;
  std::optional<std::uint64_t> least_of_sets_;
};

}  // namespace

const Candidate* as_small_as(const SearchResult& result, std::uint64_t peak_bytes) {
  const Candidate* found = nullptr;
  for (const Candidate& candidate : result.frontier)
    if (candidate.peak_bytes <= peak_bytes) found = &candidate;
  return found;
}

const Candidate* as_fast_as(const SearchResult& result, std::uint64_t extra_cost) {
  for (const Candidate& candidate : result.frontier)
    if (candidate.extra_cost <= extra_cost) return &candidate;
  return nullptr;
}

std::uint64_t peak_bound(const Model& model, const PredictOptions& options) {
  std::vector<std::uint32_t> last(model.tensors.size(), none);  // op that reads the tensor last
  for (std::uint32_t op = 0; op < model.ops.size(); ++op)
    for (const std::uint32_t tensor : model.list(model.ops[op].reads)) last[tensor] = op;
  std::uint64_t inputs = 0, most = 0;  // bytes of inputs that this op or a later one reads
  std::vector<bool> waits(model.tensors.size());
  for (const std::uint32_t input : model.inputs) {
    waits[input] = last[input] != none;
    if (waits[input]) inputs += model.tensors[input].bytes;
  }
  std::vector<std::uint32_t> seen(model.tensors.size(), none);
  for (std::uint32_t op = 0; op < model.ops.size(); ++op) {
    std::uint64_t bytes = inputs + model.ops[op].workspace;
    for (const Slice slice : {model.ops[op].reads, model.ops[op].writes})
      for (const std::uint32_t tensor : model.list(slice)) {
        // What only backward needs is not made in every run of the op.
        if (seen[tensor] == op || (slice.begin == model.ops[op].writes.begin && model.tensors[tensor].for_backward)) continue;
        seen[tensor] = op;
        if (!waits[tensor]) bytes += model.tensors[tensor].bytes;
      }
    most = std::max(most, bytes);
    for (const std::uint32_t tensor : model.list(model.ops[op].reads)) {
      if (!waits[tensor] || last[tensor] != op) continue;
      waits[tensor] = false;
      inputs -= model.tensors[tensor].bytes;
    }
  }
  return static_bytes(model, options) + most;
}

Result<SearchResult> search(const Model& model, const SearchOptions& options) { return Search(model, options).run(); }

}  // namespace liveset::model
