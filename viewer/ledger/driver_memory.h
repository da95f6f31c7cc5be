// What the CUDA driver has given out, by device and by library; and host memory that it has pinned.
//
// A library's memory is what it allocated plus the larger of what it mapped and what lies behind its handles: a handle is memory before
// it is mapped, and a mapping keeps its memory when the handle is gone.
#pragma once
#include <cstdint>
#include <vector>

#include "viewer/ledger/counter.h"
#include "viewer/trace/records.h"

namespace liveset::ledger {

struct HeapBytes {
  std::uint32_t heap = 0;
  std::uint64_t bytes = 0;
};

struct DeviceMemory {
  int device = 0;
  Counter held;                        // by all libraries
  Counter outside_allocator;           // without the segments of PyTorch's caching allocator
  std::vector<HeapBytes> at_peak;      // sums to held.peak
  std::uint64_t unmapped_at_peak = 0;  // behind handles, and mapped nowhere; part of it
};

struct DriverMemory {
  bool known = false;                 // the trace has the driver's events
  std::vector<DeviceMemory> devices;  // by number
  Counter pinned_host, registered_host;
};

class DriverSums {
 public:
  explicit DriverSums(const trace::Dictionary& names);

  // An event of a kind that is neither an allocation nor a free of a block.
  void add(trace::Kind kind, std::uint32_t heap, std::uint64_t bytes, std::uint64_t event);
  // Peaks are of what lies between the two.
  void open_range(std::uint64_t event);
  void close_range() { in_range_ = false; }
  DriverMemory finish();

 private:
  struct Heap {
    int device = -1;  // -1: none of a device
    bool is_allocator = false;
    std::int64_t allocated = 0, mapped = 0, handles = 0;
    std::int64_t held() const { return allocated + (mapped > handles ? mapped : handles); }
  };
  struct Sum {
    std::int64_t now = 0;
    Counter out;
  };
  struct Device {
    int number = 0;
    Sum held, outside;
    std::vector<HeapBytes> at_peak;
    std::uint64_t unmapped_at_peak = 0;
  };
  bool raise(Sum& sum, std::int64_t change, std::uint64_t event) const;
  Device& device(int number);
  void note_peak(Device& device) const;

  bool known_ = false, in_range_ = false;
  std::vector<Heap> heaps_;
  std::vector<Device> devices_;
  Sum pinned_, registered_;
};

}  // namespace liveset::ledger
