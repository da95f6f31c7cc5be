// Device, managed and host memory; what an address belongs to; arrays.
#include <algorithm>
#include <cstring>

#include "hooks/standin/driver/state.h"

using namespace standin;

namespace {

// Functions that a capture cannot hold.
Here uncaptured() {
  auto place = here();
  if (place.error == success) place.error = place.machine->streams.forbid_while_capturing(thread_state().capture_mode);
  return place;
}

}  // namespace

STANDIN_EXPORT int cuMemAlloc_v2(Address* address, std::size_t bytes) {
  auto place = uncaptured();
  return place.error != success ? place.error
                                : place.machine->memory.allocate(place.device(), bytes, Kind::device, address, place.context->id);
}

STANDIN_EXPORT int cuMemAllocManaged(Address* address, std::size_t bytes, unsigned flags) {
  auto place = uncaptured();
  if (place.error != success) return place.error;
  if (flags != 1 && flags != 2 && flags != 4) return invalid_value;  // for all devices, the host, one stream
  return place.machine->memory.allocate(place.device(), bytes, Kind::managed, address, place.context->id);
}

STANDIN_EXPORT int cuMemAllocPitch_v2(Address* address, std::size_t* pitch, std::size_t width, std::size_t rows, unsigned element) {
  if (element != 4 && element != 8 && element != 16) return invalid_value;
  if (pitch == nullptr || width == 0 || rows == 0) return invalid_value;
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc_v2(address, *pitch * rows);
}

STANDIN_EXPORT int cuMemFree_v2(Address address) {
  auto place = uncaptured();
  if (place.error != success) return place.error;
  if (address == 0) return success;
  (void)place.machine->streams.synchronize_device(place.device());
  return free_any(*place.machine, address);
}

STANDIN_EXPORT int cuMemGetInfo_v2(std::size_t* available, std::size_t* total) {
  auto place = here();
  if (place.error != success) return place.error;
  *total = place.machine->memory.total();
  *available = *total - place.machine->memory.used(place.device());
  return success;
}

STANDIN_EXPORT int cuMemGetAddressRange_v2(Address* base, std::size_t* bytes, Address address) {
  auto place = here();
  if (place.error != success) return place.error;
  auto found = place.machine->memory.find(address);
  if (!found || is_host(found->kind)) return not_found;
  if (base != nullptr) *base = found->address;
  if (bytes != nullptr) *bytes = found->bytes;
  return success;
}

STANDIN_EXPORT int cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  auto place = here();
  if (place.error != success) return place.error;
  if (flags > 7) return invalid_value;
  Address found = 0;
  auto error = place.machine->memory.allocate_host(bytes, flags, place.device(), &found);
  if (error == success) *address = reinterpret_cast<void*>(found);
  return error;
}
STANDIN_EXPORT int cuMemAllocHost_v2(void** address, std::size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

STANDIN_EXPORT int cuMemFreeHost(void* address) {
  auto place = here();
  return place.error != success ? place.error : place.machine->memory.free_host(reinterpret_cast<Address>(address));
}

STANDIN_EXPORT int cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned flags) {
  auto place = here();
  if (place.error != success) return place.error;
  return place.machine->memory.register_host(reinterpret_cast<Address>(address), bytes, flags, place.device());
}

STANDIN_EXPORT int cuMemHostUnregister(void* address) {
  auto place = here();
  return place.error != success ? place.error : place.machine->memory.unregister_host(reinterpret_cast<Address>(address));
}

STANDIN_EXPORT int cuMemHostGetDevicePointer_v2(Address* device_address, void* address, unsigned flags) {
  auto place = here();
  if (place.error != success) return place.error;
  auto found = place.machine->memory.find(reinterpret_cast<Address>(address));
  if (flags != 0 || !found || !is_host(found->kind)) return invalid_value;
  *device_address = reinterpret_cast<Address>(address);
  return success;
}

STANDIN_EXPORT int cuMemHostGetFlags(unsigned* flags, void* address) {
  auto place = here();
  if (place.error != success) return place.error;
  auto found = place.machine->memory.find(reinterpret_cast<Address>(address));
  if (!found || !is_host(found->kind)) return invalid_value;
  *flags = found->flags;
  return success;
}

namespace {

template <class Value>
int answer(void* data, Value value) {
  std::memcpy(data, &value, sizeof value);
  return success;
}

// By the numbers of CUpointer_attribute.
int pointer_attribute(const Here& place, void* data, int attribute, Address address) {
  auto found = place.machine->memory.find(address);
  const bool host = found && is_host(found->kind);
  switch (attribute) {
    case 1: {  // context
      Context* context = nullptr;
      bool first = false;
      if (!found) return invalid_value;
      if (place.machine->contexts.is_primary_active(found->device)) {
        (void)place.machine->contexts.retain_primary(found->device, &context, &first);
        (void)place.machine->contexts.release_primary(found->device);
      }
      return answer(data, found->kind == Kind::mapped ? nullptr : context);
    }
    case 2: return found ? answer(data, host ? 1u : 2u) : invalid_value;                                     // memory type
    case 3: return found ? answer(data, address) : invalid_value;                                            // address on the device
    case 4: return host || (found && found->kind == Kind::managed) ? answer(data, address) : invalid_value;  // address on the host
    case 6: return found ? answer(data, 0) : invalid_value;                                                  // synchronous operations
    case 7: return found ? answer(data, found->id) : invalid_value;
    case 8: return found ? answer(data, found->kind == Kind::managed ? 1u : 0u) : invalid_value;
    case 9: return answer(data, found ? found->device : -2);
    case 10: return answer(data, found && (found->kind == Kind::device || found->kind == Kind::imported) ? 1u : 0u);  // for IPC
    case 11: return answer(data, found ? found->address : Address{0});
    case 12: return answer(data, found ? found->bytes : std::size_t{0});
    case 13: return answer(data, found.has_value() ? 1u : 0u);                     // mapped
    case 14: return answer(data, found && found->kind == Kind::mapped ? 1u : 0u);  // handle types: descriptors
    case 16: return answer(data, found ? 3u : 0u);                                 // access
    case 17: return answer(data, found && found->kind == Kind::pool ? found->pool : nullptr);
    case 18:
    case 19: return found ? answer(data, attribute == 18 ? found->bytes : found->address) : invalid_value;
    default: return invalid_value;
  }
}

}  // namespace

STANDIN_EXPORT int cuPointerGetAttribute(void* data, int attribute, Address address) {
  Here place{machine()};
  if (place.machine == nullptr) return not_initialized;
  return data == nullptr ? invalid_value : pointer_attribute(place, data, attribute, address);
}

// What cannot be answered is left as zeros; the call itself succeeds.
STANDIN_EXPORT int cuPointerGetAttributes(unsigned count, const int* attributes, void** data, Address address) {
  Here place{machine()};
  if (place.machine == nullptr) return not_initialized;
  if (attributes == nullptr || data == nullptr) return invalid_value;
  for (unsigned i = 0; i < count; ++i) {
    if (pointer_attribute(place, data[i], attributes[i], address) == success) continue;
    const bool wide = attributes[i] == 1 || attributes[i] == 3 || attributes[i] == 4 || attributes[i] == 7;
    if (attributes[i] == 2)
      answer(data[i], 0u);
    else if (wide)
      answer(data[i], std::uint64_t{0});
    else
      answer(data[i], 0u);
  }
  return success;
}

STANDIN_EXPORT int cuPointerSetAttribute(const void* value, int attribute, Address address) {
  auto place = here();
  if (place.error != success) return place.error;
  return value != nullptr && attribute == 6 && place.machine->memory.find(address) ? success : invalid_value;
}

// Managed memory lives everywhere at once: advice and moves change nothing.
STANDIN_EXPORT int cuMemAdvise(Address, std::size_t, int, int) { return here().error; }
STANDIN_EXPORT int cuMemAdvise_v2(Address, std::size_t, int, Location) { return here().error; }
STANDIN_STREAM_FUNCTION(cuMemPrefetchAsync, (Address address, std::size_t bytes, int device, void* stream),
                        (address, bytes, device, own_stream(stream))) {
  (void)address, (void)bytes, (void)device;
  return enqueue(here(), stream, NodeType::empty, [] {});
}
STANDIN_STREAM_FUNCTION(cuMemPrefetchAsync_v2, (Address address, std::size_t bytes, Location location, unsigned flags, void* stream),
                        (address, bytes, location, flags, own_stream(stream))) {
  (void)flags;
  return cuMemPrefetchAsync(address, bytes, location.id, stream);
}

namespace {

struct Array {
  Address address;
  ArrayDescription3D description;
};

std::size_t bytes_of(const ArrayDescription3D& description) {
  std::size_t element = 0;
  switch (description.format) {
    case 0x01:
    case 0x08: element = 1; break;
    case 0x02:
    case 0x09:
    case 0x10: element = 2; break;
    case 0x03:
    case 0x0a:
    case 0x20: element = 4; break;
    default: return 0;
  }
  auto rows = std::max<std::size_t>(description.height, 1) * std::max<std::size_t>(description.depth, 1);
  return description.width * rows * element * description.channels;
}

}  // namespace

STANDIN_EXPORT int cuArray3DCreate_v2(Array** array, const ArrayDescription3D* description) {
  auto place = uncaptured();
  if (place.error != success) return place.error;
  if (array == nullptr || description == nullptr || bytes_of(*description) == 0) return invalid_value;
  Address address = 0;
  auto error = place.machine->memory.allocate(place.device(), bytes_of(*description), Kind::device, &address, place.context->id);
  if (error == success) *array = new Array{address, *description};
  return error;
}

STANDIN_EXPORT int cuArrayCreate_v2(Array** array, const ArrayDescription* description) {
  if (description == nullptr) return invalid_value;
  const ArrayDescription3D whole{description->width, description->height, 0, description->format, description->channels, 0};
  return cuArray3DCreate_v2(array, &whole);
}

STANDIN_EXPORT int cuArray3DGetDescriptor_v2(ArrayDescription3D* description, const Array* array) {
  if (description == nullptr || array == nullptr) return invalid_value;
  *description = array->description;
  return success;
}

STANDIN_EXPORT int cuArrayDestroy(Array* array) {
  auto place = uncaptured();
  if (place.error != success) return place.error;
  if (array == nullptr) return invalid_handle;
  auto error = place.machine->memory.free(array->address);
  if (error == success) delete array;
  return error;
}
