// The driver's structures, as far as the stand-in reads or fills them: layouts are facts, the declarations are ours.
// tests/standin/layouts_test.cpp compares sizes and places with a toolkit's headers where there is one.
#pragma once
#include <cstddef>
#include <cstdint>

#include "hooks/standin/model/memory.h"
#include "hooks/standin/model/streams.h"

#define STANDIN_EXPORT extern "C" __attribute__((visibility("default")))

// A function with a stream, and its twin whose stream 0 is the calling thread's. `twin_arguments` are the function's arguments with
// the stream put through own_stream().
#define STANDIN_STREAM_FUNCTION(name, parameters, twin_arguments)           \
  STANDIN_EXPORT int name parameters;                                       \
  STANDIN_EXPORT int name##_ptsz parameters { return name twin_arguments; } \
  STANDIN_EXPORT int name parameters

namespace standin {

inline void* own_stream(void* stream) { return stream == nullptr ? thread_stream : stream; }

struct Location {
  int type;  // 1: a device
  int id;
};

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

struct SharedHandle {
  unsigned char bytes[64];
};

struct Uuid {
  unsigned char bytes[16];
};

struct LaunchAttribute {
  int id;
  char padding[4];
  alignas(8) unsigned char value[64];
};

struct LaunchConfiguration {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct KernelNodeParameters {
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;   // second version on
  void* context;  // second version on
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

// One side of a rectangle or box. Types: 1 host, 2 device, 3 array, 4 either.
struct Rectangle {
  std::size_t x, y;
  int type;
  const void* host;
  Address device;
  void* array;
  std::size_t pitch;
};

struct Copy2D {
  Rectangle from, to;
  std::size_t width, height;
};

struct Box {
  std::size_t x, y, z, level;
  int type;
  const void* host;
  Address device;
  void* array;
  void* reserved;
  std::size_t pitch, height;
};

struct Copy3D {
  Box from, to;
  std::size_t width, height, depth;
};

struct ArrayDescription {
  std::size_t width, height;
  int format;
  unsigned channels;
};

struct ArrayDescription3D {
  std::size_t width, height, depth;
  int format;
  unsigned channels, flags;
};

}  // namespace standin
