// plan_rotor STAGES SLOTS [SEED]: makes the table of a rotor chain of random sizes and plans from it, several budgets. Prints one JSON
// object: CPU seconds, slots, whether exact, the costs found. Sizes are small numbers with the slots as their budget, so nothing is rounded
// and nothing is spared but what the planner itself leaves out.
#include <cstdio>
#include <cstdlib>
#include <ctime>

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
    chain.a.push_back(numbers.between(1, 9));
    chain.delta.push_back(chain.a.back());
    if (l == 0) continue;
    chain.abar.push_back(chain.a.back() + numbers.between(0, 25));
    chain.uf.push_back(numbers.between(1, 1000));
    chain.ub.push_back(numbers.between(1, 2000));
    chain.of.push_back(numbers.between(0, 5));
    chain.ob.push_back(numbers.between(0, 5));
  }
  return chain;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: plan_rotor STAGES SLOTS [SEED]\n", stderr);
    return 2;
  }
  const std::uint64_t stages = std::strtoull(argv[1], nullptr, 10), slots = std::strtoull(argv[2], nullptr, 10);
  const liveset::plan::RotorChain chain = random_chain(stages, argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  liveset::plan::RotorOptions options;
  options.slots = slots;
  const double start = cpu_seconds();
  auto table = liveset::plan::RotorTable::make(chain, slots, options);
  if (!table) {
    std::fprintf(stderr, "%s\n", table.error().message().c_str());
    return 1;
  }
  const double made = cpu_seconds();
  const auto whole = table->plan(slots);
  const auto half = table->plan((table->least_budget() + slots) / 2);
  const double planned = cpu_seconds();
  std::printf(
      "{\"stages\": %llu, \"slots\": %llu, \"exact\": %s, \"table_s\": %.6f, \"plan_s\": %.6f, \"least_budget\": %llu, \"cost\": %lld, "
      "\"cost_half\": %lld}\n",
      static_cast<unsigned long long>(stages), static_cast<unsigned long long>(slots), table->exact() ? "true" : "false", made - start,
      planned - made, static_cast<unsigned long long>(table->least_budget()), whole ? static_cast<long long>(whole->figures.cost) : -1,
      half ? static_cast<long long>(half->figures.cost) : -1);
  return 0;
}
