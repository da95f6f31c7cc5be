// Structures that the runtime hands to the driver: layouts are facts, the declarations are ours. tests/standin/layouts_test.cpp compares
// sizes and places with a toolkit's headers where there is one.
#pragma once
#include <cstddef>
#include <cstdint>

namespace standin {

struct Extent {
  unsigned x, y, z;
};

struct Location {
  int type;  // 1: a device
  int id;
};

struct SharedHandle {
  unsigned char bytes[64];
};

struct LaunchAttribute {
  int id;
  char padding[4];
  alignas(8) unsigned char value[64];
};

struct LaunchConfiguration {
  Extent grid, block;
  unsigned shared_bytes;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct KernelNodeParameters {
  void* function;
  Extent grid, block;
  unsigned shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;   // second version on
  void* context;  // second version on
};

// One side of a rectangle or box. Types: 1 host, 2 device, 3 array, 4 either.
struct Rectangle {
  std::size_t x, y;
  int type;
  const void* host;
  std::uint64_t device;
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
  std::uint64_t device;
  void* array;
  void* reserved;
  std::size_t pitch, height;
};

struct Copy3D {
  Box from, to;
  std::size_t width, height, depth;
};

struct ArrayDescription3D {
  std::size_t width, height, depth;
  int format;
  unsigned channels, flags;
};

}  // namespace standin
