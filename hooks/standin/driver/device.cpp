// Initialisation, devices, contexts, error texts.
#include <cstdio>
#include <cstring>

#include "hooks/standin/driver/state.h"

using namespace standin;

namespace {

void push(Context* context) {
  auto& state = thread_state();
  if (state.depth < ThreadState::most) state.contexts[state.depth++] = context;
}

bool is_usable(const Here& place, Context* context) { return place.machine->contexts.is_context(context); }

}  // namespace

STANDIN_EXPORT int cuInit(unsigned flags) { return flags != 0 ? invalid_value : initialize(); }

STANDIN_EXPORT int cuDriverGetVersion(int* version) {
  if (version == nullptr) return invalid_value;
  *version = configuration() ? configuration()->driver_version : 0;
  return success;
}

STANDIN_EXPORT int cuDeviceGetCount(int* count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (count == nullptr) return invalid_value;
  *count = all->configuration.devices;
  return success;
}

STANDIN_EXPORT int cuDeviceGet(int* device, int ordinal) {
  auto place = at_device(ordinal);
  if (place.error == success) *device = ordinal;
  return place.error;
}

STANDIN_EXPORT int cuDeviceGetName(char* name, int bytes, int device) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  if (name == nullptr || bytes <= 0) return invalid_value;
  std::snprintf(name, static_cast<std::size_t>(bytes), "%s", place.machine->configuration.name.c_str());
  return success;
}

STANDIN_EXPORT int cuDeviceGetUuid_v2(Uuid* uuid, int device) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<unsigned char>(0x10 + i);
  uuid->bytes[15] = static_cast<unsigned char>(device);
  return success;
}
STANDIN_EXPORT int cuDeviceGetUuid(Uuid* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

STANDIN_EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  auto place = at_device(device);
  if (place.error == success) *bytes = place.machine->memory.total();
  return place.error;
}

STANDIN_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  if (value == nullptr || attribute <= 0) return invalid_value;
  *value = device_attribute(place.machine->configuration, attribute, device);
  return success;
}

STANDIN_EXPORT int cuDeviceComputeCapability(int* major, int* minor, int device) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  *major = place.machine->configuration.capability / 10;
  *minor = place.machine->configuration.capability % 10;
  return success;
}

STANDIN_EXPORT int cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  if (text == nullptr || bytes < 13) return invalid_value;
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", device_attribute(place.machine->configuration, 33, device));
  return success;
}

STANDIN_EXPORT int cuDeviceGetByPCIBusId(int* device, const char* text) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (text == nullptr) return invalid_value;
  unsigned domain = 0, bus = 0;
  if (std::sscanf(text, "%x:%x", &domain, &bus) != 2) return invalid_value;
  for (int i = 0; i < all->configuration.devices; ++i) {
    if (device_attribute(all->configuration, 33, i) != static_cast<int>(bus)) continue;
    *device = i;
    return success;
  }
  return invalid_device;
}

STANDIN_EXPORT int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  if (at_device(peer).error != success) return invalid_device;
  *can = device != peer;
  return success;
}

STANDIN_EXPORT int cuDeviceGetP2PAttribute(int* value, int attribute, int device, int peer) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  if (at_device(peer).error != success || device == peer) return invalid_device;
  // 1 a rank of speed, 2 access, 3 atomics, 4 arrays
  *value = attribute == 1 ? 0 : 1;
  return success;
}

STANDIN_EXPORT int cuDevicePrimaryCtxRetain(Context** context, int device) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  bool first = false;
  auto error = place.machine->contexts.retain_primary(device, context, &first);
  if (error == success && first) announce_device();
  return error;
}

STANDIN_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  auto place = at_device(device);
  return place.error != success ? place.error : place.machine->contexts.release_primary(device);
}
STANDIN_EXPORT int cuDevicePrimaryCtxRelease(int device) { return cuDevicePrimaryCtxRelease_v2(device); }

STANDIN_EXPORT int cuDevicePrimaryCtxReset_v2(int device) {
  auto place = at_device(device);
  return place.error != success ? place.error : place.machine->contexts.reset_primary(device);
}
STANDIN_EXPORT int cuDevicePrimaryCtxReset(int device) { return cuDevicePrimaryCtxReset_v2(device); }

STANDIN_EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  auto place = at_device(device);
  return place.error != success ? place.error : place.machine->contexts.set_primary_flags(device, flags);
}
STANDIN_EXPORT int cuDevicePrimaryCtxSetFlags(int device, unsigned flags) { return cuDevicePrimaryCtxSetFlags_v2(device, flags); }

STANDIN_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  *flags = place.machine->contexts.primary_flags(device);
  *active = place.machine->contexts.is_primary_active(device);
  return success;
}

STANDIN_EXPORT int cuCtxCreate_v2(Context** context, unsigned flags, int device) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  auto error = place.machine->contexts.create(device, flags, context);
  if (error != success) return error;
  push(*context);
  announce_device();
  return success;
}
STANDIN_EXPORT int cuCtxCreate_v3(Context** context, void*, int, unsigned flags, int device) {
  return cuCtxCreate_v2(context, flags, device);
}
STANDIN_EXPORT int cuCtxCreate_v4(Context** context, void*, unsigned flags, int device) { return cuCtxCreate_v2(context, flags, device); }

STANDIN_EXPORT int cuCtxDestroy_v2(Context* context) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  auto error = all->contexts.destroy(context);
  auto& state = thread_state();
  if (error == success && state.depth > 0 && state.contexts[state.depth - 1] == context) --state.depth;
  return error;
}

STANDIN_EXPORT int cuCtxGetCurrent(Context** context) {
  if (machine() == nullptr) return not_initialized;
  if (context == nullptr) return invalid_value;
  const auto& state = thread_state();
  *context = state.depth > 0 ? state.contexts[state.depth - 1] : nullptr;
  return success;
}

STANDIN_EXPORT int cuCtxSetCurrent(Context* context) {
  Here place{machine()};
  if (place.machine == nullptr) return not_initialized;
  if (context != nullptr && !is_usable(place, context)) return invalid_context;
  auto& state = thread_state();
  if (state.depth == 0)
    push(context);
  else
    state.contexts[state.depth - 1] = context;
  return success;
}

STANDIN_EXPORT int cuCtxPushCurrent_v2(Context* context) {
  Here place{machine()};
  if (place.machine == nullptr) return not_initialized;
  if (!is_usable(place, context)) return invalid_context;
  push(context);
  return success;
}

STANDIN_EXPORT int cuCtxPopCurrent_v2(Context** context) {
  auto place = here();
  if (place.error != success) return place.error;
  if (context != nullptr) *context = place.context;
  --thread_state().depth;
  return success;
}

STANDIN_EXPORT int cuCtxGetDevice(int* device) {
  auto place = here();
  if (place.error == success) *device = place.device();
  return place.error;
}

STANDIN_EXPORT int cuCtxGetDevice_v2(int* device, Context* context) {
  if (context == nullptr) return cuCtxGetDevice(device);
  Here place{machine()};
  if (place.machine == nullptr) return not_initialized;
  if (!is_usable(place, context)) return invalid_context;
  *device = context->device;
  return success;
}

STANDIN_EXPORT int cuCtxGetFlags(unsigned* flags) {
  auto place = here();
  if (place.error == success) *flags = place.context->flags;
  return place.error;
}
STANDIN_EXPORT int cuCtxSetFlags(unsigned flags) {
  auto place = here();
  if (place.error == success) place.context->flags = flags;
  return place.error;
}

STANDIN_EXPORT int cuCtxGetId(Context* context, std::uint64_t* id) {
  auto place = here();
  if (context == nullptr) context = place.context;
  if (place.machine == nullptr || context == nullptr || !is_usable(place, context)) return invalid_context;
  *id = context->id;
  return success;
}

STANDIN_EXPORT int cuCtxGetApiVersion(Context*, unsigned* version) {
  *version = 3020;
  return success;
}

STANDIN_EXPORT int cuCtxSynchronize() {
  auto place = here();
  if (place.error != success) return place.error;
  if (auto error = place.machine->streams.forbid_while_capturing(thread_state().capture_mode); error != success) return error;
  auto error = place.machine->streams.synchronize_device(place.device());
  place.machine->pools.synchronized(place.device());
  return error;
}
STANDIN_EXPORT int cuCtxSynchronize_v2(Context*) { return cuCtxSynchronize(); }

STANDIN_EXPORT int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  auto place = here();
  if (place.error != success) return place.error;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return success;
}

STANDIN_EXPORT int cuCtxGetLimit(std::size_t* value, int limit) {
  auto place = here();
  if (place.error != success) return place.error;
  constexpr std::size_t defaults[] = {1024, 1048576 * 7, 8388608, 2, 2048, 128};
  if (limit < 0 || limit > 5) return invalid_value;
  *value = defaults[limit];
  return success;
}
STANDIN_EXPORT int cuCtxSetLimit(int limit, std::size_t) { return limit < 0 ? invalid_value : static_cast<int>(here().error); }
STANDIN_EXPORT int cuCtxGetCacheConfig(int* preference) {
  *preference = 0;
  return here().error;
}
STANDIN_EXPORT int cuCtxSetCacheConfig(int) { return here().error; }
STANDIN_EXPORT int cuCtxResetPersistingL2Cache() { return here().error; }

STANDIN_EXPORT int cuCtxEnablePeerAccess(Context* peer, unsigned flags) {
  auto place = here();
  if (place.error != success) return place.error;
  if (flags != 0) return invalid_value;
  if (!is_usable(place, peer)) return invalid_context;
  if (peer->device == place.device()) return invalid_device;
  return place.machine->contexts.enable_peer(place.context, peer);
}

STANDIN_EXPORT int cuCtxDisablePeerAccess(Context* peer) {
  auto place = here();
  return place.error != success ? place.error : place.machine->contexts.disable_peer(place.context, peer);
}

STANDIN_EXPORT int cuGetErrorString(int error, const char** text) {
  const auto* words = words_of(error);
  *text = words ? words->text : nullptr;
  return words ? success : invalid_value;
}

STANDIN_EXPORT int cuGetErrorName(int error, const char** text) {
  const auto* words = words_of(error);
  *text = words ? words->driver_name : nullptr;
  return words ? success : invalid_value;
}

// A stand-in has nothing to report to those who listen.
STANDIN_EXPORT int cuLogsRegisterCallback(void (*listener)(void*, int, char*, std::size_t), void*, void** handle) {
  if (listener == nullptr || handle == nullptr) return invalid_value;
  *handle = reinterpret_cast<void*>(listener);
  return success;
}
STANDIN_EXPORT int cuLogsUnregisterCallback(void* handle) { return handle == nullptr ? invalid_value : success; }

STANDIN_EXPORT int cuProfilerStart() { return success; }
STANDIN_EXPORT int cuProfilerStop() { return success; }
