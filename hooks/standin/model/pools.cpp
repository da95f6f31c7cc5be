#include "hooks/standin/model/pools.h"

#include <algorithm>

namespace standin {
namespace {

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Pools::Pools(Memory& memory, const Configuration& configuration) : memory_(memory) {
  for (int device = 0; device < configuration.devices; ++device) {
    auto pool = std::make_unique<Pool>();
    pool->device = device;
    pool->access[device] = 3;
    defaults_[device] = current_[device] = pool.get();
    pools_[pool.get()] = std::move(pool);
  }
}

Pool* Pools::default_of(int device) { return defaults_.at(device); }

Pool* Pools::current_of(int device) {
  std::lock_guard lock(mutex_);
  return current_.at(device);
}

Error Pools::set_current(int device, Pool* pool) {
  std::lock_guard lock(mutex_);
  if (!known(pool)) return invalid_value;
  if (pool->device != device) return invalid_device;
  current_[device] = pool;
  return success;
}

bool Pools::is_pool(Pool* pool) const {
  std::lock_guard lock(mutex_);
  return known(pool);
}

Error Pools::create(int device, std::size_t most_bytes, Pool** pool) {
  if (pool == nullptr) return invalid_value;
  auto made = std::make_unique<Pool>();
  made->device = device;
  made->most_bytes = most_bytes;
  made->access[device] = 3;
  *pool = made.get();
  std::lock_guard lock(mutex_);
  pools_[*pool] = std::move(made);
  return success;
}

Error Pools::destroy(Pool* pool) {
  std::lock_guard lock(mutex_);
  if (!known(pool)) return invalid_value;
  if (defaults_.at(pool->device) == pool) return invalid_value;
  if (current_.at(pool->device) == pool) current_[pool->device] = defaults_.at(pool->device);
  pool->destroyed = true;
  if (pool->used > 0) return success;
  release(*pool, 0);
  pools_.erase(pool);
  return success;
}

void Pools::release(Pool& pool, std::uint64_t keep) {
  for (auto chunk = pool.chunks.begin(); chunk != pool.chunks.end() && pool.reserved > keep;) {
    if (chunk->second.used > 0) {
      ++chunk;
      continue;
    }
    memory_.unreserve(chunk->first, chunk->second.bytes);
    memory_.discharge(pool.device, chunk->second.bytes);
    pool.reserved -= chunk->second.bytes;
    chunk = pool.chunks.erase(chunk);
  }
}

Error Pools::trim(Pool* pool, std::size_t keep) {
  std::lock_guard lock(mutex_);
  if (!known(pool)) return invalid_value;
  release(*pool, keep);
  return success;
}

void Pools::synchronized(int device) {
  std::lock_guard lock(mutex_);
  for (auto& [handle, pool] : pools_)
    if (pool->device == device && pool->reserved > pool->used) release(*pool, pool->threshold);
}

Error Pools::grow(Pool& pool, std::size_t bytes) {
  const auto size = round_up(bytes, chunk_bytes);
  if (pool.most_bytes > 0 && pool.reserved + size > pool.most_bytes) return out_of_memory;
  if (auto error = memory_.charge(pool.device, size); error != success) return error;
  const auto address = memory_.reserve(size, AddressSpace::alignment);
  if (address == 0) {
    memory_.discharge(pool.device, size);
    return out_of_memory;
  }
  pool.chunks[address] = {size, {{address, size}}, 0};
  pool.reserved += size;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  return success;
}

Error Pools::take(Pool& pool, std::size_t bytes, Address* address) {
  for (auto& [begin, chunk] : pool.chunks) {
    auto range = std::find_if(chunk.free.begin(), chunk.free.end(), [bytes](const auto& free) { return free.second >= bytes; });
    if (range == chunk.free.end()) continue;
    *address = range->first;
    if (range->second > bytes) chunk.free[range->first + bytes] = range->second - bytes;
    chunk.free.erase(*address);
    chunk.used += bytes;
    pool.used += bytes;
    blocks_[*address] = {&pool, begin, bytes};
    return success;
  }
  return out_of_memory;
}

Error Pools::allocate(Pool* pool, std::size_t bytes, Address* address) {
  if (address == nullptr || bytes == 0) return invalid_value;
  std::lock_guard lock(mutex_);
  if (!known(pool)) return invalid_value;
  if (bytes > memory_.total()) return out_of_memory;
  const auto size = round_up(bytes, unit);
  if (take(*pool, size, address) != success) {
    if (grow(*pool, size) != success) {
      release(*pool, 0);
      if (auto error = grow(*pool, size); error != success) return error;
    }
    if (auto error = take(*pool, size, address); error != success) return error;
  }
  if (auto error = memory_.add({*address, bytes, pool->device, Kind::pool, 0, 0, pool}, true); error != success) {
    put_back(*address);
    return error;
  }
  pool->used_high = std::max(pool->used_high, pool->used);
  return success;
}

Error Pools::free(Address address) {
  std::lock_guard lock(mutex_);
  if (blocks_.count(address) == 0) return invalid_value;
  // Blocks are 512 bytes apart, pages are larger: what is behind the block stays until its chunk goes.
  memory_.remove(address, false);
  put_back(address);
  return success;
}

void Pools::put_back(Address address) {
  const auto found = blocks_.find(address);
  const auto block = found->second;
  blocks_.erase(found);
  auto& pool = *block.pool;
  auto& chunk = pool.chunks.at(block.chunk);
  chunk.used -= block.bytes;
  pool.used -= block.bytes;
  auto range = chunk.free.emplace(address, block.bytes).first;
  if (auto after = std::next(range); after != chunk.free.end() && after->first == address + block.bytes) {
    range->second += after->second;
    chunk.free.erase(after);
  }
  if (range != chunk.free.begin()) {
    auto before = std::prev(range);
    if (before->first + before->second == address) {
      before->second += range->second;
      chunk.free.erase(range);
    }
  }
  if (pool.destroyed && pool.used == 0) {
    release(pool, 0);
    pools_.erase(&pool);
  }
}

Error Pools::attribute(Pool* pool, PoolAttribute attribute, void* value) {
  std::lock_guard lock(mutex_);
  if (!known(pool) || value == nullptr) return invalid_value;
  auto answer = [value](std::uint64_t number) {
    *static_cast<std::uint64_t*>(value) = number;
    return success;
  };
  switch (attribute) {
    case PoolAttribute::release_threshold: return answer(pool->threshold);
    case PoolAttribute::reserved_current: return answer(pool->reserved);
    case PoolAttribute::reserved_high: return answer(pool->reserved_high);
    case PoolAttribute::used_current: return answer(pool->used);
    case PoolAttribute::used_high: return answer(pool->used_high);
    default: break;
  }
  const auto number = static_cast<int>(attribute);
  if (number < 1 || number > 3) return invalid_value;
  *static_cast<int*>(value) = pool->reuse[number];
  return success;
}

Error Pools::set_attribute(Pool* pool, PoolAttribute attribute, const void* value) {
  std::lock_guard lock(mutex_);
  if (!known(pool) || value == nullptr) return invalid_value;
  const auto number = static_cast<int>(attribute);
  if (number >= 1 && number <= 3) {
    pool->reuse[number] = *static_cast<const int*>(value);
    return success;
  }
  const auto wide = *static_cast<const std::uint64_t*>(value);
  if (attribute == PoolAttribute::release_threshold) {
    pool->threshold = wide;
    return success;
  }
  // High marks can only be set back.
  if (wide != 0) return invalid_value;
  if (attribute == PoolAttribute::reserved_high)
    pool->reserved_high = pool->reserved;
  else if (attribute == PoolAttribute::used_high)
    pool->used_high = pool->used;
  else
    return invalid_value;
  return success;
}

Error Pools::set_access(Pool* pool, int device, unsigned flags) {
  std::lock_guard lock(mutex_);
  if (!known(pool)) return invalid_value;
  if (device == pool->device && flags != 3) return invalid_device;
  pool->access[device] = flags;
  return success;
}

Error Pools::access(Pool* pool, int device, unsigned* flags) {
  std::lock_guard lock(mutex_);
  if (!known(pool) || flags == nullptr) return invalid_value;
  auto found = pool->access.find(device);
  *flags = found == pool->access.end() ? 0 : found->second;
  return success;
}

}  // namespace standin
