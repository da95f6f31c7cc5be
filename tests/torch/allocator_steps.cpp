// allocator_steps: the simulated caching allocator, step by step, for tests that compare it with the real one.
//
//   allocator_steps < SCRIPT    a line of JSON a step: {"op": "device", "settings": "", "capacity": null, "total": null, "order": "rising"}
//   first,
//                               then {"op": "malloc", "id", "size", "stream"}, {"op": "free" | "free_requested" | "free_completed", "id"},
//                               {"op": "empty_cache"}; {"op": "segments"} shows them. Prints a line of JSON a step.
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "viewer/allocator/caching_allocator.h"

using namespace liveset::allocator;
using nlohmann::json;

namespace {

json shown(const CachingAllocator& allocator) {
  const Counters &now = allocator.counters(), &peak = allocator.peaks();
  const Statistics& counts = allocator.statistics();
  return {{"requested", {now.requested, peak.requested}},
          {"allocated", {now.allocated, peak.allocated}},
          {"active", {now.active, peak.active}},
          {"reserved", {now.reserved, peak.reserved}},
          {"retries", counts.retries},
          {"ooms", counts.out_of_memory},
          {"device_mallocs", counts.device_mallocs},
          {"device_frees", counts.device_frees}};
}

json segments(const CachingAllocator& allocator) {
  json list = json::array();
  for (const Segment& segment : allocator.segments()) {
    json blocks = json::array();
    for (const SegmentBlock& block : segment.blocks) {
      const char* states[] = {"inactive", "active_allocated", "active_pending_free"};
      blocks.push_back({block.size, states[static_cast<int>(block.state)], block.requested});
    }
    list.push_back({segment.small ? "small" : "large", segment.stream, segment.size, segment.expandable, blocks});
  }
  return list;
}

}  // namespace

int main() {
  std::string line;
  if (!std::getline(std::cin, line)) return 2;
  const json head = json::parse(line);
  liveset::Result<Settings> settings = parse_settings(head.at("settings").get<std::string>());
  if (!settings) {
    std::cerr << settings.error().message() << '\n';
    return 2;
  }
  Device device;
  if (!head.at("capacity").is_null()) device.capacity = head.at("capacity").get<std::uint64_t>();
  if (!head.at("total").is_null()) device.total = head.at("total").get<std::uint64_t>();
  device.order = head.at("order") == "falling" ? AddressOrder::falling : AddressOrder::rising;
  CachingAllocator allocator(*settings, device);
  std::map<std::uint64_t, Handle> handles;
  while (std::getline(std::cin, line)) {
    const json step = json::parse(line);
    const auto operation = step.at("op").get<std::string>();
    json out;
    if (operation == "segments") {
      std::cout << segments(allocator) << '\n';
      continue;
    }
    if (operation == "malloc") {
      const Outcome outcome = allocator.malloc(step.at("size").get<std::uint64_t>(), step.at("stream").get<std::uint64_t>());
      handles[step.at("id").get<std::uint64_t>()] = outcome.handle;
      out["oom"] = outcome.kind == Outcome::Kind::out_of_memory;
    } else if (operation == "empty_cache") {
      allocator.empty_cache();
    } else {
      const Handle handle = handles[step.at("id").get<std::uint64_t>()];
      out["done"] = operation == "free"             ? allocator.free(handle)
                    : operation == "free_requested" ? allocator.free_requested(handle)
                                                    : allocator.free_completed(handle);
    }
    out.update(shown(allocator));
    std::cout << out << '\n';
  }
  return allocator.exhausted() ? 1 : 0;
}
