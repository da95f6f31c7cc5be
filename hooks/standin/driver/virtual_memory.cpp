// Virtual memory management. Handles to other processes (descriptors, fabric) and multicast are not simulated: they are refused.
#include "hooks/standin/driver/state.h"

using namespace standin;

STANDIN_EXPORT int cuMemGetAllocationGranularity(std::size_t* granularity, const AllocationProperties* properties, int) {
  if (machine() == nullptr) return not_initialized;
  if (granularity == nullptr || properties == nullptr) return invalid_value;
  *granularity = VirtualMemory::granularity;
  return success;
}

STANDIN_EXPORT int cuMemAddressReserve(Address* address, std::size_t bytes, std::size_t alignment, Address, unsigned long long flags) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  return flags != 0 ? invalid_value : all->virtual_memory.reserve(bytes, alignment, address);
}

STANDIN_EXPORT int cuMemAddressFree(Address address, std::size_t bytes) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->virtual_memory.unreserve(address, bytes);
}

STANDIN_EXPORT int cuMemCreate(std::uint64_t* handle, std::size_t bytes, const AllocationProperties* properties, unsigned long long flags) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (properties == nullptr || flags != 0 || properties->type != 1) return invalid_value;
  if (properties->location.type != 1) return not_supported;  // memory of the host
  if (auto place = at_device(properties->location.id); place.error != success) return place.error;
  return all->virtual_memory.create(properties->location.id, bytes, handle);
}

STANDIN_EXPORT int cuMemRelease(std::uint64_t handle) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->virtual_memory.release(handle);
}

STANDIN_EXPORT int cuMemMap(Address address, std::size_t bytes, std::size_t offset, std::uint64_t handle, unsigned long long flags) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  return flags != 0 ? invalid_value : all->virtual_memory.map(address, bytes, offset, handle);
}

STANDIN_EXPORT int cuMemUnmap(Address address, std::size_t bytes) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->virtual_memory.unmap(address, bytes);
}

STANDIN_EXPORT int cuMemSetAccess(Address address, std::size_t bytes, const AccessDescription* descriptions, std::size_t count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (descriptions == nullptr || count == 0) return invalid_value;
  for (std::size_t i = 0; i < count; ++i) {
    if (descriptions[i].location.type != 1) continue;
    if (auto place = at_device(descriptions[i].location.id); place.error != success) return place.error;
    if (auto error = all->virtual_memory.set_access(address, bytes, descriptions[i].location.id, descriptions[i].flags); error != success)
      return error;
  }
  return success;
}

STANDIN_EXPORT int cuMemGetAccess(unsigned long long* flags, const Location* location, Address address) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (flags == nullptr || location == nullptr) return invalid_value;
  unsigned found = 0;
  auto error = all->virtual_memory.access(address, location->id, &found);
  if (error == success) *flags = found;
  return error;
}

STANDIN_EXPORT int cuMemRetainAllocationHandle(std::uint64_t* handle, void* address) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  return handle == nullptr ? invalid_value : all->virtual_memory.retain(reinterpret_cast<Address>(address), handle);
}

STANDIN_EXPORT int cuMemGetAllocationPropertiesFromHandle(AllocationProperties* properties, std::uint64_t handle) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (properties == nullptr) return invalid_value;
  *properties = {};
  properties->type = properties->location.type = 1;
  return all->virtual_memory.device_of(handle, &properties->location.id);
}

STANDIN_EXPORT int cuMemExportToShareableHandle(void*, std::uint64_t, int, unsigned long long) { return not_supported; }
STANDIN_EXPORT int cuMemImportFromShareableHandle(std::uint64_t*, void*, int) { return not_supported; }
