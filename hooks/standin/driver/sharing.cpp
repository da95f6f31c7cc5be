// Memory and events between processes.
#include <cstring>

#include "hooks/standin/driver/state.h"

using namespace standin;

namespace {

HandleBytes bytes_of(const SharedHandle& handle) {
  HandleBytes bytes;
  std::memcpy(bytes.data(), handle.bytes, bytes.size());
  return bytes;
}

int give(Error error, const HandleBytes& bytes, SharedHandle* handle) {
  if (error == success) std::memcpy(handle->bytes, bytes.data(), bytes.size());
  return error;
}

}  // namespace

STANDIN_EXPORT int cuIpcGetMemHandle(SharedHandle* handle, Address address) {
  auto place = here();
  if (place.error != success) return place.error;
  HandleBytes bytes;
  return give(place.machine->sharing.export_memory(address, &bytes), bytes, handle);
}

STANDIN_EXPORT int cuIpcOpenMemHandle_v2(Address* address, SharedHandle handle, unsigned flags) {
  auto place = here();
  if (place.error != success) return place.error;
  constexpr unsigned lazy_peer_access = 1;
  return flags != lazy_peer_access ? invalid_value : place.machine->sharing.open_memory(bytes_of(handle), address);
}
STANDIN_EXPORT int cuIpcOpenMemHandle(Address* address, SharedHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(address, handle, flags);
}

STANDIN_EXPORT int cuIpcCloseMemHandle(Address address) {
  auto place = here();
  return place.error != success ? place.error : place.machine->sharing.close_memory(address);
}

STANDIN_EXPORT int cuIpcGetEventHandle(SharedHandle* handle, void* event) {
  auto place = here();
  if (place.error != success) return place.error;
  HandleBytes bytes;
  return give(place.machine->sharing.export_event(event, &bytes), bytes, handle);
}

STANDIN_EXPORT int cuIpcOpenEventHandle(void** event, SharedHandle handle) {
  auto place = here();
  return place.error != success ? place.error : place.machine->sharing.open_event(bytes_of(handle), place.device(), event);
}
