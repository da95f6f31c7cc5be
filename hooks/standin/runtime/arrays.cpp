// Pitched memory, arrays and copies of boxes.
#include <algorithm>
#include <cstring>

#include "hooks/standin/runtime/driver.h"

using namespace standin;

namespace {

struct Size {
  std::size_t width, height, depth;
};
struct Position {
  std::size_t x, y, z;
};
struct PitchedPointer {
  void* pointer;
  std::size_t pitch, width, height;
};
struct ChannelFormat {
  int bits[4];
  int kind;  // 0 signed, 1 unsigned, 2 float
};
struct BoxCopy {
  Handle from_array;
  Position from_position;
  PitchedPointer from;
  Handle to_array;
  Position to_position;
  PitchedPointer to;
  Size size;
  int kind;
};

// The driver's number of a channel's format, 0 for none.
int format_of(const ChannelFormat& format) {
  if (format.kind == 2) return format.bits[0] == 16 ? 0x10 : format.bits[0] == 32 ? 0x20 : 0;
  const int width = format.bits[0] == 8 ? 0 : format.bits[0] == 16 ? 1 : format.bits[0] == 32 ? 2 : -1;
  if (width < 0 || format.kind < 0 || format.kind > 1) return 0;
  return (format.kind == 1 ? 0x01 : 0x08) + width;
}

Box side_of(Handle array, const Position& position, const PitchedPointer& pointer) {
  const bool is_array = array != nullptr;
  return {position.x, position.y,    position.z,    0, is_array ? 3 : 4, nullptr, is_array ? 0 : address_of(pointer.pointer), array,
          nullptr,    pointer.pitch, pointer.height};
}

int copy_box(const BoxCopy* given, Handle stream) {
  if (given == nullptr) return result(invalid_value);
  const Copy3D box{side_of(given->from_array, given->from_position, given->from), side_of(given->to_array, given->to_position, given->to),
                   given->size.width, given->size.height, given->size.depth};
  return bound([&] { return driver().copy3d_async(&box, stream); });
}

}  // namespace

STANDIN_EXPORT int cudaMalloc3D(PitchedPointer* out, Size size) {
  return bound([=] {
    Address address = 0;
    std::size_t pitch = 0;
    const int error = driver().allocate_pitch(&address, &pitch, size.width, size.height * size.depth, 4);
    if (error == success) *out = {pointer_of(address), pitch, size.width, size.height};
    return error;
  });
}

STANDIN_EXPORT int cudaMalloc3DArray(Handle* array, const ChannelFormat* format, Size size, unsigned flags) {
  if (array == nullptr || format == nullptr || format_of(*format) == 0) return result(invalid_value);
  const auto channels = static_cast<unsigned>(std::count_if(format->bits, format->bits + 4, [](int bits) { return bits > 0; }));
  const ArrayDescription3D description{size.width, size.height, size.depth, format_of(*format), channels, flags};
  return bound([&] { return driver().array_create(array, &description); });
}
STANDIN_EXPORT int cudaMallocArray(Handle* array, const ChannelFormat* format, std::size_t width, std::size_t height, unsigned flags) {
  return cudaMalloc3DArray(array, format, {width, height, 0}, flags);
}
STANDIN_EXPORT int cudaFreeArray(Handle array) {
  return bound([=] { return array == nullptr ? static_cast<int>(success) : driver().array_destroy(array); });
}
STANDIN_EXPORT ChannelFormat cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return {{x, y, z, w}, kind}; }

STANDIN_STREAM_FUNCTION(cudaMemcpy3DAsync, (const BoxCopy* box, Handle stream), (box, own_stream(stream))) { return copy_box(box, stream); }
STANDIN_EXPORT int cudaMemcpy3D(const BoxCopy* box) {
  const int error = copy_box(box, nullptr);
  return error != success ? error : result(driver().stream_synchronize(nullptr));
}
