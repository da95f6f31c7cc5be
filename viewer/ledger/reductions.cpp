#include "viewer/ledger/reductions.h"

#include <string_view>

#include "viewer/trace/job_json.h"

namespace liveset::ledger {
namespace {

using trace::Kind;

// {"bucket": 3, "parameters": ["a", "b"]}, as the job's hooks wrote it.
bool read_bucket(std::string_view text, std::int64_t& number, std::vector<std::string>& parameters) {
  const nlohmann::ordered_json json = trace::object_in(text);
  const auto bucket = json.find("bucket"), list = json.find("parameters");
  if (bucket == json.end() || !bucket->is_number_unsigned() || *bucket > std::uint64_t{INT32_MAX}) return false;
  if (list == json.end() || !list->is_array()) return false;
  number = bucket->get<std::int64_t>();
  for (const nlohmann::ordered_json& each : *list) {
    if (each.is_string()) parameters.push_back(each.get<std::string>());
  }
  return true;
}

}  // namespace

void Reductions::visit(const trace::Event& event) {
  switch (event.kind) {
    case Kind::backward_begin: backward_ = backwards_++; break;
    case Kind::backward_end: backward_ = outside; break;
    case Kind::collective: reduce(event); break;
    case Kind::storage:
      if (event.memory_class == trace::MemoryClass::gradient && event.name != 0 && event.heap != 0) gradient(event);
      break;
    case Kind::attribute:
      if (names_.string(event.name) == "liveset.bucket") bucket(event);
      break;
    default: break;
  }
}

void Reductions::reduce(const trace::Event& event) {
  const auto [place, is_new] = reduces_.try_emplace(event.name, false);
  if (is_new) {
    const std::string_view name = names_.string(event.name);
    place->second = name == "all_reduce" || name == "reduce" || name == "reduce_scatter";
  }
  if (!place->second) return;
  ++out_.reductions;
  if (reductions_.size() >= RankFacts::max_of_step) {
    ++out_.reductions_left_out;
    return;
  }
  const std::int64_t block = event.heap == 0 ? BlockFinder::none : finder_.find(event.heap, event.address, event.index);
  reductions_.push_back({event.index, backward_, block, event.number});
}

void Reductions::gradient(const trace::Event& event) {
  const std::int64_t block = finder_.find(event.heap, event.address, event.index);
  if (block == BlockFinder::none) return;
  if (gradient_names_ >= RankFacts::max_of_step) {
    ++out_.reductions_left_out;
    return;
  }
  std::vector<std::uint32_t>& names = gradients_[block];
  if (!names.empty() && names.back() == event.name) return;
  names.push_back(event.name);
  ++gradient_names_;
}

void Reductions::bucket(const trace::Event& event) {
  if (!bucket_texts_.insert(event.text).second) return;  // said before
  std::int64_t number = 0;
  std::vector<std::string> parameters;
  if (!read_bucket(names_.string(event.text), number, parameters)) return;
  if (bucket_names_ + parameters.size() > RankFacts::max_of_step) {
    ++out_.reductions_left_out;
    return;
  }
  bucket_names_ += parameters.size();
  std::vector<std::string>& known = buckets_[number];
  known.insert(known.end(), parameters.begin(), parameters.end());
}

void Reductions::recomputed(const RegionRun& run) {
  ++out_.recomputes;
  if (recomputes_.size() >= RankFacts::max_of_step) {
    ++out_.reductions_left_out;
    return;
  }
  module_names_ += run.modules.size();
  recomputes_.push_back(
      {run.end, backward_, run.scope, module_names_ <= RankFacts::max_of_step ? run.modules : std::vector<std::uint32_t>()});
}

Reductions::Parameters Reductions::join() {
  Parameters parameters;
  // A parameter that nothing reduced is known all the same.
  for (const auto& [block, names] : gradients_) {
    for (const std::uint32_t name : names) parameters.try_emplace(std::string(names_.string(name)));
  }
  for (const auto& [number, names] : buckets_) {
    for (const std::string& name : names) parameters.try_emplace(name);
  }
  for (const Reduction& reduction : reductions_) {
    bool known = false;
    if (work_ > RankFacts::max_work_of_step) {
      ++out_.reductions_left_out;
      continue;
    }
    if (const auto bucket = buckets_.find(reduction.bucket); reduction.bucket >= 0 && bucket != buckets_.end()) {
      for (const std::string& name : bucket->second) parameters[name].push_back(reduction);
      work_ += bucket->second.size();
      known = !bucket->second.empty();
    } else if (const auto names = gradients_.find(reduction.block); reduction.block != BlockFinder::none && names != gradients_.end()) {
      // Of a gradient that is a bucket's view, the bucket's block carries the names of all.
      for (const std::uint32_t name : names->second) parameters[std::string(names_.string(name))].push_back(reduction);
      work_ += names->second.size();
      known = true;
    }
    out_.reductions_known += known;
  }
  return parameters;
}

bool Reductions::judge(const Recompute& recompute, const std::string& module, const Parameters& parameters) {
  const std::string prefix = module + ".";
  bool any = false;
  for (auto parameter = parameters.lower_bound(prefix);
       parameter != parameters.end() && parameter->first.compare(0, prefix.size(), prefix) == 0; ++parameter) {
    any = true;
    work_ += 1 + parameter->second.size();
    if (work_ > RankFacts::max_work_of_step) break;
    bool same_backward = false, before = false, after = false;
    for (const Reduction& reduction : parameter->second) {
      (reduction.event < recompute.end ? before : after) = true;
      same_backward |= reduction.event < recompute.end && reduction.backward == recompute.backward && recompute.backward != outside;
    }
    if (same_backward || (before && !after)) late(recompute, module, parameter->first, same_backward);
  }
  return any;
}

void Reductions::late(const Recompute& recompute, const std::string& module, const std::string& parameter, bool same_backward) {
  std::map<std::string, std::size_t, std::less<>>& known = known_[{recompute.scope, same_backward}];
  if (const auto found = known.find(parameter); found != known.end()) {
    ++out_.late[found->second].count;
  } else if (out_.late.size() < RankFacts::max_late) {
    known.emplace(parameter, out_.late.size());
    out_.late.push_back({names_.scope_path(recompute.scope), module, parameter, step_, 1, same_backward});
  } else {
    ++out_.late_left_out;
  }
}

void Reductions::end_step() {
  work_ = 0;
  const Parameters parameters = join();
  absl::flat_hash_map<std::uint32_t, std::string> paths;
  for (const Recompute& recompute : recomputes_) {
    bool any = false;
    for (const std::uint32_t module : recompute.modules) {
      const auto [place, is_new] = paths.try_emplace(module);
      if (is_new) place->second = names_.module_path(module);
      any |= judge(recompute, place->second, parameters);
    }
    out_.recomputes_without_parameters += !any;
    out_.reductions_left_out += work_ > RankFacts::max_work_of_step;
  }
  reductions_.clear();
  recomputes_.clear();
  gradients_.clear();
  gradient_names_ = module_names_ = 0;
  backwards_ = 0;
}

}  // namespace liveset::ledger
