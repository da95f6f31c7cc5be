// A process of its own on the stand-in driver, for driver_test.cpp:
//   process open HANDLE BYTES   opens memory that another process shows (64 bytes in hexadecimal): status 0 when it is of that many bytes
//   process map FILE            loads a library, then begins: a real NVIDIA library must end this process
//   tables FILE                 the same, but asks for private tables as NVIDIA's runtime does
//   count FILE                  the status is the number of devices, or the error of the beginning
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

void* driver = nullptr;

template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(dlsym(driver, name))(arguments...);
}

struct SharedHandle {
  unsigned char bytes[64];
};

int open_shared(const std::string& text, std::size_t bytes) {
  SharedHandle handle{};
  for (std::size_t i = 0; i < sizeof handle.bytes; ++i)
    handle.bytes[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  void* context = nullptr;
  std::uint64_t address = 0, again = 0, base = 0;
  std::size_t size = 0;
  if (call("cuDevicePrimaryCtxRetain", &context, 0) != 0 || call("cuCtxSetCurrent", context) != 0) return 3;
  if (call("cuIpcOpenMemHandle_v2", &address, handle, 0u) != 1) return 4;  // its one flag must be given
  if (call("cuIpcOpenMemHandle_v2", &address, handle, 1u) != 0 || call("cuIpcOpenMemHandle_v2", &again, handle, 1u) != 0) return 5;
  if (address != again || call("cuMemGetAddressRange_v2", &base, &size, address + 1) != 0 || base != address || size != bytes) return 6;
  if (call("cuMemFree_v2", address) != 1) return 7;  // it belongs to the other process
  if (call("cuIpcCloseMemHandle", address) != 0 || call("cuIpcCloseMemHandle", address) != 0) return 8;
  return call("cuIpcCloseMemHandle", address) == 1 ? 0 : 9;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 64;
  const std::string mode = arguments[1];
  if (mode != "open" && dlopen(arguments[2], RTLD_NOW) == nullptr) return 65;
  driver = dlopen(LIVESET_LIB_DIR "/liveset/standin/driver/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return 66;
  if (mode == "tables") return call("cuGetExportTable", static_cast<const void**>(nullptr), static_cast<const void*>(nullptr));
  if (const int error = call("cuInit", 0u); error != 0) return mode == "count" ? error : 66;
  if (int devices = 0; mode == "count") return call("cuDeviceGetCount", &devices) == 0 ? devices : 67;
  return mode == "open" && count == 4 ? open_shared(arguments[2], std::strtoull(arguments[3], nullptr, 10)) : 0;
}
