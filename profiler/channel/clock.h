// The counter that stamps events: the invariant time stamp counter where there is one, else CLOCK_MONOTONIC.
#pragma once
#include <cstdint>
#include <ctime>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace liveset::channel {

// Numbers of proto ClockDomain::Kind.
enum class ClockKind : std::uint32_t { unknown = 0, tsc = 1, cntvct = 2, monotonic = 3 };

inline std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

// A TSC that stops or changes its rate would order events wrongly, so only an invariant one is used.
inline ClockKind best_clock() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007U, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0 ? ClockKind::tsc : ClockKind::monotonic;
#elif defined(__aarch64__)
  return ClockKind::cntvct;
#else
  return ClockKind::monotonic;
#endif
}

inline std::uint64_t read_ticks(ClockKind kind) {
#if defined(__x86_64__)
  if (kind == ClockKind::tsc) [[likely]]
    return __rdtsc();
#elif defined(__aarch64__)
  if (kind == ClockKind::cntvct) [[likely]] {
    std::uint64_t ticks;
    asm volatile("isb; mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
  }
#endif
  (void)kind;
  return clock_ns(CLOCK_MONOTONIC);
}

}  // namespace liveset::channel
