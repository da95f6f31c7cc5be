// Memory and events that processes of one dry run show each other. A handle says what it needs to be opened: no process asks another.
// Opened memory has an address of the right size and counts against no device: it belongs to the process that allocated it.
// Thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>

#include "hooks/standin/model/memory.h"
#include "hooks/standin/model/streams.h"

namespace standin {

using HandleBytes = std::array<unsigned char, 64>;

class Sharing {
 public:
  Sharing(Memory& memory, Streams& streams) : memory_(memory), streams_(streams) {}

  // Of the allocation that the address lies in; only of memory that was allocated plainly.
  Error export_memory(Address address, HandleBytes* handle);
  // A handle of the own process is refused; opening one twice gives the same address.
  Error open_memory(const HandleBytes& handle, Address* address);
  Error close_memory(Address address);

  Error export_event(void* event, HandleBytes* handle);
  Error open_event(const HandleBytes& handle, int device, void** event);

 private:
  struct Opened {
    Address address;
    std::size_t bytes;
    int references;
  };

  Memory& memory_;
  Streams& streams_;
  std::mutex mutex_;
  std::map<HandleBytes, Opened> opened_;
};

}  // namespace standin
