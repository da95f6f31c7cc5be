// What PYTORCH_CUDA_ALLOC_CONF says of where blocks go.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/trace/result.h"

namespace liveset::allocator {

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

struct Settings {
  // Steps between two powers of two to which sizes are rounded up: entry i is of sizes from 2^(20+i) bytes, entry 0 of smaller ones too,
  // the last of larger ones too. 0 and 1: off; else a power of two.
  std::array<std::uint64_t, 16> roundup_power2_divisions{};
  std::uint64_t max_split_size = unlimited;  // blocks of this many bytes and more are never split
  std::uint64_t max_non_split_rounding_size = 20 * mebibyte;
  std::uint64_t large_segment_size =
      20 * mebibyte;  // of what 1 to 10 MiB are taken from, and a page of expandable segments of large blocks
  // Both count where the device's size is known. Cached blocks are given back from this share of the allowed memory on; 0: never. As in
  // PyTorch it works only where not all of the device is allowed.
  double garbage_collection_threshold = 0;
  double memory_fraction = 1;  // of the device, which may be reserved
  bool expandable_segments = false;
  std::vector<std::string> without_effect;  // keys of the text that say nothing of where blocks go
};

// Reads the text as PyTorch 2.14 does: "key:value,key:[a:b,>:c]". A later key wins. Usage errors: an unknown key (the known ones are
// named), a value that PyTorch refuses, another backend than native.
Result<Settings> parse_settings(std::string_view text);

// The size of the block that a request of `size` bytes (1 to 2^60) gets at least.
std::uint64_t rounded_size(const Settings& settings, std::uint64_t size);

}  // namespace liveset::allocator
