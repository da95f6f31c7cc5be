// Copies and fills.
#include <algorithm>
#include <cstring>

#include "hooks/standin/driver/copies.h"

using namespace standin;

namespace {

// A value of the device that the program reads: whatever it decides by it is not what a real device would have said.
void count_read(const Memory& memory, Address to, Address from) {
  if (!memory.on_device(to) && memory.on_device(from)) liveset_standin_estimate("device_value_read", nullptr);
}

constexpr int on_host = 1, in_array = 3;

Address begin_of(const Box& side, std::size_t plane) {
  return (side.type == on_host ? reinterpret_cast<Address>(side.host) : side.device) + side.x + side.y * side.pitch + side.z * plane;
}

}  // namespace

namespace standin {

void BoxCopy::operator()() const {
  if (memory == nullptr) return;
  for (std::size_t plane = 0; plane < depth; ++plane)
    for (std::size_t row = 0; row < height; ++row)
      memory->copy(to + plane * to_plane + row * to_pitch, from + plane * from_plane + row * from_pitch, width);
}

Error plan(Machine& all, const Copy3D& box, BoxCopy* copy) {
  *copy = {};
  if (box.from.type == in_array || box.to.type == in_array) return success;
  const auto from_plane = box.from.pitch * std::max(box.from.height, box.height);
  const auto to_plane = box.to.pitch * std::max(box.to.height, box.height);
  const auto from = begin_of(box.from, from_plane), to = begin_of(box.to, to_plane);
  if (from == 0 || to == 0) return invalid_value;
  count_read(all.memory, to, from);
  *copy = {&all.memory, from, to, box.from.pitch, box.to.pitch, from_plane, to_plane, box.width, box.height, box.depth};
  return success;
}

}  // namespace standin

namespace {

int copy(void* stream, Address to, Address from, std::size_t bytes) {
  auto place = here();
  if (place.error != success) return place.error;
  if (bytes == 0) return success;
  if (to == 0 || from == 0) return invalid_value;
  count_read(place.machine->memory, to, from);
  return enqueue(place, stream, NodeType::memcpy, [all = place.machine, to, from, bytes] { all->memory.copy(to, from, bytes); });
}

// A copy that the caller waits for.
int copy_now(Address to, Address from, std::size_t bytes) {
  auto place = here();
  if (place.error != success) return place.error;
  if (auto error = place.machine->streams.forbid_while_capturing(thread_state().capture_mode); error != success) return error;
  (void)place.machine->streams.synchronize(place.stream(nullptr));
  return copy(nullptr, to, from, bytes);
}

int fill(void* stream, Address to, std::uint32_t value, std::size_t width, std::size_t count) {
  auto place = here();
  if (place.error != success) return place.error;
  if (count == 0) return success;
  if (to == 0 || to % width != 0) return invalid_value;
  return enqueue(place, stream, NodeType::memset,
                 [all = place.machine, to, value, width, count] { all->memory.fill(to, value, width, count); });
}

int fill_rows(void* stream, Address to, std::size_t pitch, std::uint32_t value, std::size_t width, std::size_t columns, std::size_t rows) {
  for (std::size_t row = 0; row < rows; ++row)
    if (int error = fill(stream, to + row * pitch, value, width, columns); error != success) return error;
  return success;
}

int copy_box(void* stream, const Copy3D& box) {
  auto place = here();
  if (place.error != success) return place.error;
  BoxCopy copy;
  if (auto error = plan(*place.machine, box, &copy); error != success) return error;
  return enqueue(place, stream, NodeType::memcpy, copy);
}

Box box_of(const Rectangle& side, std::size_t height) {
  return {side.x, side.y, 0, 0, side.type, side.host, side.device, side.array, nullptr, side.pitch, height};
}

int copy_rectangle(void* stream, const Copy2D* rectangle) {
  if (rectangle == nullptr) return invalid_value;
  const auto& [from, to, width, height] = *rectangle;
  if ((from.pitch != 0 && from.pitch < width) || (to.pitch != 0 && to.pitch < width)) return invalid_value;
  return copy_box(stream, {box_of(from, height), box_of(to, height), width, height, 1});
}

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

}  // namespace

STANDIN_EXPORT int cuMemcpy(Address to, Address from, std::size_t bytes) { return copy_now(to, from, bytes); }
STANDIN_EXPORT int cuMemcpy_ptds(Address to, Address from, std::size_t bytes) { return copy_now(to, from, bytes); }
STANDIN_EXPORT int cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) { return copy_now(to, address_of(from), bytes); }
STANDIN_EXPORT int cuMemcpyHtoD_v2_ptds(Address to, const void* from, std::size_t bytes) { return copy_now(to, address_of(from), bytes); }
STANDIN_EXPORT int cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) { return copy_now(address_of(to), from, bytes); }
STANDIN_EXPORT int cuMemcpyDtoH_v2_ptds(void* to, Address from, std::size_t bytes) { return copy_now(address_of(to), from, bytes); }
STANDIN_EXPORT int cuMemcpyDtoD_v2(Address to, Address from, std::size_t bytes) { return copy_now(to, from, bytes); }
STANDIN_EXPORT int cuMemcpyDtoD_v2_ptds(Address to, Address from, std::size_t bytes) { return copy_now(to, from, bytes); }
STANDIN_EXPORT int cuMemcpyPeer(Address to, void*, Address from, void*, std::size_t bytes) { return copy_now(to, from, bytes); }
STANDIN_EXPORT int cuMemcpyPeer_ptds(Address to, void*, Address from, void*, std::size_t bytes) { return copy_now(to, from, bytes); }

STANDIN_STREAM_FUNCTION(cuMemcpyAsync, (Address to, Address from, std::size_t bytes, void* stream), (to, from, bytes, own_stream(stream))) {
  return copy(stream, to, from, bytes);
}
STANDIN_STREAM_FUNCTION(cuMemcpyHtoDAsync_v2, (Address to, const void* from, std::size_t bytes, void* stream),
                        (to, from, bytes, own_stream(stream))) {
  return copy(stream, to, address_of(from), bytes);
}
STANDIN_STREAM_FUNCTION(cuMemcpyDtoHAsync_v2, (void* to, Address from, std::size_t bytes, void* stream),
                        (to, from, bytes, own_stream(stream))) {
  return copy(stream, address_of(to), from, bytes);
}
STANDIN_STREAM_FUNCTION(cuMemcpyDtoDAsync_v2, (Address to, Address from, std::size_t bytes, void* stream),
                        (to, from, bytes, own_stream(stream))) {
  return copy(stream, to, from, bytes);
}
STANDIN_STREAM_FUNCTION(cuMemcpyPeerAsync,
                        (Address to, void* to_context, Address from, void* from_context, std::size_t bytes, void* stream),
                        (to, to_context, from, from_context, bytes, own_stream(stream))) {
  (void)to_context, (void)from_context;
  return copy(stream, to, from, bytes);
}

STANDIN_EXPORT int cuMemcpy2D_v2(const Copy2D* rectangle) { return copy_rectangle(nullptr, rectangle); }
STANDIN_EXPORT int cuMemcpy2D_v2_ptds(const Copy2D* rectangle) { return copy_rectangle(thread_stream, rectangle); }
STANDIN_EXPORT int cuMemcpy2DUnaligned_v2(const Copy2D* rectangle) { return copy_rectangle(nullptr, rectangle); }
STANDIN_EXPORT int cuMemcpy2DUnaligned_v2_ptds(const Copy2D* rectangle) { return copy_rectangle(thread_stream, rectangle); }
STANDIN_STREAM_FUNCTION(cuMemcpy2DAsync_v2, (const Copy2D* rectangle, void* stream), (rectangle, own_stream(stream))) {
  return copy_rectangle(stream, rectangle);
}
STANDIN_EXPORT int cuMemcpy3D_v2(const Copy3D* box) { return box ? copy_box(nullptr, *box) : static_cast<int>(invalid_value); }
STANDIN_EXPORT int cuMemcpy3D_v2_ptds(const Copy3D* box) { return box ? copy_box(thread_stream, *box) : static_cast<int>(invalid_value); }
STANDIN_STREAM_FUNCTION(cuMemcpy3DAsync_v2, (const Copy3D* box, void* stream), (box, own_stream(stream))) {
  return box ? copy_box(stream, *box) : static_cast<int>(invalid_value);
}

// The attributes only say how a batch may be scheduled.
STANDIN_STREAM_FUNCTION(cuMemcpyBatchAsync_v2,
                        (const Address* to, const Address* from, const std::size_t* bytes, std::size_t count, const void* attributes,
                         const std::size_t* first_of_attribute, std::size_t attribute_count, void* stream),
                        (to, from, bytes, count, attributes, first_of_attribute, attribute_count, own_stream(stream))) {
  (void)attributes, (void)first_of_attribute, (void)attribute_count;
  for (std::size_t i = 0; i < count; ++i)
    if (int error = copy(stream, to[i], from[i], bytes[i]); error != success) return error;
  return success;
}

STANDIN_STREAM_FUNCTION(cuMemcpyBatchAsync,
                        (const Address* to, const Address* from, const std::size_t* bytes, std::size_t count, const void* attributes,
                         const std::size_t* first_of_attribute, std::size_t attribute_count, std::size_t* failed, void* stream),
                        (to, from, bytes, count, attributes, first_of_attribute, attribute_count, failed, own_stream(stream))) {
  (void)failed;
  return cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, first_of_attribute, attribute_count, stream);
}

STANDIN_EXPORT int cuMemsetD8_v2(Address to, unsigned char value, std::size_t count) { return fill(nullptr, to, value, 1, count); }
STANDIN_EXPORT int cuMemsetD8_v2_ptds(Address to, unsigned char value, std::size_t count) {
  return fill(thread_stream, to, value, 1, count);
}
STANDIN_EXPORT int cuMemsetD16_v2(Address to, unsigned short value, std::size_t count) { return fill(nullptr, to, value, 2, count); }
STANDIN_EXPORT int cuMemsetD16_v2_ptds(Address to, unsigned short value, std::size_t count) {
  return fill(thread_stream, to, value, 2, count);
}
STANDIN_EXPORT int cuMemsetD32_v2(Address to, unsigned value, std::size_t count) { return fill(nullptr, to, value, 4, count); }
STANDIN_EXPORT int cuMemsetD32_v2_ptds(Address to, unsigned value, std::size_t count) { return fill(thread_stream, to, value, 4, count); }
STANDIN_STREAM_FUNCTION(cuMemsetD8Async, (Address to, unsigned char value, std::size_t count, void* stream),
                        (to, value, count, own_stream(stream))) {
  return fill(stream, to, value, 1, count);
}
STANDIN_STREAM_FUNCTION(cuMemsetD16Async, (Address to, unsigned short value, std::size_t count, void* stream),
                        (to, value, count, own_stream(stream))) {
  return fill(stream, to, value, 2, count);
}
STANDIN_STREAM_FUNCTION(cuMemsetD32Async, (Address to, unsigned value, std::size_t count, void* stream),
                        (to, value, count, own_stream(stream))) {
  return fill(stream, to, value, 4, count);
}
STANDIN_EXPORT int cuMemsetD2D8_v2(Address to, std::size_t pitch, unsigned char value, std::size_t columns, std::size_t rows) {
  return fill_rows(nullptr, to, pitch, value, 1, columns, rows);
}
STANDIN_EXPORT int cuMemsetD2D16_v2(Address to, std::size_t pitch, unsigned short value, std::size_t columns, std::size_t rows) {
  return fill_rows(nullptr, to, pitch, value, 2, columns, rows);
}
STANDIN_EXPORT int cuMemsetD2D32_v2(Address to, std::size_t pitch, unsigned value, std::size_t columns, std::size_t rows) {
  return fill_rows(nullptr, to, pitch, value, 4, columns, rows);
}
STANDIN_STREAM_FUNCTION(cuMemsetD2D8Async,
                        (Address to, std::size_t pitch, unsigned char value, std::size_t columns, std::size_t rows, void* stream),
                        (to, pitch, value, columns, rows, own_stream(stream))) {
  return fill_rows(stream, to, pitch, value, 1, columns, rows);
}
STANDIN_STREAM_FUNCTION(cuMemsetD2D16Async,
                        (Address to, std::size_t pitch, unsigned short value, std::size_t columns, std::size_t rows, void* stream),
                        (to, pitch, value, columns, rows, own_stream(stream))) {
  return fill_rows(stream, to, pitch, value, 2, columns, rows);
}
STANDIN_STREAM_FUNCTION(cuMemsetD2D32Async,
                        (Address to, std::size_t pitch, unsigned value, std::size_t columns, std::size_t rows, void* stream),
                        (to, pitch, value, columns, rows, own_stream(stream))) {
  return fill_rows(stream, to, pitch, value, 4, columns, rows);
}
