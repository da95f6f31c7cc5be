// What is known of a kind of GPU, as data: hooks/standin/gpus/*.json, or a file of the user in the same format:
//
//   {"gpu": "mine", "facts": {"name": FACT, "capability": FACT, "multiprocessors": FACT, "memory_bytes": FACT, "context_bytes": FACT}}
//
// where a FACT is {"value": ..., "source": "where it is from"} or {"value": ..., "assumed": "why, and from what"}. These five are
// required. "attribute.N" may follow for the value of the driver's device attribute number N, and "cublas_workspace_bytes", which decides
// nothing in a dry run: it is there to compare with what PyTorch asks for on a device. Numbers keep to hooks/standin/limits.h.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace liveset::launch {

template <class T>
struct Fact {
  T value{};
  std::string reason;  // the source; or, when assumed, why
  bool assumed = false;
};

struct GpuProfile {
  std::string gpu;                            // the name by which it is asked for
  Fact<std::string> name;                     // as the driver says it
  Fact<int> capability;                       // 10 * major + minor
  Fact<std::int64_t> multiprocessors;         //
  Fact<std::int64_t> memory_bytes;            // what the runtime reports as total memory; less than nvidia-smi shows
  Fact<std::int64_t> context_bytes;           // held by a process that has made a context
  Fact<std::int64_t> cublas_workspace_bytes;  // for comparison only
  std::map<int, Fact<std::int64_t>> attributes;

  std::vector<std::string> assumed() const;  // the names of the facts that a dry run takes and that are
};

struct FoundProfile {
  GpuProfile profile;
  std::string problem;  // one line; then there is no profile
};

// `wanted`: the name of a profile in `folder`, or the path of a file.
FoundProfile find_gpu_profile(const std::string& wanted, const std::string& folder);
// `file` is for messages.
FoundProfile parse_gpu_profile(const std::string& text, const std::string& file);
// In the order of the alphabet.
std::vector<std::string> gpu_profile_names(const std::string& folder);

}  // namespace liveset::launch
