// Devices, versions, limits, peers, entry points.
#include <cstdio>
#include <cstring>

#include "hooks/standin/runtime/driver.h"
#include "hooks/standin/runtime/properties.h"

using namespace standin;

STANDIN_EXPORT int cudaGetDeviceCount(int* count) {
  const auto& all = driver();
  *count = 0;
  return result(all.start != success ? all.start : all.device_count(count));
}
STANDIN_EXPORT int cudaGetDevice(int* device) {
  if (driver().start != success) return result(driver().start);
  *device = current_device();
  return success;
}
STANDIN_EXPORT int cudaSetDevice(int device) { return result(set_device(device, true)); }
STANDIN_EXPORT int cudaInitDevice(int device, unsigned, unsigned) {
  return result(primary_context(device) != nullptr ? success : invalid_device);
}
STANDIN_EXPORT int cudaSetValidDevices(int*, int) { return success; }
STANDIN_EXPORT int cudaChooseDevice(int* device, const void*) {
  *device = 0;
  return success;
}
STANDIN_EXPORT int cudaSetDeviceFlags(unsigned flags) { return result(driver().primary_set_flags(current_device(), flags)); }
STANDIN_EXPORT int cudaGetDeviceFlags(unsigned* flags) {
  int active = 0;
  return result(driver().primary_state(current_device(), flags, &active));
}
STANDIN_EXPORT int cudaDeviceReset() { return result(reset_device()); }
STANDIN_EXPORT int cudaDeviceSynchronize() {
  return bound([] { return driver().context_synchronize(); });
}
STANDIN_EXPORT int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return result(driver().start != success ? driver().start : driver().device_attribute(value, attribute, device));
}
STANDIN_EXPORT int cudaDeviceGetPCIBusId(char* text, int bytes, int device) { return result(driver().device_bus(text, bytes, device)); }
STANDIN_EXPORT int cudaDeviceGetByPCIBusId(int* device, const char* text) { return result(driver().device_by_bus(device, text)); }
STANDIN_EXPORT int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return bound([=] { return driver().context_priorities(least, greatest); });
}
STANDIN_EXPORT int cudaDeviceCanAccessPeer(int* can, int device, int peer) { return result(driver().can_access_peer(can, device, peer)); }
STANDIN_EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return bound([=] { return driver().enable_peer(primary_context(peer), flags); });
}
STANDIN_EXPORT int cudaDeviceDisablePeerAccess(int peer) {
  return bound([=] { return driver().disable_peer(primary_context(peer)); });
}
STANDIN_EXPORT int cudaDeviceGetP2PAttribute(int* value, int attribute, int device, int peer) {
  return result(driver().peer_attribute(value, attribute, device, peer));
}
STANDIN_EXPORT int cudaDeviceGetLimit(std::size_t* value, int limit) {
  return bound([=] { return driver().context_limit(value, limit); });
}
STANDIN_EXPORT int cudaDeviceSetLimit(int limit, std::size_t value) {
  return bound([=] { return driver().context_set_limit(limit, value); });
}
STANDIN_EXPORT int cudaDeviceGetCacheConfig(int* preference) {
  *preference = 0;
  return success;
}
STANDIN_EXPORT int cudaDeviceSetCacheConfig(int) { return success; }
STANDIN_EXPORT int cudaCtxResetPersistingL2Cache() { return success; }
STANDIN_EXPORT int cudaProfilerStart() { return success; }
STANDIN_EXPORT int cudaProfilerStop() { return success; }

STANDIN_EXPORT int cudaLogsRegisterCallback(void (*listener)(void*, int, char*, std::size_t), void*, Handle* handle) {
  if (listener == nullptr || handle == nullptr) return result(invalid_value);
  *handle = reinterpret_cast<Handle>(listener);
  return success;
}
STANDIN_EXPORT int cudaLogsUnregisterCallback(Handle handle) { return result(handle == nullptr ? invalid_value : success); }

STANDIN_EXPORT int cudaDriverGetVersion(int* version) { return result(driver().driver_version ? driver().driver_version(version) : 0); }
STANDIN_EXPORT int cudaRuntimeGetVersion(int* version) {
  *version = liveset_standin_family == 12 ? 12080 : 13000;
  return success;
}

STANDIN_EXPORT int cudaGetDeviceProperties(void* properties, int device) {
  int count = 0;
  if (int error = cudaGetDeviceCount(&count); error != success) return error;
  if (device < 0 || device >= count) return result(invalid_device);
  fill_properties(properties, device);
  return success;
}
// CUDA 12's programs ask for it by this name; its structure is the later of two that CUDA 12 has.
STANDIN_EXPORT int cudaGetDeviceProperties_v2(void* properties, int device) { return cudaGetDeviceProperties(properties, device); }

// What a program looks up it calls itself: the driver must be ready, as after any other function of the runtime.
STANDIN_EXPORT int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version, unsigned long long flags,
                                                    int* status) {
  const auto& all = driver();
  if (all.look_up == nullptr) return result(no_device);
  int found = 0;
  const int error = all.look_up(name, function, static_cast<int>(version), flags, &found);
  if (status != nullptr) *status = found;
  // A name that is not there is an answer, not an error, where the caller can see it.
  return result(error == not_found && status != nullptr ? static_cast<int>(success) : error);
}
STANDIN_EXPORT int cudaGetDriverEntryPointByVersion_ptsz(const char* name, void** function, unsigned version, unsigned long long flags,
                                                         int* status) {
  return cudaGetDriverEntryPointByVersion(name, function, version, flags == 0 ? 2 : flags, status);
}
STANDIN_EXPORT int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags, int* status) {
  return cudaGetDriverEntryPointByVersion(name, function, liveset_standin_family == 12 ? 12080 : 13000, flags, status);
}
STANDIN_EXPORT int cudaGetDriverEntryPoint_ptsz(const char* name, void** function, unsigned long long flags, int* status) {
  return cudaGetDriverEntryPoint(name, function, flags == 0 ? 2 : flags, status);
}
