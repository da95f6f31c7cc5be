// One call on its way through a wrapper: looked at before the real function runs, and after.
#pragma once
#include "hooks/driver/calls.h"
#include "hooks/driver/libraries.h"
#include "hooks/driver/live_memory.h"

namespace liveset::driver {

struct Call {
  int row = 0;
  const void* real = nullptr;    // the function behind us
  const void* caller = nullptr;  // return address in the code that called
  Word words[11] = {};           // its arguments; what travels otherwise is 0 here
  // What the call takes away, when it does; or only a context, with all that lies in it.
  Entry entry;
  bool takes = false;

  const Row& what() const { return rows[row]; }
  Word argument(std::int8_t position) const { return position < 0 ? 0 : words[position]; }
  bool is(Variant variant) const { return what().variant == variant; }
};

// True: end() is due after the real function. False: nothing is to be seen here, whatever the call does.
bool begin(Call& call);
void end(Call& call, int error);

// The library whose call it is: that which called the runtime, where the runtime calls the driver.
Library& owner_of(const Call& call);
// Heaps of that library: of a device; of managed memory that was made for a device; of host memory. 0: not recorded.
std::uint32_t device_heap(const Call& call, int device);
std::uint32_t managed_heap(const Call& call, int device);
std::uint32_t host_heap(const Call& call);
// Device of the memory at an address, of the calling thread's context where the driver does not say.
int device_of(Word address);
int current_device();
// What the calling thread's allocations end with; 0: it has none.
Word current_context();
// Is the stream being captured into a graph? Then nothing happens now.
bool is_capturing(const Call& call, Word stream);

void record(std::uint8_t kind, std::uint32_t heap, Word address, Word bytes, Word stream = 0);
// The two events about an entry, where it has some.
void record_given(const Entry& entry, Word stream = 0);
void record_taken(const Entry& entry, Word stream = 0);
// Notes what was given out. What was noted under the same key before is gone, unseen: that is recorded first.
void keep(const Entry& entry);
// Something that cannot be recorded.
void count_lost();
void record_launch(Word stream, std::uint32_t name);

template <class T = Word>
T read(Word address, std::size_t offset = 0) {
  T value;
  __builtin_memcpy(&value, reinterpret_cast<const char*>(address) + offset, sizeof value);
  return value;
}

// By group of meanings. before_*: what is taken away is noted in call.entry, recorded, and marked as leaving.
void before_context_end(Call& call);
void after_context_end(const Call& call);
void after_handle(const Call& call);
void before_handle_release(Call& call);
void after_handle_release(const Call& call, int error);
void after_map(const Call& call);
void before_unmap(Call& call);
void after_unmap(const Call& call, int error);
void after_graph(const Call& call);
void note_captured(const Call& call, Word address, Word bytes);
void note_captured_free(const Call& call, Word address);
void after_launch(const Call& call);
void forget_kernel_names();

// Where the memory lies that properties of an allocation or a pool describe: a device's number, or -1: on the host.
int device_of_properties(Word properties);

}  // namespace liveset::driver
