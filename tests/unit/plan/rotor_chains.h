// Chains of the rotor facts, and a simulator that follows the words of their model one by one, apart from the planner's own replay.
#pragma once
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "viewer/plan/rotor.h"

namespace liveset::test {

inline plan::RotorChain rotor_chain(const nlohmann::json& entry) {
  plan::RotorChain chain;
  entry.at("a").get_to(chain.a);
  entry.at("abar").get_to(chain.abar);
  entry.at("delta").get_to(chain.delta);
  entry.at("uf").get_to(chain.uf);
  entry.at("ub").get_to(chain.ub);
  entry.at("of").get_to(chain.of);
  entry.at("ob").get_to(chain.ob);
  return chain;
}

struct RotorRun {
  std::uint64_t peak = 0, time = 0;
  std::string wrong;  // empty: every operation was possible, and all backwards ran
};

// Memory is a set of named things with sizes. "a2 abar3 delta7".
inline RotorRun run_rotor(const plan::RotorChain& chain, const std::string& operations) {
  RotorRun run;
  std::map<std::string, std::uint64_t> memory;
  std::set<std::string> kept;
  const auto name = [](const char* what, std::uint64_t l) { return what + std::to_string(l); };
  const auto held = [&memory] {
    std::uint64_t sum = 0;
    for (const auto& [thing, size] : memory) sum += size;
    return sum;
  };
  const std::uint64_t stages = chain.abar.size();
  memory[name("a", 0)] = chain.a[0];
  memory[name("delta", stages)] = chain.delta[stages];
  run.peak = held();
  std::uint64_t turn = stages;
  std::istringstream words(operations);
  for (std::string word; words >> word && run.wrong.empty();) {
    const std::size_t digits = word.find_first_of("0123456789");
    const std::string kind = word.substr(0, digits);
    const std::uint64_t l = std::stoull(word.substr(digits));
    const std::string input = name("a", l - 1);
    const bool alone = memory.count(input) > 0;
    const auto need = [&](bool condition) {
      if (!condition) run.wrong = word;
    };
    need(l >= 1 && l <= stages && (alone || memory.count(name("abar", l - 1)) > 0));
    if (!run.wrong.empty()) break;
    if (kind == "B") {
      need(l == turn-- && memory.count(name("delta", l)) > 0 && memory.count(name("abar", l)) > 0);
      run.peak = std::max(run.peak, held() + chain.delta[l - 1] + chain.ob[l - 1]);
      memory[name("delta", l - 1)] = chain.delta[l - 1];
      for (const std::string& gone : {name("delta", l), name("abar", l), input}) memory.erase(gone);
      run.time += chain.ub[l - 1];
      continue;
    }
    const bool all = kind == "Fall";
    need(all || kind == "Fn" || kind == "Fck");
    need(kind != "Fn" || kept.count(input) == 0);
    const std::uint64_t made = all ? chain.abar[l - 1] : chain.a[l];
    run.peak = std::max(run.peak, held() + made + chain.of[l - 1]);
    need(memory.emplace(all ? name("abar", l) : name("a", l), made).second);
    if (kind == "Fn") memory.erase(input);
    if (kind != "Fn" && alone) kept.insert(input);
    run.time += chain.uf[l - 1];
  }
  if (run.wrong.empty() && turn != 0) run.wrong = "backwards are missing";
  return run;
}

}  // namespace liveset::test
