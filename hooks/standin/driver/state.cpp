#include "hooks/standin/driver/state.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>

namespace standin {
namespace {

std::atomic<Machine*> the_machine{nullptr};
std::atomic<bool> is_fork_child{false};
thread_local ThreadState state;

// Stems of NVIDIA's own libraries that a stand-in takes the place of. libnvToolsExt and libnvtx only carry marks, and stay.
constexpr const char* vendor_stems[] = {"libcuda",     "libcudart",     "libcublas",       "libcublasLt", "libcudnn",
                                        "libcufft",    "libcufftw",     "libcurand",       "libcusolver", "libcusolverMg",
                                        "libcusparse", "libcusparseLt", "libnccl",         "libnvrtc",    "libnvJitLink",
                                        "libcupti",    "libcufile",     "libnvshmem_host", "libnvidia-ml"};

// Behind the stem stands ".so", or the name of a part (libcudnn_graph.so.9, libnvrtc-builtins.so.13.0) or a hash that a wheel's tools put
// there (libcudart-d0da41ae.so.11.0). libcuda has no parts, but programs have libraries that are called libcuda_something.
bool is_vendor_file(const char* file) {
  const char* name = std::strrchr(file, '/');
  name = name ? name + 1 : file;
  return std::any_of(std::begin(vendor_stems), std::end(vendor_stems), [name](const char* stem) {
    const auto length = std::strlen(stem);
    if (std::strncmp(name, stem, length) != 0) return false;
    const char* rest = name + length;
    return std::strncmp(rest, ".so", 3) == 0 || ((*rest == '_' || *rest == '-') && std::strcmp(stem, "libcuda") != 0);
  });
}

std::string in_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

bool is_within(const char* file, const std::string& folder) {
  char real[4096];
  if (realpath(file, real) == nullptr) return false;
  return std::strncmp(real, folder.c_str(), folder.size()) == 0 && real[folder.size()] == '/';
}

}  // namespace

void refuse_real_libraries() {
  const std::string folder = configuration() != nullptr ? configuration()->folder : "";
  if (folder.empty()) return;
  char real_folder[4096];
  if (realpath(folder.c_str(), real_folder) == nullptr) return;
  FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return;
  std::string real;
  char line[8192];
  while (std::fgets(line, sizeof line, maps)) {
    char* file = std::strchr(line, '/');
    if (file == nullptr) continue;
    file[std::strcspn(file, "\n")] = 0;
    if (!is_vendor_file(file) || is_within(file, real_folder)) continue;
    const bool is_runtime = std::strstr(file, "/libcudart") != nullptr;  // the one to name, where there are several
    if (real.empty() || is_runtime) real = file;
    if (is_runtime) break;
  }
  std::fclose(maps);
  if (real.empty()) return;
  real += " (a Python finds the stand-ins by PYTHONPATH, which -I and -E keep out; --python names one that the command does not show)";
  refuse("a real NVIDIA library is loaded beside the stand-ins", real.c_str());
}

void refuse(const char* why, const char* what) {
  std::fprintf(stderr, "liveset dryrun: %s: %s\n", why, what);
  _exit(2);
}

const Configuration* configuration() {
  static const auto* parsed = [] {
    const char* text = std::getenv("LIVESET_STANDIN");
    if (text == nullptr) return static_cast<Configuration*>(nullptr);
    auto result = Configuration::parse(text);
    // A job that silently has no device, or half a one, would look as if it had run.
    if (!result) refuse("LIVESET_STANDIN is not what `liveset dryrun` of this version writes", in_one_line(text).c_str());
    return new Configuration(std::move(*result));
  }();
  return parsed;
}

Machine* machine() { return is_fork_child.load(std::memory_order_relaxed) ? nullptr : the_machine.load(std::memory_order_acquire); }

Error initialize() {
  if (is_fork_child) return not_initialized;
  if (the_machine) return success;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (the_machine) return success;
  const auto* wanted = configuration();
  if (wanted == nullptr) return no_device;
  refuse_real_libraries();
  auto seen = *wanted;
  if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES"); list != nullptr) seen.devices = visible_devices(list, wanted->devices);
  if (seen.devices == 0) return no_device;
  pthread_atfork(nullptr, nullptr, [] { is_fork_child = true; });
  the_machine = new Machine(seen);  // lives as long as the process: threads use it while it ends
  return success;
}

ThreadState& thread_state() { return state; }

Here here() {
  auto* all = machine();
  if (all == nullptr) return {nullptr, nullptr, not_initialized};
  if (state.depth == 0 || state.contexts[state.depth - 1] == nullptr) return {all, nullptr, invalid_context};
  auto* context = state.contexts[state.depth - 1];
  return {all, context, success};
}

Error free_any(Machine& all, Address address) {
  const auto found = all.memory.find(address);
  if (!found || found->address != address) return invalid_value;
  switch (found->kind) {
    case Kind::pool: return all.pools.free(address);
    case Kind::graph: return all.graphs.free(address);
    default: return all.memory.free(address);
  }
}

Here at_device(int device) {
  auto* all = machine();
  if (all == nullptr) return {nullptr, nullptr, not_initialized};
  return {all, nullptr, device < 0 || device >= all->configuration.devices ? invalid_device : success};
}

}  // namespace standin
