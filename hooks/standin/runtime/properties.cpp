#include "hooks/standin/runtime/properties.h"

#include <cstdint>
#include <cstring>

#include "hooks/standin/runtime/driver.h"

namespace standin {
namespace {

// One field after the other, each at its natural alignment: int or size_t, filled from device attributes with consecutive
// numbers, zero where a field has none. Before them: name, UUID, LUID and its mask, and the total bytes.
constexpr int no_attribute = 0;
constexpr int both = 0, only_12 = 12, only_13 = 13;

struct Field {
  int attribute;
  int count;
  bool wide;
  int family;
};
constexpr Field fields[] = {
    {8, 1, true, both},                  // shared bytes of a block
    {12, 1, false, both},                // registers of a block
    {10, 1, false, both},                // warp
    {11, 1, true, both},                 // pitch
    {1, 1, false, both},                 // threads of a block
    {2, 3, false, both},                 // block's extent
    {5, 3, false, both},                 // grid's extent
    {13, 1, false, only_12},             // clock
    {9, 1, true, both},                  // constant bytes
    {75, 2, false, both},                // capability
    {14, 1, true, both},                 // texture alignment
    {51, 1, true, both},                 // pitch alignment of textures
    {15, 1, false, only_12},             // overlap
    {16, 1, false, both},                // multiprocessors
    {17, 1, false, only_12},             // run time limit
    {18, 2, false, both},                // integrated, maps host memory
    {20, 1, false, only_12},             // compute mode
    {21, 1, false, both},                // texture 1D
    {77, 1, false, both},                // mipmapped
    {no_attribute, 1, false, only_12},   // linear
    {22, 2, false, both},                // texture 2D
    {73, 2, false, both},                // mipmapped
    {70, 3, false, both},                // linear
    {45, 2, false, both},                // gathered
    {24, 3, false, both},                // texture 3D
    {47, 3, false, both},                // 3D, the other way
    {52, 1, false, both},                // cube
    {42, 2, false, both},                // layers 1D
    {27, 3, false, both},                // layers 2D
    {53, 2, false, both},                // layers of cubes
    {55, 1, false, both},                // surface 1D
    {56, 2, false, both},                // 2D
    {58, 3, false, both},                // 3D
    {61, 2, false, both},                // layers 1D
    {63, 3, false, both},                // layers 2D
    {66, 1, false, both},                // cube
    {67, 2, false, both},                // layers of cubes
    {30, 1, true, both},                 // surface alignment
    {31, 1, false, both},                // kernels side by side
    {32, 3, false, both},                // ECC, PCI bus and device
    {50, 1, false, both},                // PCI domain
    {35, 1, false, both},                // TCC
    {40, 2, false, both},                // copy engines, unified addresses
    {36, 1, false, only_12},             // memory clock
    {37, 2, false, both},                // bus bits, L2 bytes
    {108, 1, false, both},               // persisting L2
    {39, 1, false, both},                // threads of a multiprocessor
    {78, 3, false, both},                // stream priorities, caches
    {81, 1, true, both},                 // shared bytes of a multiprocessor
    {82, 5, false, both},                // registers, managed memory, board, group, atomics with the host
    {87, 1, false, only_12},             // single to double speed
    {88, 4, false, both},                // pageable access, concurrent managed, preemption, registered host pointers
    {95, 1, false, both},                // cooperative launch
    {96, 1, false, only_12},             // over several devices
    {97, 1, true, both},                 // shared bytes of a block that opts in
    {100, 2, false, both},               // host page tables, managed memory seen from the host
    {106, 1, false, both},               // blocks of a multiprocessor
    {109, 1, false, both},               // access policy window
    {111, 1, true, both},                // reserved shared bytes
    {99, 1, false, both},                // host registration
    {112, 4, false, both},               // sparse arrays, read-only registration, timelines, pools
    {116, 4, false, both},               // RDMA: is there, flush, order; handle types of pools
    {121, 1, false, both},               // deferred mapping
    {125, 1, false, both},               // events between processes
    {120, 1, false, both},               // clusters
    {129, 1, false, both},               // unified function pointers
    {no_attribute, 63, false, only_12},  // reserved
    {130, 2, false, only_13},            // NUMA: kind, node
    {133, 2, false, only_13},            // MPS, NUMA node of the host
    {no_attribute, 2, false, only_13},   // PCI ids
    {no_attribute, 57, false, only_13},  // multinode, reserved
};
constexpr std::size_t begin_of_fields = 296;  // after the total bytes

// Calls visit(field, place of its first element); gives the structure's bytes.
template <class Visit>
std::size_t walk(int family, Visit&& visit) {
  std::size_t place = begin_of_fields;
  for (const auto& field : fields) {
    if (field.family != both && field.family != family) continue;
    const std::size_t width = field.wide ? sizeof(std::size_t) : sizeof(int);
    place = (place + width - 1) / width * width;
    visit(field, place);
    place += width * static_cast<std::size_t>(field.count);
  }
  return (place + 7) / 8 * 8;
}

}  // namespace

std::size_t size_of_properties(int family) {
  return walk(family, [](const Field&, std::size_t) {});
}

std::size_t place_in_properties(int family, int attribute) {
  std::size_t found = SIZE_MAX;
  walk(family, [&](const Field& field, std::size_t place) {
    if (field.attribute != no_attribute && attribute >= field.attribute && attribute < field.attribute + field.count)
      found = place + static_cast<std::size_t>(attribute - field.attribute) * (field.wide ? sizeof(std::size_t) : sizeof(int));
  });
  return found;
}

void fill_properties(void* properties, int device) {
  auto* bytes = static_cast<unsigned char*>(properties);
  std::memset(bytes, 0, size_of_properties(liveset_standin_family));
  constexpr int name_bytes = 256;
  driver().device_name(reinterpret_cast<char*>(bytes), name_bytes, device);
  driver().device_uuid(bytes + name_bytes, device);
  std::size_t total = 0;
  driver().device_total(&total, device);
  std::memcpy(bytes + begin_of_fields - sizeof total, &total, sizeof total);
  walk(liveset_standin_family, [&](const Field& field, std::size_t place) {
    if (field.attribute == no_attribute) return;
    for (int i = 0; i < field.count; ++i) {
      int value = 0;
      driver().device_attribute(&value, field.attribute + i, device);
      const auto wide = static_cast<std::size_t>(value);
      if (field.wide)
        std::memcpy(bytes + place, &wide, sizeof wide);
      else
        std::memcpy(bytes + place + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
    }
  });
}

}  // namespace standin
