// What a dry run simulates: the value of LIVESET_STANDIN, lines of key=value that `liveset dryrun` writes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace standin {

// How much of what is copied to a device is kept. None: nothing, reads give zeros. Small: copies up to `small_copy` bytes.
enum class Backing { none, small, all };
inline constexpr std::size_t small_copy = std::size_t{1} << 20;

struct Configuration {
  std::string gpu;     // profile name
  std::string name;    // what the device calls itself
  std::string folder;  // of the stand-in libraries
  int capability = 90;
  int multiprocessors = 132;
  int devices = 1;
  int world = 1;
  int driver_version = 13000;
  std::uint64_t memory_bytes = 0;
  std::uint64_t context_bytes = 0;
  Backing backing = Backing::small;
  std::map<std::string, std::string, std::less<>> values;  // every line, as written

  // Nothing when a line has no `=`, or a number is none or is out of range: a dry run must not start on a guess.
  static std::optional<Configuration> parse(std::string_view text);

  std::int64_t number(std::string_view key, std::int64_t absent) const;
  bool is_assumed(std::string_view key) const;
};

// How many of the devices a process sees by this value of CUDA_VISIBLE_DEVICES: ordinals up to the first that is none, none at all when
// one is there twice. Which they are makes no difference, as all are alike; names (GPU-...) are none of a stand-in's.
int visible_devices(std::string_view list, int devices);

// The answer of cuDeviceGetAttribute, from public facts of the compute capability and the profile's overrides.
int device_attribute(const Configuration& configuration, int attribute, int device);

// Facts of a multiprocessor by compute capability (CUDA programming guide, technical specifications).
struct Multiprocessor {
  int capability;  // from this one on
  int threads, blocks, shared_bytes, shared_bytes_per_block, reserved_shared_bytes;
};
const Multiprocessor& multiprocessor_of(int capability);
// Blocks of a kernel that fit on a multiprocessor at once; registers are taken as never scarce.
int occupancy(const Configuration& configuration, int block_threads, std::size_t shared_bytes);

}  // namespace standin
