// What the CUDA driver has given out, by device and by library; and host memory that it has pinned.
//
// A library's memory is what it allocated, what lies behind its handles, and what is mapped although its handle is gone. An event does
// not say which handle is mapped; where that is open, the one is taken that gives memory back, and the sums are lower bounds.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "viewer/ledger/counter.h"
#include "viewer/trace/records.h"

namespace liveset::ledger {

struct HeapBytes {
  std::uint32_t heap = 0;
  std::uint64_t bytes = 0;
  bool is_allocator = false;  // the segments of PyTorch's caching allocator
};

struct DeviceMemory {
  int device = 0;
  Counter held;                         // by all libraries
  Counter outside_allocator;            // without the segments of PyTorch's caching allocator
  Counter managed;                      // moves between device and host as it is used: in neither of the two
  std::vector<HeapBytes> at_peak;       // sums to held.peak
  std::uint64_t held_until = no_event;  // the event that ended the time at held.peak; none: it lasted as long as the range
  std::uint64_t unmapped_at_peak = 0;   // behind handles, and mapped nowhere; part of it
  bool is_lower_bound = false;          // the events left open what was given back
};

struct DriverMemory {
  bool known = false;                 // the trace has the driver's events
  std::vector<DeviceMemory> devices;  // by number
  Counter pinned_host, registered_host;
};

// Bytes behind handles and mappings of one library.
class VirtualMemory {
 public:
  // False where the events leave open which memory this was about.
  bool add(trace::Kind kind, std::uint64_t bytes);
  std::uint64_t held() const { return unmapped_ + mapped_ + bare_; }
  std::uint64_t unmapped() const { return unmapped_; }

 private:
  std::uint64_t unmapped_ = 0;  // behind a handle only
  std::uint64_t mapped_ = 0;    // behind a handle and mapped
  std::uint64_t bare_ = 0;      // mapped, the handle is gone
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
    bool is_allocator = false, is_managed = false;
    bool is_touched = false;  // changed since the device's peak was noted
    std::int64_t allocated = 0;
    VirtualMemory by_handles;
    std::uint64_t peak_bytes = 0, peak_unmapped = 0;  // when the device's peak was noted last
    std::int64_t held() const { return wrapping_sum(allocated, static_cast<std::int64_t>(by_handles.held())); }
  };
  struct Sum {
    std::int64_t now = 0;
    Counter out;
  };
  struct Device {
    Sum held, outside, managed;
    std::uint64_t held_until = no_event;
    std::vector<std::uint32_t> heaps, touched;  // ids; touched: those of which the noted peak is out of date
    bool is_lower_bound = false;
  };
  void add_to_device(trace::Kind kind, std::uint32_t id, std::uint64_t size, std::uint64_t event);
  bool raise(Sum& sum, std::int64_t change, std::uint64_t event) const;
  void note_peak(Device& device);
  DeviceMemory finished(int number) const;
  Counter finished(const Sum& sum) const;

  bool known_ = false, in_range_ = false;
  std::vector<Heap> heaps_;
  std::map<int, Device> devices_;
  Sum pinned_, registered_;
};

}  // namespace liveset::ledger
