#include "viewer/model/search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "viewer/model/multilevel.h"
#include "viewer/model/selective_search.h"
#include "viewer/model/whatif.h"
#include "viewer/plan/frontier.h"
#include "viewer/plan/revolve.h"
#include "viewer/plan/segments.h"

namespace liveset::model {
namespace {

constexpr std::uint64_t exact_layers = 12;
constexpr std::uint64_t max_points = 32;
constexpr std::uint64_t rotor_share = 10'000'000;  // of the progress that is told, in ops

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
  Search(const Model& model, const SearchOptions& options) : model_(model), options_(options) { options_.predict.ledger = false; }

  Result<SearchResult> run() {
    const PeakBound bound = peak_bound(model_, options_.predict);
    out_.lower_bound = bound.bytes;
    out_.lower_bound_is_rounded = bound.is_rounded;
    std::vector<std::string> keep_all;
    if (model_.rotor) keep_all = words(plan::text_of(plan::rotor_keep_all(model_.rotor->stages())));
    if (Status status = try_policy("save-all", std::move(keep_all)); !status) return status.take_error();
    if (Status status = given(); !status) return status.take_error();
    const Result<ChainOfLayers> chain = chain_of_layers(model_);
    if (chain) {
      if (Status status = rotor(chain->stages); !status) return status.take_error();
      if (!model_.rotor) {
        if (Status status = exact(chain->values); !status) return status.take_error();
        segment_lists(chain->values);
        revolve();
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
    if (!seen_.insert(text).second || spent_ > options_.max_ops) return Done{};
    const Result<Policy> policy = parse_policy(text);
    if (!policy) return policy.error();
    return add(text, predict(model_, *policy, options_.predict), std::move(operations));
  }
  Status add(const std::string& text, const Result<Prediction>& prediction, std::vector<std::string> operations) {
    if (!prediction) return prediction.error();
    ++out_.tried;
    spent_ += prediction->memory.events.size() + model_.ops.size();
    tell();
    found_.push_back(candidate(text, *prediction, std::move(operations)));
    return Done{};
  }
  static Candidate candidate(const std::string& text, const Prediction& prediction, std::vector<std::string> operations) {
    return {text,
            prediction.memory.peak_bytes,
            prediction.memory.peak_is_estimate,
            prediction.memory.peak_is_rounded,
            prediction.extra_cost,
            prediction.forward_cost,
            std::move(operations),
            false};
  }
  void attempt(const std::string& text) { (void)static_cast<bool>(try_policy(text)); }
  void tell() const {
    const std::uint64_t all = rotor_share + options_.max_ops + options_.regions.max_ops;
    if (options_.progress) options_.progress(std::min(rotor_ops_ + spent_, all), all);
  }

  Result<Listed> listed(const Policy& policy) {
    const auto known = std::find_if(found_.begin(), found_.end(), [&](const Candidate& each) { return each.policy == policy.text; });
    Listed listed;
    listed.names_no_layer = names_no_layer(model_, policy);
    if (known != found_.end()) {
      listed.candidate = *known;  // candidates copy nothing
      return listed;
    }
    const Result<Prediction> prediction = predict(model_, policy, options_.predict);
    if (!prediction) return prediction.error();
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
      } else if (std::string why = mismatch(model_, policy); !why.empty()) {
        rule.refused = std::move(why);
      } else if (Result<Listed> each = listed(policy); each) {
        rule = std::move(*each);
      } else {
        rule.refused = each.error().what;
      }
      out_.rules.push_back(std::move(rule));
    }
  }

  // Where sizes need no rounding one table has all plans. Else each budget has a table of its own, as predict makes it for that policy, and
  // as many are looked at as SearchOptions::max_rotor_work allows, and the one that was asked for.
  Status rotor(const plan::RotorChain& stages) {
    if (model_.rotor) out_.backward_cost = std::accumulate(stages.ub.begin(), stages.ub.end(), std::uint64_t{0});
    const std::uint64_t fixed = static_bytes(model_, options_.predict);
    std::optional<std::uint64_t> asked;
    if (options_.budget && *options_.budget >= fixed) asked = *options_.budget - fixed;
    const std::uint64_t points = std::min(max_points, options_.max_ops / 4 / (4 * model_.ops.size()));
    plan::RotorOptions options;
    options.rounds = options.bounds = false;
    Result<RotorStages> least = rotor_stages(stages, 0, options);
    if (!least || points == 0) {
      if (!least && model_.rotor) return least.take_error();
      out_.absent.push_back({"rotor", least ? "schedules of so many layers take long to follow" : least.error().what});
      return Done{};
    }
    const std::uint64_t least_budget = least->table.least_budget();
    const std::uint64_t most = plan::replay(stages, plan::rotor_keep_all(stages.stages()))->peak;
    options.progress = rotor_progress(0, 1);
    if (const Result<RotorStages> exact = rotor_stages(stages, most, options)) {
      std::vector<std::uint64_t> budgets;
      const std::vector<plan::RotorTable::Step> steps = exact->table.steps();
      for (std::size_t i = 0; i < std::min<std::size_t>(steps.size(), points); ++i)
        budgets.push_back(steps[i * steps.size() / std::min<std::size_t>(steps.size(), points)].budget);
      if (!steps.empty()) budgets.push_back(steps.back().budget);
      if (asked) budgets.push_back(*asked);
      for (const std::uint64_t budget : budgets)
        if (const std::optional<plan::RotorPlan> plan = exact->table.plan(budget))
          if (Status status = try_rotor(budget, exact->operations(*plan)); !status && model_.rotor) return status;
    } else if (Status status = rounded_rotor(stages, *least, most, points, asked); !status && model_.rotor) {
      return status;
    }
    if (!model_.rotor || least->groups) return Done{};
    out_.least_of = "persistent schedules";
    out_.least_budget = least_budget + fixed;
    return Done{};
  }

  Status rounded_rotor(const plan::RotorChain& stages, const RotorStages& table, std::uint64_t most, std::uint64_t points,
                       std::optional<std::uint64_t> asked) {
    plan::RotorOptions options;
    const std::uint64_t least = table.table.least_budget(), length = table.groups ? table.groups->chain.stages() : stages.stages();
    const std::uint64_t work = length * length * length / 6 * options.slots;
    const std::uint64_t affordable = std::max<std::uint64_t>(options_.max_rotor_work / std::max<std::uint64_t>(work, 1), asked ? 0 : 1);
    const bool is_long = points < std::min(affordable, max_points);
    points = std::min(points, affordable);
    std::vector<std::uint64_t> budgets{least};
    for (std::uint64_t i = 1; i <= points; ++i)
      budgets.push_back(least + static_cast<std::uint64_t>(static_cast<unsigned __int128>(most - least) * i / (points + 1)));
    if (asked && *asked > least) budgets.push_back(*asked);
    if (points < max_points)
      out_.absent.push_back(
          {"other budgets of rotor", (is_long ? "schedules of so many layers take long to follow"
                                              : std::to_string(length) + " stages with sizes that have to be rounded take long") +
                                         ", only " + std::to_string(budgets.size()) + " budgets were looked at"});
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      options.progress = rotor_progress(i, budgets.size());
      const Result<std::vector<plan::RotorOperation>> operations = rotor_operations(stages, budgets[i], options);
      if (operations)
        if (Status status = try_rotor(budgets[i], *operations); !status) return status;
    }
    return Done{};
  }

  Status try_rotor(std::uint64_t budget, const std::vector<plan::RotorOperation>& operations) {
    const std::string policy = "rotor:" + std::to_string(budget);
    if (!seen_.insert(policy).second) return Done{};
    Result<Schedule> schedule = schedule_of(model_, operations);
    if (!schedule) return schedule.take_error();
    return add(policy, execute(model_, std::move(*schedule), options_.predict), words(plan::text_of(operations)));
  }

  // Of the table with this number.
  std::function<void(std::uint64_t, std::uint64_t)> rotor_progress(std::size_t table, std::size_t tables) {
    if (!options_.progress) return {};
    return [this, table, tables](std::uint64_t done, std::uint64_t all) {
      const double part = (static_cast<double>(table) + static_cast<double>(done) / static_cast<double>(all)) / static_cast<double>(tables);
      rotor_ops_ = static_cast<std::uint64_t>(part * static_cast<double>(rotor_share));
      tell();
    };
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

  // Few snapshots on a long chain run its layers over and over: those would leave nothing for the others.
  void revolve() {
    const std::uint64_t layers = model_.units.size(), most = spent_ + options_.max_ops / 4;
    for (std::uint64_t snapshots = std::min(layers - 1, max_points); snapshots > 0 && spent_ < most; --snapshots) {
      const Result<std::uint64_t> advances = plan::revolve_advances(layers, snapshots);
      if (!advances || *advances > options_.max_ops / 16) break;
      attempt("revolve:" + std::to_string(snapshots));
    }
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
    bool certain = true;  // of an estimate it is not known that it needs no less
    const RegionSearchResult result = search_regions(model_, wanted, [&](const std::string& text) -> std::optional<plan::Figures> {
      seen_.insert(text);
      const Result<Policy> policy = parse_policy(text);
      if (!policy || !add(text, predict(model_, *policy, options_.predict), {})) return std::nullopt;
      const plan::Figures figures{found_.back().peak_bytes, found_.back().extra_cost};
      least = std::min(least, figures.peak);
      certain = certain && !found_.back().is_estimate();
      return figures;
    });
    out_.modules = result.modules;
    if (result.all_sets && certain) least_of_sets_ = least;
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
    if (out_.least_of.empty()) {
      out_.least_budget = out_.frontier.front().peak_bytes;
      if (out_.least_budget == out_.lower_bound && !out_.lower_bound_is_rounded)
        out_.least_of = "all schedules";
      else if (out_.least_budget == least_of_sets_)
        out_.least_of = "sets of modules";
    }
    if (out_.frontier.front().is_estimate()) out_.least_of.clear();
    out_.least_is_exact = !out_.least_of.empty();
    if (options_.budget)
      for (const Candidate& candidate : out_.frontier)
        if (candidate.peak_bytes <= *options_.budget) out_.best = candidate;  // later ones are faster
    return std::move(out_);
  }

  const Model& model_;
  SearchOptions options_;
  SearchResult out_;
  std::vector<Candidate> found_;
  std::set<std::string> seen_;
  std::uint64_t spent_ = 0, rotor_ops_ = 0;
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

PeakBound peak_bound(const Model& model, const PredictOptions& options) {
  // Bytes, and how many of what they are of are rounded.
  struct Sum {
    std::uint64_t bytes = 0, rounded = 0;
    void add(const Tensor& tensor) {
      bytes += tensor.bytes;
      rounded += tensor.rounded ? 1 : 0;
    }
    void remove(const Tensor& tensor) {
      bytes -= tensor.bytes;
      rounded -= tensor.rounded ? 1 : 0;
    }
  };
  std::vector<std::uint32_t> last(model.tensors.size(), none);  // op that reads the tensor last
  for (std::uint32_t op = 0; op < model.ops.size(); ++op)
    for (const std::uint32_t tensor : model.list(model.ops[op].reads)) last[tensor] = op;
  Sum inputs;  // that this op or a later one reads
  std::vector<bool> waits(model.tensors.size());
  for (const std::uint32_t input : model.inputs) {
    waits[input] = last[input] != none;
    if (waits[input]) inputs.add(model.tensors[input]);
  }
  for (const HandRegion& region : model.regions) {
    if (region.mode != HandRegion::Mode::offload) continue;
    for (const std::uint32_t tensor : region.tensors) {
      if (waits[tensor]) inputs.remove(model.tensors[tensor]);
      waits[tensor] = false;
    }
  }
  PeakBound most;
  std::vector<std::uint32_t> seen(model.tensors.size(), none);
  for (std::uint32_t op = 0; op < model.ops.size(); ++op) {
    Sum here = inputs;
    here.bytes += model.ops[op].workspace;
    for (const Slice slice : {model.ops[op].reads, model.ops[op].writes})
      for (const std::uint32_t tensor : model.list(slice)) {
        // What only backward needs is not made in every run of the op.
        if (seen[tensor] == op || (slice.begin == model.ops[op].writes.begin && model.tensors[tensor].for_backward)) continue;
        seen[tensor] = op;
        if (!waits[tensor]) here.add(model.tensors[tensor]);
      }
    if (here.bytes >= most.bytes) most = {here.bytes, here.rounded != 0 && (most.is_rounded || here.bytes > most.bytes)};
    for (const std::uint32_t tensor : model.list(model.ops[op].reads)) {
      if (!waits[tensor] || last[tensor] != op) continue;
      waits[tensor] = false;
      inputs.remove(model.tensors[tensor]);
    }
  }
  most.bytes += static_bytes(model, options);
  for (const StaticStorage& storage : model.statics) most.is_rounded |= storage.rounded && storage.from_step <= options.step;
  return most;
}

Result<SearchResult> search(const Model& model, const SearchOptions& options) { return Search(model, options).run(); }

}  // namespace liveset::model
