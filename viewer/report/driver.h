// Device memory by library, and kernel launches: what the driver's events add to a summary.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "viewer/ledger/kernels.h"
#include "viewer/ledger/physical.h"
#include "viewer/report/text.h"

namespace liveset::report {

struct OwnerFigure {
  std::string owner;  // the library: "torch" is PyTorch, its caching allocator's segments among it
  std::uint64_t bytes = 0;
};

// The fullest moment of one device.
struct DeviceFigure {
  std::string device;
  ledger::DeviceMemory memory;
  std::vector<OwnerFigure> owners;  // by bytes, falling; they sum to memory.held.peak
};

struct KernelName {
  std::string name;
  ledger::LaunchesByPhase launches{};
  std::uint64_t all() const;
};
struct KernelRegionFigure {
  std::string region;  // empty: outside any
  std::uint64_t launches = 0, recomputed = 0;
  std::vector<std::pair<std::string, std::uint64_t>> again;  // what the recompute launched most, by launches, falling
  std::uint64_t different = 0;                               // how many kernels it launched; `again` has the first 100
};
struct KernelFigures {
  std::uint64_t launches = 0;
  ledger::LaunchesByPhase phases{};
  std::vector<KernelName> names;            // by launches, falling
  std::vector<KernelRegionFigure> regions;  // in the order of their first launch
  std::uint64_t launches_left_out = 0;      // in regions that are not listed
};

// Of every device that the trace shows; empty without the driver's events.
std::vector<DeviceFigure> devices_of(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger);
// Nothing where the trace has no launch.
Result<std::optional<KernelFigures>> kernels_of(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger,
                                                const ledger::Range& range);

nlohmann::ordered_json owners_json(const std::vector<OwnerFigure>& owners);
nlohmann::ordered_json kernels_json(const KernelFigures& kernels);
// Empty when nothing lies outside PyTorch's allocator.
std::string devices_text(const std::vector<DeviceFigure>& devices, const Style& style);
std::string kernels_text(const KernelFigures& kernels, const Style& style);

}  // namespace liveset::report
