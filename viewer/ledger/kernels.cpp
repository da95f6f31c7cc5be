#include "viewer/ledger/kernels.h"

#include <algorithm>
#include <utility>

#include "viewer/trace/columns.h"

namespace liveset::ledger {
namespace {

namespace column = trace::column;
using trace::Kind;

constexpr std::size_t most_regions = 1000;

// By scope: the innermost region around it; 0: none. A parent's id is smaller than its child's (the reader sees to that).
std::vector<std::uint32_t> regions_of(const std::vector<trace::Scope>& scopes) {
  std::vector<std::uint32_t> regions(scopes.size());
  for (std::uint32_t id = 1; id < scopes.size(); ++id)
    regions[id] = scopes[id].kind == trace::ScopeKind::region ? id : regions[scopes[id].parent];
  return regions;
}

class Counting {
 public:
  explicit Counting(const trace::Dictionary& names) : regions_(regions_of(names.scopes)) {}

  void add(std::uint32_t scope, std::uint32_t phase, std::uint32_t name) {
    ++out_.launches;
    ++out_.phases[phase];
    ++out_.names[name][phase];
    const bool again = phase == static_cast<std::uint32_t>(trace::Phase::recompute);
    const std::uint32_t region = scope < regions_.size() ? regions_[scope] : 0;
    if (region == 0 && !again) return;
    KernelRegion* place = find(region);
    if (place == nullptr) {
      ++out_.launches_left_out;
      return;
    }
    ++place->launches;
    if (again) {
      ++place->recomputed;
      ++place->recomputed_names[name];
    }
  }
  Kernels finish() { return std::move(out_); }

 private:
  KernelRegion* find(std::uint32_t scope) {
    const auto [known, is_new] = places_.try_emplace(scope, out_.regions.size());
    if (is_new) {
      if (out_.regions.size() >= most_regions) {
        places_.erase(known);
        return nullptr;
      }
      out_.regions.push_back({scope, 0, 0, {}});
    }
    return &out_.regions[known->second];
  }

  std::vector<std::uint32_t> regions_;
  Kernels out_;
  std::map<std::uint32_t, std::size_t> places_;
};

}  // namespace

Result<Kernels> count_kernels(const trace::TraceFile& file, const Range& range) {
  Counting counting(file.dictionary());
  const trace::ColumnTable& table = trace::column_table();
  trace::Columns columns;
  for (std::size_t chunk = 0; chunk < file.chunks().size(); ++chunk) {
    const trace::ChunkInfo& info = file.chunks()[chunk];
    if (info.first_event >= range.end || info.first_event + info.events <= range.first) continue;
    if (Status status = file.read_chunk(chunk, column::kind, columns); !status) return status.take_error();
    const auto is_kernel = [](std::uint8_t kind) { return static_cast<Kind>(kind & 0x7f) == Kind::kernel; };
    if (std::none_of(columns.kind.begin(), columns.kind.end(), is_kernel)) continue;
    if (Status status = file.read_chunk(chunk, column::kind | column::phase | column::scope | column::name, columns); !status)
      return status.take_error();
    trace::Positions at;
    for (std::uint32_t i = 0; i < columns.events; ++i) {
      if (is_kernel(columns.kind[i]) && range.contains(columns.first_event + i))
        counting.add(columns.scope[i], columns.phase[i] & 7U, columns.name[at.name]);
      at.pass(table[columns.kind[i]]);
    }
  }
  return counting.finish();
}

}  // namespace liveset::ledger
