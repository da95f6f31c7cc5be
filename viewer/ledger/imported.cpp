#include "viewer/ledger/imported.h"

#include <algorithm>

#include "viewer/trace/columns.h"
#include "viewer/trace/job_json.h"

namespace liveset::ledger {
namespace {

using nlohmann::ordered_json;

// The first of them.
std::vector<std::string> texts_in(const ordered_json& json, const char* key) {
  constexpr std::size_t most = 100;
  std::vector<std::string> texts;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return texts;
  for (const ordered_json& text : *found)
    if (text.is_string() && texts.size() < most) texts.push_back(text.get<std::string>());
  return texts;
}

ImportedHeap heap_in(const ordered_json& json) {
  ImportedHeap heap;
  heap.name = trace::text_in(json, "heap");
  heap.history = trace::text_in(json, "history");
  heap.opening_blocks = trace::number_in(json, "opening_blocks");
  heap.opening_bytes = trace::number_in(json, "opening_bytes");
  heap.contradiction_count = trace::number_in(json, "contradiction_count");
  heap.contradictions = texts_in(json, "contradictions");
  if (const auto actions = json.find("actions"); actions != json.end() && actions->is_object())
    heap.unknown_events = trace::number_in(*actions, "other");
  if (heap.contradiction_count != 0 && heap.contradictions.empty()) heap.contradictions.emplace_back("it does not say how");
  heap.contradiction_count = std::max<std::uint64_t>(heap.contradiction_count, heap.contradictions.size());
  return heap;
}

}  // namespace

const ImportedHeap* Imported::heap(std::string_view name) const {
  const auto found = std::find_if(heaps.begin(), heaps.end(), [&](const ImportedHeap& each) { return each.name == name; });
  return found == heaps.end() ? nullptr : &*found;
}

std::uint64_t Imported::contradictions() const {
  std::uint64_t sum = 0;
  for (const ImportedHeap& each : heaps) sum += std::min(each.contradiction_count, ~sum);
  return sum;
}

std::uint64_t Imported::unknown_events() const {
  std::uint64_t sum = 0;
  for (const ImportedHeap& each : heaps) sum += std::min(each.unknown_events, ~sum);
  return sum;
}

Result<std::optional<Imported>> find_imported(const trace::TraceFile& file) {
  const trace::Dictionary& names = file.dictionary();
  const auto name = std::find(names.strings.begin(), names.strings.end(), "imported");
  if (name == names.strings.end() || file.chunks().empty()) return std::optional<Imported>();
  std::optional<Imported> imported;
  constexpr std::uint64_t first_events = 16;
  const Status status = trace::for_each_event(file, 0, 1, [&](const trace::Event& event) {
    if (event.index >= first_events || event.kind != trace::Kind::attribute) return event.index < first_events;
    if (names.string(event.name) != "imported" || event.scope != 0) return true;
    const ordered_json json = trace::object_in(names.string(event.text));
    imported.emplace();
    imported->from = trace::text_in(json, "from");
    imported->file = trace::text_in(json, "file");
    imported->block_counter = trace::text_in(json, "block_bytes");
    imported->unknown_actions = texts_in(json, "unknown_actions");
    if (const auto heaps = json.find("heaps"); heaps != json.end() && heaps->is_array()) {
      constexpr std::size_t most = 4096;
      for (const ordered_json& heap : *heaps)
        if (heap.is_object() && imported->heaps.size() < most) imported->heaps.push_back(heap_in(heap));
    }
    return false;
  });
  if (!status) return status.error();
  return imported;
}

}  // namespace liveset::ledger
