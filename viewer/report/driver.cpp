#include "viewer/report/driver.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "viewer/report/kernel_name.h"

namespace liveset::report {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t listed_names = 100, shown_names = 8, shown_regions = 8, name_width = 56;
constexpr std::size_t longest_name = 4096;  // bytes; a compiler's names are shorter

std::string owner_of(const trace::Dictionary& names, std::uint32_t heap) {
  const std::string_view name = heap < names.heaps.size() ? names.string(names.heaps[heap].name) : std::string_view();
  const std::size_t slash = name.find('/');
  return slash == std::string_view::npos ? "torch" : std::string(name.substr(slash + 1));
}

std::string readable(const std::string& name, const Style& style, std::size_t width) {
  return printable(readable_name(name), style, width);
}

ordered_json phases_json(const ledger::LaunchesByPhase& phases) {
  ordered_json json = ordered_json::object();
  for (int i = 0; i < trace::phase_count; ++i) {
    const std::uint64_t launches = phases[static_cast<std::size_t>(i)];
    if (launches != 0) json[std::string(trace::phase_name(static_cast<trace::Phase>(i)))] = launches;
  }
  return json;
}

std::uint64_t in_phase(const ledger::LaunchesByPhase& phases, trace::Phase phase) { return phases[static_cast<std::size_t>(phase)]; }

std::string name_of(const trace::Dictionary& names, std::uint32_t id) { return std::string(names.string(id).substr(0, longest_name)); }

KernelRegionFigure region_figure(const trace::Dictionary& names, const ledger::KernelRegion& region) {
  KernelRegionFigure figure{
      region.scope == 0 ? "" : names.scope_path(region.scope), region.launches, region.recomputed, {}, region.recomputed_names.size()};
  std::vector<std::pair<std::uint32_t, std::uint64_t>> again(region.recomputed_names.begin(), region.recomputed_names.end());
  std::stable_sort(again.begin(), again.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (std::size_t i = 0; i < std::min(listed_names, again.size()); ++i)
    figure.again.emplace_back(name_of(names, again[i].first), again[i].second);
  return figure;
}

}  // namespace

std::uint64_t KernelName::all() const { return std::accumulate(launches.begin(), launches.end(), std::uint64_t{0}); }

std::vector<DeviceFigure> devices_of(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger) {
  std::vector<DeviceFigure> figures;
  for (const ledger::DeviceMemory& memory : ledger.driver.devices) {
    std::map<std::string, std::uint64_t> owners;
    for (const ledger::HeapBytes& heap : memory.at_peak) owners[owner_of(file.dictionary(), heap.heap)] += heap.bytes;
    DeviceFigure figure{"cuda:" + std::to_string(memory.device), memory, {}};
    for (const auto& [owner, bytes] : owners) figure.owners.push_back({owner, bytes});
    std::stable_sort(figure.owners.begin(), figure.owners.end(),
                     [](const OwnerFigure& a, const OwnerFigure& b) { return a.bytes > b.bytes; });
    figures.push_back(std::move(figure));
  }
  return figures;
}

Result<std::optional<KernelFigures>> kernels_of(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger,
                                                const ledger::Range& range) {
  if (ledger.kernels == 0) return std::optional<KernelFigures>();
  Result<ledger::Kernels> counted = ledger::count_kernels(file, range);
  if (!counted) return counted.take_error();
  const trace::Dictionary& names = file.dictionary();
  KernelFigures figures;
  figures.launches = counted->launches;
  figures.phases = counted->phases;
  figures.launches_left_out = counted->launches_left_out;
  for (const auto& [name, launches] : counted->names) figures.names.push_back({name_of(names, name), launches});
  std::stable_sort(figures.names.begin(), figures.names.end(), [](const KernelName& a, const KernelName& b) { return a.all() > b.all(); });
  for (const ledger::KernelRegion& region : counted->regions) figures.regions.push_back(region_figure(names, region));
  return std::optional<KernelFigures>(std::move(figures));
}

ordered_json owners_json(const std::vector<OwnerFigure>& owners) {
  ordered_json json = ordered_json::object();
  for (const OwnerFigure& owner : owners) json[owner.owner] = owner.bytes;
  return json;
}

ordered_json kernels_json(const KernelFigures& kernels) {
  ordered_json json = {{"launches", kernels.launches}, {"phases", phases_json(kernels.phases)}, {"different", kernels.names.size()}};
  json["names"] = ordered_json::array();
  for (std::size_t i = 0; i < std::min(listed_names, kernels.names.size()); ++i) {
    const KernelName& kernel = kernels.names[i];
    json["names"].push_back({{"name", kernel.name}, {"launches", kernel.all()}, {"phases", phases_json(kernel.launches)}});
  }
  json["regions"] = ordered_json::array();
  for (const KernelRegionFigure& region : kernels.regions) {
    ordered_json again = ordered_json::object();
    for (const auto& [name, launches] : region.again) again[name] = launches;
    json["regions"].push_back({{"region", region.region.empty() ? ordered_json(nullptr) : ordered_json(region.region)},
                               {"launches", region.launches},
                               {"recomputed", region.recomputed},
                               {"different_recomputed", region.different},
                               {"recomputed_kernels", again}});
  }
  if (kernels.launches_left_out != 0) json["launches_in_other_regions"] = kernels.launches_left_out;
  return json;
}

std::string devices_text(const std::vector<DeviceFigure>& devices, const Style& style) {
  std::string text;
  for (const DeviceFigure& device : devices) {
    if (device.memory.managed.peak != 0)
      text += "\n  " + device.device + ": managed memory up to " + format_bytes(device.memory.managed.peak, style.exact_bytes) +
              ", on the device or the host as it is used\n";
    if (device.memory.outside_allocator.peak == 0) continue;
    Table table({{"taken from the driver"}, {"bytes", true}, {"", true}}, TableFormat::text, style);
    for (const OwnerFigure& owner : device.owners)
      table.row({Cell::words(owner.owner), Cell::bytes(owner.bytes), Cell::percent(owner.bytes, device.memory.held.peak)});
    const std::string headline = device.device + " at its fullest (event " + std::to_string(device.memory.held.peak_event) +
                                 "): " + format_bytes(device.memory.held.peak, style.exact_bytes) +
                                 (device.memory.is_lower_bound ? " or more" : "") +
                                 ", outside PyTorch's allocator (the context not counted) up to " +
                                 format_bytes(device.memory.outside_allocator.peak, style.exact_bytes);
    text += "\n" + wrapped(headline, style, 2) + "\n" + table.render();
    if (device.memory.unmapped_at_peak != 0)
      text += "  (" + format_bytes(device.memory.unmapped_at_peak, style.exact_bytes) + " of it behind handles that are mapped nowhere)\n";
  }
  return text;
}

std::string kernels_text(const KernelFigures& kernels, const Style& style) {
  Table table({{"kernel"}, {"launches", true}, {"recomputed", true}}, TableFormat::text, style);
  for (std::size_t i = 0; i < std::min(shown_names, kernels.names.size()); ++i) {
    const KernelName& kernel = kernels.names[i];
    table.row({Cell::words(readable(kernel.name, style, name_width)), Cell::count(kernel.all()),
               Cell::count(in_phase(kernel.launches, trace::Phase::recompute))});
  }
  std::string text = "\n" + format_count(kernels.launches) + " kernel launches, " +
                     format_count(in_phase(kernels.phases, trace::Phase::recompute)) + " of them recomputed\n" + table.render();
  if (kernels.names.size() > shown_names)
    text += "  (" + format_count(kernels.names.size() - shown_names) + " more; --format json lists them)\n";
  std::size_t shown = 0;
  for (const KernelRegionFigure& region : kernels.regions) {
    if (region.recomputed == 0 || shown++ >= shown_regions) continue;
    std::string again;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, region.again.size()); ++i)
      again += (i == 0 ? "" : ", ") + readable(region.again[i].first, style, name_width) +
               (region.again[i].second > 1 ? " x " + format_count(region.again[i].second) : "");
    text += "  " +
            wrapped((region.region.empty() ? "outside any region" : region.region) + " ran " + format_count(region.recomputed) +
                        " again: " + again + (region.different > 3 ? ", ..." : ""),
                    style, 4) +
            "\n";
  }
  return text;
}

}  // namespace liveset::report
