// The driver's structures that the runtime has no part in (the others: hooks/standin/structures.h), as far as the stand-in reads or fills
// them: layouts are facts, the declarations are ours.
// tests/standin/layouts_test.cpp compares sizes and places with a toolkit's headers where there is one.
#pragma once
#include <cstddef>
#include <cstdint>

#include "hooks/standin/functions.h"
#include "hooks/standin/model/memory.h"
#include "hooks/standin/model/streams.h"
#include "hooks/standin/structures.h"

namespace standin {

inline void* own_stream(void* stream) { return stream == nullptr ? thread_stream : stream; }

struct AllocationProperties {
  int type;
  int handle_types;
  Location location;
  void* windows_attributes;
  unsigned char compression, direct_access;
  unsigned short usage;
  unsigned char reserved[4];
};

struct AccessDescription {
  Location location;
  unsigned flags;
};

struct PoolProperties {
  int type;
  int handle_types;
  Location location;
  void* windows_attributes;
  std::size_t most_bytes;
  unsigned short usage;
  unsigned char reserved[54];
};

struct Uuid {
  unsigned char bytes[16];
};

struct MemsetNodeParameters {
  Address to;
  std::size_t pitch;
  unsigned value, width;  // of an element: 1, 2 or 4
  std::size_t columns, rows;
};

struct HostNodeParameters {
  void (*function)(void*);
  void* data;
};

struct AllocationNodeParameters {
  PoolProperties pool;
  const AccessDescription* access;
  std::size_t access_count;
  std::size_t bytes;
  Address address;
};

struct ArrayDescription {
  std::size_t width, height;
  int format;
  unsigned channels;
};

}  // namespace standin
