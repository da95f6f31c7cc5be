// Stream-ordered allocation.
#include "hooks/standin/driver/state.h"

using namespace standin;

namespace {

// Work takes no time, so an allocation is there and a free is done when the call returns; in a capture both become nodes.
int allocate(const Here& place, void* stream, Pool* pool, std::size_t bytes, Address* address) {
  if (place.error != success) return place.error;
  if (address == nullptr) return invalid_value;
  if (bytes == 0) {
    *address = 0;
    return success;
  }
  bool capturing = false;
  if (auto error = place.machine->streams.enter(place.stream(stream), &capturing); error != success) return error;
  if (!capturing) return place.machine->pools.allocate(pool, bytes, address);
  auto node = std::make_unique<Node>();
  node->type = NodeType::memory_allocation;
  node->bytes = bytes;
  node->device = pool->device;
  if (auto error = place.machine->graphs.reserve(*node); error != success) return error;
  *address = node->address;
  return place.machine->streams.add_node(place.stream(stream), std::move(node));
}

}  // namespace

STANDIN_STREAM_FUNCTION(cuMemAllocAsync, (Address * address, std::size_t bytes, void* stream), (address, bytes, own_stream(stream))) {
  auto place = here();
  if (place.error != success) return place.error;
  return allocate(place, stream, place.machine->pools.current_of(place.device()), bytes, address);
}

STANDIN_STREAM_FUNCTION(cuMemAllocFromPoolAsync, (Address * address, std::size_t bytes, Pool* pool, void* stream),
                        (address, bytes, pool, own_stream(stream))) {
  auto place = here();
  if (place.error == success && !place.machine->pools.is_pool(pool)) return invalid_value;
  return allocate(place, stream, pool, bytes, address);
}

STANDIN_STREAM_FUNCTION(cuMemFreeAsync, (Address address, void* stream), (address, own_stream(stream))) {
  auto place = here();
  if (place.error != success) return place.error;
  if (address == 0) return success;
  bool capturing = false;
  if (auto error = place.machine->streams.enter(place.stream(stream), &capturing); error != success) return error;
  if (capturing) {
    auto node = std::make_unique<Node>();
    node->type = NodeType::memory_free;
    node->address = address;
    return place.machine->streams.add_node(place.stream(stream), std::move(node));
  }
  return free_any(*place.machine, address);
}

STANDIN_EXPORT int cuDeviceGetDefaultMemPool(Pool** pool, int device) {
  auto place = at_device(device);
  if (place.error == success) *pool = place.machine->pools.default_of(device);
  return place.error;
}
STANDIN_EXPORT int cuDeviceGetMemPool(Pool** pool, int device) {
  auto place = at_device(device);
  if (place.error == success) *pool = place.machine->pools.current_of(device);
  return place.error;
}
STANDIN_EXPORT int cuDeviceSetMemPool(int device, Pool* pool) {
  auto place = at_device(device);
  return place.error != success ? place.error : place.machine->pools.set_current(device, pool);
}
STANDIN_EXPORT int cuMemGetDefaultMemPool(Pool** pool, const Location* location, int) {
  return location->type == 1 ? cuDeviceGetDefaultMemPool(pool, location->id) : static_cast<int>(not_supported);
}
STANDIN_EXPORT int cuMemGetMemPool(Pool** pool, const Location* location, int) {
  return location->type == 1 ? cuDeviceGetMemPool(pool, location->id) : static_cast<int>(not_supported);
}
STANDIN_EXPORT int cuMemSetMemPool(const Location* location, int, Pool* pool) {
  return location->type == 1 ? cuDeviceSetMemPool(location->id, pool) : static_cast<int>(not_supported);
}

STANDIN_EXPORT int cuMemPoolCreate(Pool** pool, const PoolProperties* properties) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (properties == nullptr || properties->type != 1) return invalid_value;
  if (properties->location.type != 1) return not_supported;
  if (auto place = at_device(properties->location.id); place.error != success) return place.error;
  return all->pools.create(properties->location.id, properties->most_bytes, pool);
}
STANDIN_EXPORT int cuMemPoolDestroy(Pool* pool) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->pools.destroy(pool);
}
STANDIN_EXPORT int cuMemPoolTrimTo(Pool* pool, std::size_t keep) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->pools.trim(pool, keep);
}
STANDIN_EXPORT int cuMemPoolGetAttribute(Pool* pool, int attribute, void* value) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->pools.attribute(pool, static_cast<PoolAttribute>(attribute), value);
}
STANDIN_EXPORT int cuMemPoolSetAttribute(Pool* pool, int attribute, void* value) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->pools.set_attribute(pool, static_cast<PoolAttribute>(attribute), value);
}
STANDIN_EXPORT int cuMemPoolSetAccess(Pool* pool, const AccessDescription* descriptions, std::size_t count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (descriptions == nullptr) return invalid_value;
  for (std::size_t i = 0; i < count; ++i)
    if (auto error = all->pools.set_access(pool, descriptions[i].location.id, descriptions[i].flags); error != success) return error;
  return success;
}
STANDIN_EXPORT int cuMemPoolGetAccess(unsigned* flags, Pool* pool, const Location* location) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->pools.access(pool, location->id, flags);
}
