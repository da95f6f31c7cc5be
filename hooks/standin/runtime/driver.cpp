#include "hooks/standin/runtime/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

namespace standin {
namespace {

struct ThreadState {
  int device;
  int last_error;
};
thread_local ThreadState state;

std::atomic<Handle> primaries[64];

Driver load() {
  Driver table;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return table;
  // NVIDIA's runtime, static or shared, begins with this one look-up (design/recording.md), so an interposer of dlsym sees it.
  table.look_up = reinterpret_cast<decltype(table.look_up)>(dlsym(library, "cuGetProcAddress_v2"));
  if (table.look_up == nullptr) return table;
  void* function = nullptr;
  if (table.look_up("cuGetProcAddress", &function, 12000, 0, nullptr) == success)
    table.look_up = reinterpret_cast<decltype(table.look_up)>(function);
#define STANDIN_LOOK_UP(member, name, version, flags, parameters) \
  if (table.look_up(name, &function, version, flags, nullptr) == success) table.member = reinterpret_cast<decltype(table.member)>(function);
  STANDIN_DRIVER_FUNCTIONS(STANDIN_LOOK_UP)
#undef STANDIN_LOOK_UP
  table.start = table.init(0);
  return table;
}

}  // namespace

const Driver& driver() {
  static const Driver table = load();
  return table;
}

int result(int error) {
  if (error != success) state.last_error = error;
  return error;
}

Handle primary_context(int device) {
  auto& kept = primaries[static_cast<std::size_t>(device) % 64];
  if (kept == nullptr) {
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    Handle context = nullptr;
    if (kept == nullptr && driver().primary_retain(&context, device) == success) kept = context;
  }
  return kept;
}

int reset_device() {
  const auto& all = driver();
  if (all.start != success) return all.start;
  const int device = current_device();
  if (int error = all.context_set(nullptr); error != success) return error;
  primaries[static_cast<std::size_t>(device) % 64] = nullptr;
  return all.primary_reset(device);
}

int bind() {
  const auto& all = driver();
  if (all.start != success) return all.start;
  Handle context = nullptr;
  if (int error = all.context_get(&context); error != success) return error;
  return context != nullptr ? static_cast<int>(success) : set_device(state.device, true);
}

int current_device() {
  Handle context = nullptr;
  int device = state.device;
  if (driver().start == success && driver().context_get(&context) == success && context != nullptr) driver().context_device(&device);
  return device;
}

int set_device(int device, bool make_context) {
  int count = 0;
  const auto& all = driver();
  if (all.start != success) return all.start;
  if (int error = all.device_count(&count); error != success) return error;
  if (device < 0 || device >= count) return invalid_device;
  state.device = device;
  if (!make_context) return success;
  const auto context = primary_context(device);
  return context == nullptr ? static_cast<int>(out_of_memory) : all.context_set(context);
}

}  // namespace standin

using namespace standin;

STANDIN_EXPORT int cudaGetLastError() {
  const int error = state.last_error;
  state.last_error = success;
  return error;
}
STANDIN_EXPORT int cudaPeekAtLastError() { return state.last_error; }
STANDIN_EXPORT const char* cudaGetErrorName(int error) {
  const auto* words = words_of(error);
  return words ? words->runtime_name : "unrecognized error code";
}
STANDIN_EXPORT const char* cudaGetErrorString(int error) {
  const auto* words = words_of(error);
  return words ? words->text : "unrecognized error code";
}
