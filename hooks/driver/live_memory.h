// What the driver has given out and not taken back, by address or handle: whose heap it lies in and how large it is. A free says
// neither, and may come from another library than the allocation.
#pragma once
#include <cstdint>

#include "hooks/core/lock.h"
#include "hooks/driver/calls.h"

namespace liveset::driver {

// Kinds of keys; a handle may have the number of an address.
enum class Space : std::uint8_t {
  unused,
  address,
  array,
  host,
  registered,
  pool,
  handle,
  mapping,
  reservation,
  external,
  graph_node,
  graph
};

struct Entry {
  Word key = 0, bytes = 0;
  Word context = 0;  // with which it ends, when nobody frees it before; 0: with none
  Word other = 1;    // addresses that are opened more than once, and handles: how often; graph: its first node
  std::uint32_t heap = 0;
  Space space = Space::unused;
  bool is_leaving = false;    // its free is under way
  bool is_foreign = false;    // memory of another process or interface
  bool is_multicast = false;  // no memory of its own
};

class LiveMemory {
 public:
  // Takes the place of an entry with the same key: `before`, whose space is `unused` when there was none. False: no memory for the table;
  // then the entry's free will not be recorded.
  bool put(const Entry& entry, Entry* before = nullptr);
  bool find(Space space, Word key, Entry* found);
  // A free begins: the entry, unless there is none or another thread is freeing it.
  bool begin_leaving(Space space, Word key, Entry* found);
  // It ended. The entry goes, or stays when the free failed; unless the key was given out again in the meantime.
  void end_leaving(Space space, Word key, bool is_gone);
  // Counts one more, or one less, in `other`: what it is then; 0 also when there is no entry.
  Word count(Space space, Word key, int change);

  // Takes out one entry that ends with the context; false: there is none left. One walk for all calls about one context. What another
  // thread is freeing is left to it.
  struct Walk {
    std::uint64_t at = 0, capacity = 0;
  };
  bool take_of_context(Word context, Walk* walk, Entry* taken);

 private:
  Entry* slot_of(Space space, Word key);
  Entry* lookup(Space space, Word key);
  bool grow();
  void erase(Entry* entry);

  core::SpinLock lock_;
  Entry* entries_ = nullptr;
  std::uint64_t capacity_ = 0, used_ = 0;  // capacity: a power of two
};

extern LiveMemory live_memory;

}  // namespace liveset::driver
