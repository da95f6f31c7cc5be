#include "hooks/standin/model/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace standin {
namespace {

constexpr std::size_t page = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }
void* pointer(Address address) { return reinterpret_cast<void*>(address); }
char* bytes_at(Address address) { return reinterpret_cast<char*>(address); }

std::size_t charged_for(std::size_t bytes) { return round_up(bytes, bytes >= (std::size_t{1} << 20) ? AddressSpace::alignment : 512); }

// Zeros at the cost of the pages' ends: whole pages are dropped.
void zero(Address address, std::size_t bytes) {
  const Address first_page = round_up(address, page);
  const Address last_page = (address + bytes) / page * page;
  if (bytes < 16 * page || first_page >= last_page) {
    std::memset(pointer(address), 0, bytes);
    return;
  }
  std::memset(pointer(address), 0, first_page - address);
  madvise(pointer(first_page), last_page - first_page, MADV_DONTNEED);
  std::memset(pointer(last_page), 0, address + bytes - last_page);
}

}  // namespace

// An arena holds what all devices hold, twice: a fragmented device must not run out of addresses before memory.
Memory::Memory(const Configuration& configuration)
    : configuration_(configuration),
      allocations_(configuration.memory_bytes * static_cast<std::size_t>(configuration.devices) * 2),
      reservations_(configuration.memory_bytes * 2) {}

Memory::~Memory() {
  for (const auto& [address, entry] : entries_)
    if (entry.allocation.kind == Kind::host) munmap(pointer(address), round_up(entry.allocation.bytes, page));
}

Error Memory::charge(int device, std::size_t bytes) {
  auto& used = used_[static_cast<std::size_t>(device)];
  auto before = used.load();
  do {
    if (bytes > total() || before > total() - bytes) return out_of_memory;
  } while (!used.compare_exchange_weak(before, before + bytes));
  return success;
}

void Memory::discharge(int device, std::size_t bytes) { used_[static_cast<std::size_t>(device)] -= bytes; }

std::size_t Memory::used(int device) const { return used_[static_cast<std::size_t>(device)]; }

Error Memory::allocate(int device, std::size_t bytes, Kind kind, Address* address, std::uint64_t context) {
  if (bytes == 0 || address == nullptr) return invalid_value;
  if (bytes > total()) return out_of_memory;
  const auto charged = charged_for(bytes);
  if (auto error = charge(device, charged); error != success) return error;
  std::lock_guard lock(mutex_);
  const auto found = allocations_.take(charged);
  if (found == 0 || !back(found, charged)) {
    if (found != 0) allocations_.give_back(found, charged);
    discharge(device, charged);
    return out_of_memory;
  }
  entries_[found] = {{found, bytes, device, kind, next_id(), 0, nullptr, context}, charged};
  *address = found;
  return success;
}

bool Memory::back(Address address, std::size_t bytes) const {
  return configuration_.backing == Backing::none || AddressSpace::back(address, bytes);
}

Memory::Entries::iterator Memory::entry_at(Address address) { return entries_.find(address); }

// Of an allocation that `allocate` made.
Memory::Entries::iterator Memory::release(Entries::iterator entry) {
  const auto& [allocation, charged] = entry->second;
  allocations_.give_back(allocation.address, charged);
  written_.take(allocation.address, allocation.address + charged, [](Address, Address) {});
  discharge(allocation.device, charged);
  return entries_.erase(entry);
}

Error Memory::free(Address address) {
  std::lock_guard lock(mutex_);
  auto entry = entry_at(address);
  if (entry == entries_.end()) return invalid_value;
  const auto kind = entry->second.allocation.kind;
  if (kind != Kind::device && kind != Kind::managed) return invalid_value;
  release(entry);
  return success;
}

void Memory::free_all(std::uint64_t context) {
  std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();)
    entry = entry->second.allocation.context == context ? release(entry) : std::next(entry);
}

Error Memory::allocate_host(std::size_t bytes, unsigned flags, int device, Address* address) {
  if (bytes == 0 || address == nullptr) return invalid_value;
  if (bytes > SIZE_MAX / 2) return out_of_memory;
  void* memory = mmap(nullptr, round_up(bytes, page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return out_of_memory;
  *address = reinterpret_cast<Address>(memory);
  std::lock_guard lock(mutex_);
  entries_[*address] = {{*address, bytes, device, Kind::host, next_id(), flags, nullptr}, 0};
  return success;
}

Error Memory::free_host(Address address) {
  std::lock_guard lock(mutex_);
  auto entry = entry_at(address);
  if (entry == entries_.end() || entry->second.allocation.kind != Kind::host) return invalid_value;
  munmap(pointer(address), round_up(entry->second.allocation.bytes, page));
  entries_.erase(entry);
  return success;
}

bool Memory::overlaps_host(Address address, std::size_t bytes) const {
  auto after = entries_.lower_bound(address + bytes);
  if (after == entries_.begin()) return false;
  const auto& before = std::prev(after)->second.allocation;
  return before.address + before.bytes > address;
}

Error Memory::register_host(Address address, std::size_t bytes, unsigned flags, int device) {
  if (address == 0 || bytes == 0) return invalid_value;
  std::lock_guard lock(mutex_);
  if (overlaps_host(address, bytes)) return host_memory_already_registered;
  entries_[address] = {{address, bytes, device, Kind::registered, next_id(), flags, nullptr}, 0};
  return success;
}

Error Memory::unregister_host(Address address) {
  std::lock_guard lock(mutex_);
  auto entry = entry_at(address);
  if (entry == entries_.end() || entry->second.allocation.kind != Kind::registered) return host_memory_not_registered;
  entries_.erase(entry);
  return success;
}

std::optional<Allocation> Memory::find(Address address) const {
  std::lock_guard lock(mutex_);
  auto after = entries_.upper_bound(address);
  if (after == entries_.begin()) return std::nullopt;
  const auto& allocation = std::prev(after)->second.allocation;
  if (address >= allocation.address + allocation.bytes) return std::nullopt;
  return allocation;
}

bool Memory::on_device(Address address) const { return allocations_.contains(address) || reservations_.contains(address); }

Address Memory::reserve(std::size_t bytes, std::size_t alignment) {
  std::lock_guard lock(mutex_);
  return reservations_.take(bytes, alignment);
}

void Memory::unreserve(Address address, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  written_.take(address, address + bytes, [](Address, Address) {});
  reservations_.give_back(address, bytes);
}

Error Memory::add(const Allocation& allocation, bool backed) {
  std::lock_guard lock(mutex_);
  if (backed && !back(allocation.address, allocation.bytes)) return out_of_memory;
  auto& entry = entries_[allocation.address];
  entry = {allocation, 0};
  if (entry.allocation.id == 0) entry.allocation.id = next_id();
  return success;
}

void Memory::remove(Address address, bool backed) {
  std::lock_guard lock(mutex_);
  auto entry = entry_at(address);
  if (entry == entries_.end()) return;
  if (backed) {
    AddressSpace::drop(address, entry->second.allocation.bytes);
    written_.take(address, address + entry->second.allocation.bytes, [](Address, Address) {});
  }
  entries_.erase(entry);
}

Error Memory::allocate_uncounted(int device, std::size_t bytes, Kind kind, Address* address) {
  const auto found = reserve(bytes, AddressSpace::alignment);
  if (found == 0) return out_of_memory;
  if (auto error = add({found, bytes, device, kind}, true); error != success) {
    unreserve(found, bytes);
    return error;
  }
  *address = found;
  return success;
}

void Memory::free_uncounted(Address address, std::size_t bytes) {
  remove(address, true);
  unreserve(address, bytes);
}

bool Memory::keeps(std::size_t bytes) const {
  return configuration_.backing == Backing::all || (configuration_.backing == Backing::small && bytes <= small_copy);
}

void Memory::copy(Address to, Address from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  const bool to_device = on_device(to);
  const bool from_device = on_device(from);
  if ((!to_device && !from_device) || keeps(bytes)) {
    std::memmove(pointer(to), pointer(from), bytes);
    if (to_device) note_written(to, bytes);
  } else if (!to_device) {
    std::memset(pointer(to), 0, bytes);
  }
}

void Memory::note_written(Address address, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  written_.add(address, address + bytes);
}

void Memory::forget(Address address, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  written_.take(address, address + bytes, [](Address begin, Address end) { zero(begin, end - begin); });
}

void Memory::fill(Address to, std::uint32_t value, std::size_t width, std::size_t count) {
  const auto bytes = width * count;
  if (bytes == 0) return;
  const bool device = on_device(to);
  if (device && configuration_.backing == Backing::none) return;
  const std::uint32_t used_bits = width == 4 ? value : value & ((1u << (8 * width)) - 1);
  if (used_bits == 0 && device) {
    zero(to, bytes);
    return;
  }
  if (device && !keeps(bytes)) return;
  if (device) note_written(to, bytes);
  if (width == 1) {
    std::memset(pointer(to), static_cast<int>(used_bits), bytes);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) std::memcpy(bytes_at(to) + i * width, &used_bits, width);
}

}  // namespace standin
