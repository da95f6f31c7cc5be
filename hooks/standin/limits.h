// What a stand-in device can be. The launcher checks a dry run's options and profiles against these limits, and the model what it is
// given: LIVESET_STANDIN beyond them is not understood.
#pragma once
#include <cstdint>

namespace standin::limits {

inline constexpr std::int64_t most_devices = 64;
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 44;  // of a device's memory: 16 TiB; addresses have 47 bits
inline constexpr std::int64_t most_multiprocessors = 1024;
inline constexpr std::int64_t most_ranks = 1 << 20;
// 10 * major + minor. Attributes are known from 5.0 on.
inline constexpr std::int64_t least_capability = 50, most_capability = 209;

}  // namespace standin::limits
