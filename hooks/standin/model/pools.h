// Memory pools of the stream-ordered allocator. A pool takes memory from its device in chunks of 32 MiB and keeps what is freed until
// the program waits for the device, a stream or an event: then whole chunks that nobody uses go back, as far as the pool holds more
// than its release threshold. Since work takes no time here, what is freed can be used again at once. Thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "hooks/standin/model/memory.h"

namespace standin {

// The driver's numbers.
enum class PoolAttribute : int {
  reuse_follow_event_dependencies = 1,
  reuse_allow_opportunistic = 2,
  reuse_allow_internal_dependencies = 3,
  release_threshold = 4,
  reserved_current = 5,
  reserved_high = 6,
  used_current = 7,
  used_high = 8,
};

struct Pool {
  struct Chunk {
    std::size_t bytes = 0;
    std::map<Address, std::size_t> free;
    std::size_t used = 0;
  };
  int device = 0;
  std::size_t most_bytes = 0;  // 0: no limit
  std::uint64_t threshold = 0;
  std::uint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0;
  int reuse[4] = {0, 1, 1, 1};
  std::map<Address, Chunk> chunks;
  std::map<int, unsigned> access;
  bool destroyed = false;  // goes when its last allocation does
};

class Pools {
 public:
  static constexpr std::size_t chunk_bytes = std::size_t{32} << 20;
  static constexpr std::size_t unit = 512;

  Pools(Memory& memory, const Configuration& configuration);

  Pool* default_of(int device);
  Pool* current_of(int device);
  Error set_current(int device, Pool* pool);
  Error create(int device, std::size_t most_bytes, Pool** pool);
  Error destroy(Pool* pool);
  Error trim(Pool* pool, std::size_t keep);
  // Numbers of 64 bits, but the first three, which are int.
  Error attribute(Pool* pool, PoolAttribute attribute, void* value);
  Error set_attribute(Pool* pool, PoolAttribute attribute, const void* value);
  Error set_access(Pool* pool, int device, unsigned flags);
  Error access(Pool* pool, int device, unsigned* flags);

  Error allocate(Pool* pool, std::size_t bytes, Address* address);
  Error free(Address address);
  // The program waited for work of a device.
  void synchronized(int device);
  bool is_pool(Pool* pool) const;

 private:
  struct Block {
    Pool* pool;
    Address chunk;
    std::size_t bytes;
  };

  void put_back(Address address);
  Error take(Pool& pool, std::size_t bytes, Address* address);
  Error grow(Pool& pool, std::size_t bytes);
  void release(Pool& pool, std::uint64_t keep);
  bool known(Pool* pool) const { return pools_.count(pool) > 0 && !pool->destroyed; }

  Memory& memory_;
  mutable std::mutex mutex_;
  std::unordered_map<Pool*, std::unique_ptr<Pool>> pools_;
  std::map<int, Pool*> defaults_, current_;
  std::unordered_map<Address, Block> blocks_;
};

}  // namespace standin
