#include "hooks/standin/model/virtual_memory.h"

namespace standin {
namespace {

bool is_multiple(std::size_t value) { return value % VirtualMemory::granularity == 0; }

}  // namespace

Error VirtualMemory::reserve(std::size_t bytes, std::size_t alignment, Address* address) {
  if (bytes == 0 || !is_multiple(bytes) || address == nullptr || (alignment & (alignment - 1)) != 0) return invalid_value;
  const auto found = memory_.reserve(bytes, alignment);
  if (found == 0) return out_of_memory;
  std::lock_guard lock(mutex_);
  reservations_[found] = bytes;
  *address = found;
  return success;
}

Error VirtualMemory::unreserve(Address address, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return invalid_value;
  auto mapped = mappings_.lower_bound(address);
  if (mapped != mappings_.end() && mapped->first < address + bytes) return invalid_value;
  reservations_.erase(found);
  memory_.unreserve(address, bytes);
  return success;
}

Error VirtualMemory::create(int device, std::size_t bytes, std::uint64_t* handle) {
  if (bytes == 0 || !is_multiple(bytes) || handle == nullptr) return invalid_value;
  if (auto error = memory_.charge(device, bytes); error != success) return error;
  std::lock_guard lock(mutex_);
  *handle = next_handle_++;
  handles_[*handle] = {device, bytes, 1, 0};
  return success;
}

void VirtualMemory::drop_unused(std::uint64_t handle) {
  auto found = handles_.find(handle);
  if (found->second.references > 0 || found->second.mappings > 0) return;
  memory_.discharge(found->second.device, found->second.bytes);
  handles_.erase(found);
}

Error VirtualMemory::release(std::uint64_t handle) {
  std::lock_guard lock(mutex_);
  auto found = handles_.find(handle);
  if (found == handles_.end() || found->second.references == 0) return invalid_value;
  --found->second.references;
  drop_unused(handle);
  return success;
}

Error VirtualMemory::retain(Address address, std::uint64_t* handle) {
  std::lock_guard lock(mutex_);
  auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return invalid_value;
  auto& [begin, mapping] = *std::prev(after);
  if (address >= begin + mapping.bytes) return invalid_value;
  ++handles_[mapping.handle].references;
  *handle = mapping.handle;
  return success;
}

bool VirtualMemory::reservation_of(Address address, Address* begin, std::size_t* bytes) const {
  std::lock_guard lock(mutex_);
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return false;
  auto reservation = std::prev(after);
  if (address >= reservation->first + reservation->second) return false;
  *begin = reservation->first;
  *bytes = reservation->second;
  return true;
}

Error VirtualMemory::map(Address address, std::size_t bytes, std::size_t offset, std::uint64_t handle) {
  if (bytes == 0 || !is_multiple(bytes) || !is_multiple(address) || offset != 0) return invalid_value;
  Address begin = 0;
  std::size_t reserved = 0;
  if (!reservation_of(address, &begin, &reserved) || address + bytes > begin + reserved) return invalid_value;
  std::lock_guard lock(mutex_);
  auto found = handles_.find(handle);
  if (found == handles_.end() || found->second.references == 0 || bytes > found->second.bytes) return invalid_value;
  auto after = mappings_.lower_bound(address + bytes);
  if (after != mappings_.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second.bytes > address) return invalid_value;
  }
  if (auto error = memory_.add({address, bytes, found->second.device, Kind::mapped}, true); error != success) return error;
  ++found->second.mappings;
  mappings_[address] = {bytes, handle, {}};
  return success;
}

bool VirtualMemory::covers(Address address, std::size_t bytes) const {
  auto mapping = mappings_.find(address);
  for (Address next = address; next < address + bytes; ++mapping) {
    if (mapping == mappings_.end() || mapping->first != next) return false;
    next += mapping->second.bytes;
    if (next > address + bytes) return false;
  }
  return true;
}

Error VirtualMemory::unmap(Address address, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes == 0 || !covers(address, bytes)) return invalid_value;
  for (auto mapping = mappings_.find(address); mapping != mappings_.end() && mapping->first < address + bytes;) {
    const auto handle = mapping->second.handle;
    memory_.remove(mapping->first, true);
    mapping = mappings_.erase(mapping);
    --handles_[handle].mappings;
    drop_unused(handle);
  }
  return success;
}

Error VirtualMemory::set_access(Address address, std::size_t bytes, int device, unsigned flags) {
  std::lock_guard lock(mutex_);
  if (bytes == 0 || !covers(address, bytes)) return invalid_value;
  for (auto mapping = mappings_.find(address); mapping != mappings_.end() && mapping->first < address + bytes; ++mapping)
    mapping->second.access[device] = flags;
  return success;
}

Error VirtualMemory::access(Address address, int device, unsigned* flags) const {
  std::lock_guard lock(mutex_);
  auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin() || flags == nullptr) return invalid_value;
  const auto& [begin, mapping] = *std::prev(after);
  if (address >= begin + mapping.bytes) return invalid_value;
  auto found = mapping.access.find(device);
  *flags = found == mapping.access.end() ? 0 : found->second;
  return success;
}

Error VirtualMemory::device_of(std::uint64_t handle, int* device) const {
  std::lock_guard lock(mutex_);
  auto found = handles_.find(handle);
  if (found == handles_.end()) return invalid_value;
  *device = found->second.device;
  return success;
}

}  // namespace standin
