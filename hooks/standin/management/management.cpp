// NVML on the stand-in: the devices that LIVESET_STANDIN describes. Numbers of NVML's results: 0 success, 2 bad argument, 3 not
// supported, 6 not found, 9 no driver. Used memory is this process's: processes of a dry run do not see each other.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hooks/standin/functions.h"
#include "hooks/standin/interface.h"
#include "hooks/standin/management/driver_functions.h"

namespace {

enum Result : int {
  success = 0,
  uninitialized = 1,
  invalid_argument = 2,
  not_supported = 3,
  not_found = 6,
  insufficient_size = 7,
  no_driver = 9
};

using Device = void*;  // the device's number + 1

int device_count() { return static_cast<int>(liveset_standin_number("devices", 1)); }
bool is_active() { return liveset_standin_number("memory_bytes", 0) > 0; }
int number_of(Device device) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1; }
bool is_device(Device device) { return number_of(device) >= 0 && number_of(device) < device_count(); }

int give_text(char* out, unsigned room, const char* text) {
  if (out == nullptr) return invalid_argument;
  if (std::strlen(text) >= room) return insufficient_size;
  std::strcpy(out, text);
  return success;
}

std::uint64_t total_bytes() { return static_cast<std::uint64_t>(liveset_standin_number("memory_bytes", 0)); }

}  // namespace

STANDIN_EXPORT int nvmlInitWithFlags(unsigned) { return is_active() ? success : no_driver; }
STANDIN_EXPORT int nvmlInit_v2() { return nvmlInitWithFlags(0); }
STANDIN_EXPORT int nvmlInit() { return nvmlInitWithFlags(0); }
STANDIN_EXPORT int nvmlShutdown() { return success; }
STANDIN_EXPORT const char* nvmlErrorString(int result) {
  switch (result) {
    case success: return "success";
    case uninitialized: return "not initialised";
    case invalid_argument: return "invalid argument";
    case not_supported: return "not supported";
    case not_found: return "not found";
    case insufficient_size: return "the buffer is too small";
    case no_driver: return "no driver is loaded";
    default: return "unknown error";
  }
}

STANDIN_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  if (!is_active()) return uninitialized;
  *count = static_cast<unsigned>(device_count());
  return success;
}
STANDIN_EXPORT int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

STANDIN_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (!is_active()) return uninitialized;
  if (index >= static_cast<unsigned>(device_count())) return invalid_argument;
  *device = reinterpret_cast<Device>(std::uintptr_t{index} + 1);
  return success;
}
STANDIN_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, Device* device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }

STANDIN_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* text, Device* device) {
  unsigned domain = 0, bus = 0;
  if (text == nullptr || std::sscanf(text, "%x:%x", &domain, &bus) != 2) return invalid_argument;
  for (int i = 0; i < device_count(); ++i)
    if (standin::attribute(33, i) == static_cast<int>(bus)) return nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(i), device);
  return not_found;
}
STANDIN_EXPORT int nvmlDeviceGetHandleByPciBusId(const char* text, Device* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(text, device);
}

STANDIN_EXPORT int nvmlDeviceGetUUID(Device device, char* text, unsigned room) {
  if (!is_device(device)) return invalid_argument;
  char uuid[64];
  std::snprintf(uuid, sizeof uuid, "GPU-10111213-1415-1617-1819-1a1b1c1d1e%02x", static_cast<unsigned>(number_of(device)));
  return give_text(text, room, uuid);
}
STANDIN_EXPORT int nvmlDeviceGetHandleByUUID(const char* text, Device* device) {
  for (int i = 0; i < device_count(); ++i) {
    char uuid[64];
    nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(i), device);
    if (nvmlDeviceGetUUID(*device, uuid, sizeof uuid) == success && text != nullptr && std::strcmp(uuid, text) == 0) return success;
  }
  return not_found;
}

STANDIN_EXPORT int nvmlDeviceGetIndex(Device device, unsigned* index) {
  if (!is_device(device)) return invalid_argument;
  *index = static_cast<unsigned>(number_of(device));
  return success;
}
STANDIN_EXPORT int nvmlDeviceGetMinorNumber(Device device, unsigned* number) { return nvmlDeviceGetIndex(device, number); }
STANDIN_EXPORT int nvmlDeviceGetName(Device device, char* text, unsigned room) {
  if (!is_device(device)) return invalid_argument;
  char name[256];
  return standin::name(name, sizeof name, number_of(device)) ? give_text(text, room, name) : uninitialized;
}

namespace {

struct MemoryInfo {
  unsigned long long total, free, used;
};
struct MemoryInfo2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

}  // namespace

STANDIN_EXPORT int nvmlDeviceGetMemoryInfo(Device device, MemoryInfo* info) {
  if (!is_device(device)) return invalid_argument;
  info->total = total_bytes();
  info->used = liveset_standin_used(number_of(device));
  info->free = info->total - info->used;
  return success;
}
STANDIN_EXPORT int nvmlDeviceGetMemoryInfo_v2(Device device, MemoryInfo2* info) {
  MemoryInfo plain{};
  if (int result = nvmlDeviceGetMemoryInfo(device, &plain); result != success) return result;
  *info = {info->version, plain.total, 0, plain.free, plain.used};
  return success;
}

STANDIN_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, void*) {
  if (!is_device(device)) return invalid_argument;
  *count = 0;
  return success;
}
STANDIN_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned* count, void* processes) {
  return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}
STANDIN_EXPORT int nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, void* processes) {
  return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

STANDIN_EXPORT int nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  if (!is_device(device)) return invalid_argument;
  *major = standin::attribute(75, number_of(device));
  *minor = standin::attribute(76, number_of(device));
  return success;
}
STANDIN_EXPORT int nvmlDeviceGetUtilizationRates(Device device, unsigned* rates) {
  if (!is_device(device)) return invalid_argument;
  rates[0] = rates[1] = 0;
  return success;
}
STANDIN_EXPORT int nvmlDeviceGetP2PStatus(Device, Device, int, int* status) {
  *status = 0;
  return success;
}
STANDIN_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = static_cast<int>(liveset_standin_number("driver_version", 13000));
  return success;
}
STANDIN_EXPORT int nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }
STANDIN_EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned room) {
  return give_text(text, room, liveset_standin_number("driver_version", 13000) < 13000 ? "570.00" : "580.00");
}
STANDIN_EXPORT int nvmlSystemGetNVMLVersion(char* text, unsigned room) { return give_text(text, room, "13.580"); }

// Links between devices, power and temperature: there are none.
STANDIN_EXPORT int nvmlDeviceGetNvLinkState(Device, unsigned, unsigned*) { return not_supported; }
STANDIN_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(Device, unsigned, int*) { return not_supported; }
STANDIN_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device, unsigned, void*) { return not_supported; }
STANDIN_EXPORT int nvmlDeviceGetTemperature(Device, int, unsigned*) { return not_supported; }
STANDIN_EXPORT int nvmlDeviceGetPowerUsage(Device, unsigned*) { return not_supported; }

// The fabric that joins machines: answered, because PyTorch warns of an error, and the answer is that this device is in none.
struct FabricInformation {
  unsigned version;
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;  // 0: not supported
  unsigned health;
};
STANDIN_EXPORT int nvmlDeviceGetGpuFabricInfoV(Device, FabricInformation* information) {
  if (information == nullptr) return invalid_argument;
  *information = {information->version, {}, success, 0, 0, 0};
  return success;
}
