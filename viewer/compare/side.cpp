#include "viewer/compare/side.h"

namespace liveset::compare {

using trace::MemoryClass;

std::string_view gap_class_name(GapClass gap_class) {
  constexpr std::string_view names[] = {
      "missing_values", "extra_values", "resized_values", "recompute_working_set", "temporaries", "gradients", "static", "communication",
      "over_retention", "rounding",     "cached",         "outside_allocator",     "unattributed"};
  static_assert(std::size(names) == gap_classes);
  return names[static_cast<std::size_t>(gap_class)];
}

Family family_of(MemoryClass memory_class, trace::Phase birth) {
  switch (memory_class) {
    case MemoryClass::activation:
    case MemoryClass::checkpoint_input:
    case MemoryClass::rng_state:
    case MemoryClass::offloaded:
    case MemoryClass::loss: return Family::value;
    case MemoryClass::recomputed_activation: return Family::recompute;
    case MemoryClass::temporary: return birth == trace::Phase::recompute ? Family::recompute : Family::temporary;
    case MemoryClass::library: return Family::temporary;
    case MemoryClass::gradient:
    case MemoryClass::activation_gradient: return Family::gradient;
    case MemoryClass::parameter:
    case MemoryClass::buffer:
    case MemoryClass::optimizer_state:
    case MemoryClass::input: return Family::fixed;
    case MemoryClass::communication: return Family::communication;
    case MemoryClass::none:
    case MemoryClass::unattributed: break;
  }
  return Family::unattributed;
}

std::string unnamed_text(std::string_view module, MemoryClass memory_class, std::string_view op) {
  std::string text(module);
  if (!text.empty()) text += "/";
  text += trace::class_name(memory_class);
  return op.empty() ? text : text.append(" of ").append(op);
}

std::uint32_t ItemBuilder::text(std::string_view text) {
  if (text.empty()) return 0;
  const auto [place, is_new] = ids_.try_emplace(std::string(text), static_cast<std::uint32_t>(side_.texts.size()));
  if (is_new) side_.texts.push_back(place->first);
  return place->second;
}

bool ItemBuilder::add(Item item) {
  item.family = family_of(item.memory_class, item.phase);
  if (side_.items.size() == Side::max_items) {
    side_.rest[static_cast<std::size_t>(item.family)] += item.bytes;
    ++side_.rest_blocks;
    return false;
  }

  side_.items.push_back(item);
  return true;
}

}  // namespace liveset::compare
