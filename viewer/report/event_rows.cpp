#include "viewer/report/event_rows.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "viewer/report/stacks.h"
#include "viewer/trace/columns.h"

namespace liveset::report {
namespace {

using nlohmann::ordered_json;
using trace::ColumnMask;
using trace::Event;
namespace column = trace::column;

std::string hexadecimal(std::uint64_t number) {
  std::array<char, 24> buffer;
  std::snprintf(buffer.data(), buffer.size(), "0x%llx", static_cast<unsigned long long>(number));
  return buffer.data();
}

std::string_view heap_name(const trace::Dictionary& names, std::uint32_t heap) {
  return heap < names.heaps.size() ? names.string(names.heaps[heap].name) : std::string_view();
}

std::string value_name(const trace::Dictionary& names, std::uint32_t value) {
  return value < names.values.size() ? std::string(names.string(names.values[value].name)) : "";
}

ColumnMask columns_of(const Event& event) {
  const auto kind = static_cast<unsigned>(event.kind) & 0x7f;
  return trace::column_table()[event.has_totals ? kind | trace::totals_bit : kind];
}

bool frees(const Event& event) { return (columns_of(event) & column::age) != 0; }

void add_block(const trace::Dictionary& names, const Event& event, ColumnMask mask, ordered_json& json) {
  if ((mask & column::heap) != 0) json["heap"] = heap_name(names, event.heap);
  if ((mask & column::address) != 0) json["address"] = hexadecimal(event.address);
  if ((mask & column::size) != 0) json["bytes"] = event.size;
  if ((mask & column::stream) != 0 && event.stream != 0) json["stream"] = event.stream;
  if (event.kind == trace::Kind::alloc || frees(event)) {
    json["allocation"] = event.allocation == trace::no_allocation ? ordered_json(nullptr) : ordered_json(event.allocation);
  }
  if (!event.has_totals) return;
  json["allocator_minus_sum"] = event.total_error;
  json["reserved_change"] = event.reserved_delta;
}

// Statements about storages say by their number what tensor it was. A STORAGE of a file before format 1.2 has none.
bool states_tensor(const Event& event) {
  using trace::Kind;
  if (event.kind == Kind::storage) return true;
  return event.value == 0 && (event.kind == Kind::value_retain || event.kind == Kind::value_drop || event.kind == Kind::value_use ||
                              event.kind == Kind::value_remake || event.kind == Kind::value_offload);
}

void add_number(const Event& event, ColumnMask mask, ordered_json& json) {
  if ((mask & column::number) == 0 || (event.kind == trace::Kind::storage && event.number == 0)) return;
  json["number"] = event.number;
  if (!states_tensor(event)) return;
  const trace::TensorFacts facts = trace::tensor_facts(event.number);
  if (facts.dtype != trace::TensorFacts::no_dtype) json["dtype"] = trace::dtype_name(facts.dtype);
  if (facts.index != trace::TensorFacts::no_index) json["index"] = facts.index;
}

void add_value(const trace::Dictionary& names, const Event& event, ColumnMask mask, ordered_json& json) {
  if ((mask & column::value) != 0) json["value"] = value_name(names, event.value);
  if ((mask & column::name) != 0) json["name"] = names.string(event.name);
  if ((mask & column::text) != 0) json["text"] = names.string(event.text);
  if ((mask & column::memory_class) != 0) json["class"] = trace::class_name(event.memory_class);
  add_number(event, mask, json);
  if ((mask & column::reads) == 0) return;
  json["reads"] = ordered_json::array();
  for (std::uint32_t i = 0; i < event.read_count; ++i) json["reads"].push_back(value_name(names, event.reads[i]));
}

}  // namespace

ordered_json event_json(const trace::Dictionary& names, const Event& event) {
  ordered_json json = {{"event", event.index},
                       {"time_ns", event.time_ns},
                       {"kind", trace::kind_name(event.kind)},
                       {"phase", trace::phase_name(event.phase)}};
  json["tid"] = event.thread < names.threads.size() ? names.threads[event.thread].tid : 0;
  json["scope"] = names.scope_path(event.scope);
  const ColumnMask mask = columns_of(event);
  add_block(names, event, mask, json);
  add_value(names, event, mask, json);
  if (event.stack != 0) add_frames(names, event.stack, json);
  return json;
}

std::string event_details(const trace::Dictionary& names, const Event& event) {
  ordered_json json = ordered_json::object();
  const ColumnMask mask = columns_of(event);
  add_block(names, event, mask, json);
  add_value(names, event, mask, json);
  if (event.stack != 0) json["stack"] = names.stack_text(event.stack);
  std::string text;
  for (const auto& [key, field] : json.items()) {
    if (field.is_string() && field.get_ref<const std::string&>().empty()) continue;
    if (field.is_array() && field.empty()) continue;
    std::string shown = field.is_string() ? field.get<std::string>() : field.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    text += (text.empty() ? "" : " ") + key + "=" + shown;
  }
  return text;
}

}  // namespace liveset::report
