#include "hooks/standin/model/configuration.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "hooks/standin/limits.h"

namespace standin {
namespace {

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reads a key, when it is there, into `target`; false when it is no number of [low, high].
template <class Number>
bool read(const Configuration& configuration, std::string_view key, std::int64_t low, std::int64_t high, Number& target) {
  auto found = configuration.values.find(key);
  if (found == configuration.values.end()) return true;
  auto value = number_of(found->second);
  if (!value || *value < low || *value > high) return false;
  target = static_cast<Number>(*value);
  return true;
}

std::string text_of(const Configuration& configuration, std::string_view key, std::string_view absent) {
  auto found = configuration.values.find(key);
  return found == configuration.values.end() ? std::string(absent) : found->second;
}

}  // namespace

std::optional<Configuration> Configuration::parse(std::string_view text) {
  Configuration result;
  while (!text.empty()) {
    auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    auto equals = line.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    result.values.insert_or_assign(std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)));
  }
  bool good = read(result, "capability", limits::least_capability, limits::most_capability, result.capability) &&
              read(result, "multiprocessors", 1, limits::most_multiprocessors, result.multiprocessors) &&
              read(result, "devices", 1, limits::most_devices, result.devices) &&
              read(result, "world", 1, limits::most_ranks, result.world) &&
              read(result, "driver_version", 11000, 99990, result.driver_version) &&
              read(result, "memory_bytes", 1, limits::most_bytes, result.memory_bytes) &&
              read(result, "context_bytes", 0, limits::most_bytes, result.context_bytes);
  auto backing = text_of(result, "backing", "small");
  if (backing == "none")
    result.backing = Backing::none;
  else if (backing == "all")
    result.backing = Backing::all;
  else
    good = good && backing == "small";
  if (!good || result.memory_bytes == 0) return std::nullopt;
  result.gpu = text_of(result, "gpu", "");
  result.name = text_of(result, "name", result.gpu);
  result.folder = text_of(result, "folder", "");
  return result;
}

std::int64_t Configuration::number(std::string_view key, std::int64_t absent) const {
  auto found = values.find(key);
  return found == values.end() ? absent : number_of(found->second).value_or(absent);
}

bool Configuration::is_assumed(std::string_view key) const {
  auto list = "," + text_of(*this, "assumed", "") + ",";
  return list.find("," + std::string(key) + ",") != std::string::npos;
}

int visible_devices(std::string_view list, int devices) {
  std::set<std::int64_t> seen;
  while (true) {
    const auto comma = std::min(list.find(','), list.size());
    auto item = list.substr(0, comma);
    item.remove_prefix(std::min(item.find_first_not_of(' '), item.size()));
    item = item.substr(0, item.find_last_not_of(' ') + 1);
    const auto ordinal = number_of(item);
    if (!ordinal || *ordinal < 0 || *ordinal >= devices) break;
    if (!seen.insert(*ordinal).second) return 0;
    if (comma == list.size()) break;
    list.remove_prefix(comma + 1);
  }
  return static_cast<int>(seen.size());
}

const Multiprocessor& multiprocessor_of(int capability) {
  constexpr int kib = 1024;
  static const Multiprocessor table[] = {
      {50, 2048, 32, 96 * kib, 48 * kib, 0},     {70, 2048, 32, 96 * kib, 96 * kib, 0},     {75, 1024, 16, 64 * kib, 64 * kib, 0},
      {80, 2048, 32, 164 * kib, 163 * kib, kib}, {86, 1536, 16, 100 * kib, 99 * kib, kib},  {87, 1536, 16, 164 * kib, 163 * kib, kib},
      {89, 1536, 24, 100 * kib, 99 * kib, kib},  {90, 2048, 32, 228 * kib, 227 * kib, kib}, {100, 2048, 32, 228 * kib, 227 * kib, kib},
      {120, 1536, 24, 100 * kib, 99 * kib, kib},
  };
  const Multiprocessor* best = &table[0];
  for (const auto& row : table)
    if (row.capability <= capability) best = &row;
  return *best;
}

int occupancy(const Configuration& configuration, int block_threads, std::size_t shared_bytes) {
  if (block_threads <= 0 || block_threads > 1024) return 0;
  const auto& facts = multiprocessor_of(configuration.capability);
  int warps = (block_threads + 31) / 32;
  int blocks = std::min(facts.blocks, facts.threads / 32 / warps);
  auto need = shared_bytes + static_cast<std::size_t>(facts.reserved_shared_bytes);
  if (shared_bytes > static_cast<std::size_t>(facts.shared_bytes_per_block)) return 0;
  if (need > 0) blocks = std::min(blocks, static_cast<int>(static_cast<std::size_t>(facts.shared_bytes) / need));
  return blocks;
}

}  // namespace standin
