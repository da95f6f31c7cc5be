// plan_rotor STAGES SLOTS [LOOKS]: plans a rotor chain of random sizes for half of what keeping everything needs. Prints one JSON object:
// CPU seconds for the tables and for the plan, its time, the bound. LOOKS: how long the table without slots may try (0: not at all; then
// there are two of SLOTS slots, one for the plan and one for the bound).
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>

#include "viewer/plan/rotor.h"

namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 2654435761U + 88172645463325252U) {}
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return low + (state_ >> 11U) % (high - low + 1);
  }

 private:
  std::uint64_t state_;
};

liveset::plan::RotorChain random_chain(std::uint64_t stages, std::uint64_t seed) {
  Numbers numbers(seed);
  liveset::plan::RotorChain chain;
  for (std::uint64_t l = 0; l <= stages; ++l) {
    chain.a.push_back(numbers.between(1'000'000, 9'000'000));
    chain.delta.push_back(chain.a.back());
    if (l == 0) continue;
    chain.abar.push_back(chain.a.back() + numbers.between(0, 25'000'000));
    chain.uf.push_back(numbers.between(1, 1000));
    chain.ub.push_back(numbers.between(1, 2000));
    chain.of.push_back(numbers.between(0, 5'000'000));
    chain.ob.push_back(numbers.between(0, 5'000'000));
  }
  return chain;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fputs("usage: plan_rotor STAGES SLOTS [LOOKS]\n", stderr);
    return 2;
  }
  const std::uint64_t stages = std::strtoull(argv[1], nullptr, 10), slots = std::strtoull(argv[2], nullptr, 10);
  const liveset::plan::RotorChain chain = random_chain(stages, 1);
  liveset::plan::RotorOptions options;
  options.slots = slots;
  if (argc > 3) options.max_looks = std::strtoull(argv[3], nullptr, 10);
  const auto keep_all = replay(chain, liveset::plan::rotor_keep_all(stages));
  if (!keep_all) {
    std::fprintf(stderr, "%s\n", keep_all.error().message().c_str());
    return 1;
  }
  const std::uint64_t budget = keep_all->peak / 2;
  const double start = cpu_seconds();
  auto table = liveset::plan::RotorTable::make(chain, budget, options);
  if (!table) {
    std::fprintf(stderr, "%s\n", table.error().message().c_str());
    return 1;
  }
  const double made = cpu_seconds();
  const auto plan = table->plan(budget);
  const double planned = cpu_seconds();
  if (!plan || plan->figures.peak > budget) {
    std::fputs("no plan within the budget\n", stderr);
    return 1;
  }
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "{\"stages\": %llu, \"slots\": %llu, \"table_s\": %.6f, \"plan_s\": %.6f, \"cost\": %llu, \"least_cost\": %llu, \"keep_all\": "
      "%llu}\n",
      number(stages), number(slots), made - start, planned - made, number(plan->figures.cost), number(plan->least_cost),
      number(keep_all->cost));
  return 0;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "%s\n", problem.what());
  return 1;
}
