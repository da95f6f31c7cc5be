// Device attributes by their public numbers. What depends on the single product (clocks, caches) comes from the profile as
// `attribute.N`; the values here are then those of the capability's largest part, or plain zero where no job decides by them.
#include "hooks/standin/model/configuration.h"

namespace standin {
namespace {

int level_two_bytes(int capability) {
  constexpr int mib = 1 << 20;
  if (capability >= 120) return 96 * mib;
  if (capability >= 100) return 126 * mib;
  if (capability >= 90) return 50 * mib;
  if (capability >= 89) return 72 * mib;
  if (capability >= 86) return 6 * mib;
  if (capability >= 80) return 40 * mib;
  return capability >= 75 ? 4 * mib : 6 * mib;
}

int attribute_of_capability(const Configuration& configuration, int attribute, int device) {
  const auto& facts = multiprocessor_of(configuration.capability);
  const bool ampere = configuration.capability >= 80;
  const bool hopper = configuration.capability >= 90;
  switch (attribute) {
    case 1: return 1024;  // threads in a block
    case 2:
    case 3: return 1024;        // block x, y
    case 4: return 64;          // block z
    case 5: return 2147483647;  // grid x
    case 6:
    case 7: return 65535;        // grid y, z
    case 8: return 49152;        // shared bytes of a block without opting in
    case 9: return 65536;        // constant bytes
    case 10: return 32;          // warp
    case 11: return 2147483647;  // pitch
    case 12:
    case 82: return 65536;    // registers of a block, of a multiprocessor
    case 13: return 1980000;  // clock, kHz; torch.cuda._sleep counts in it
    case 14: return 512;      // texture alignment
    case 15: return 1;        // copies overlap kernels
    case 16: return configuration.multiprocessors;
    case 19: return 1;       // host memory can be mapped
    case 21: return 131072;  // texture width 1D
    case 22: return 131072;  // 2D
    case 23: return 65536;
    case 24:
    case 25:
    case 26: return 16384;                // 3D
    case 30: return 512;                  // surface alignment
    case 31: return 1;                    // kernels run side by side
    case 32: return ampere ? 1 : 0;       // ECC
    case 33: return 0x19 + device;        // PCI bus
    case 36: return 2619000;              // memory clock, kHz
    case 37: return hopper ? 5120 : 384;  // bus bits
    case 38: return level_two_bytes(configuration.capability);
    case 39: return facts.threads;
    case 40: return 3;   // copy engines
    case 41: return 1;   // one address space
    case 51: return 32;  // pitch alignment of textures
    case 75: return configuration.capability / 10;
    case 76: return configuration.capability % 10;
    case 78:
    case 79:
    case 80: return 1;  // stream priorities, caches
    case 81: return facts.shared_bytes;
    case 83: return 1;                                                  // managed memory
    case 87: return configuration.capability == 80 || hopper ? 2 : 32;  // single to double speed
    case 89:
    case 90:
    case 91: return 1;  // concurrent managed access, preemption, registered host pointers
    case 92:
    case 93:
    case 94: return 1;  // stream memory operations
    case 95: return 1;  // cooperative launch
    case 97: return facts.shared_bytes_per_block;
    case 98:
    case 99: return 1;  // flushing remote writes, host registration
    case 102:
    case 103: return 1;  // virtual memory, its handles as descriptors
    case 106: return facts.blocks;
    case 108: return ampere ? level_two_bytes(configuration.capability) * 3 / 4 : 0;  // persisting L2
    case 109: return ampere ? 134217728 : 0;                                          // access policy window
    case 111: return facts.reserved_shared_bytes;
    case 112:
    case 113:
    case 114:
    case 115: return 1;               // sparse arrays, read-only registration, timelines, pools
    case 119: return 1;               // pool handles: descriptors
    case 120: return hopper ? 1 : 0;  // clusters
    case 121:
    case 122:
    case 123:
    case 125: return 1;
    case 126: return hopper ? 4 : 1;  // memory synchronisation domains
    case 127: return hopper ? 1 : 0;  // tensor maps
    case 129: return 1;               // unified function pointers
    case 134: return -1;              // NUMA node of the host memory nearest
    default: return 0;
  }
}

}  // namespace

int device_attribute(const Configuration& configuration, int attribute, int device) {
  return static_cast<int>(
      configuration.number("attribute." + std::to_string(attribute), attribute_of_capability(configuration, attribute, device)));
}

}  // namespace standin
