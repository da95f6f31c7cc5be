// What the driver hook costs where it stands in the way: a dlsym that is none of its business, and an allocation with its free of the fake
// driver. Prints nanoseconds of processor time, as one line of JSON.
//
//   driver_calls [ROUNDS]
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

extern "C" {
int cuMemAlloc_v2(std::uint64_t* out, std::uint64_t bytes);
int cuMemFree_v2(std::uint64_t address);
}

namespace {

double now_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

template <class Work>
double ns_each(long rounds, Work work) {
  const double begin = now_ns();
  for (long i = 0; i < rounds; ++i) work();
  return (now_ns() - begin) / static_cast<double>(rounds);
}

}  // namespace

int main(int count, char** words) {
  const long rounds = count > 1 ? std::atol(words[1]) : 200'000;
  void* library = dlopen("libc.so.6", RTLD_NOW);
  const auto look_up = [library] {
    if (dlsym(library, "strlen") == nullptr) std::abort();
  };
  const auto allocate = [] {
    std::uint64_t address = 0;
    if (cuMemAlloc_v2(&address, 4096) != 0 || cuMemFree_v2(address) != 0) std::abort();
  };
  ns_each(rounds / 10, look_up);
  const double look_up_ns = ns_each(rounds, look_up);
  ns_each(rounds / 10, allocate);
  std::printf("{\"dlsym_ns\": %.2f, \"allocation_ns\": %.2f}\n", look_up_ns, ns_each(rounds, allocate));
}
