// The dictionary of a trace that an importer writes: each text, scope, frame and stack once, numbered as the writer wants it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "profiler/writer/trace_writer.h"

namespace liveset::imports {

class Names {
 public:
  explicit Names(writer::TraceWriter& writer) : writer_(writer) {}

  std::uint32_t string(std::string_view text) {
    if (text.empty()) return 0;
    const auto found = strings_.find(text);
    if (found != strings_.end()) return found->second;
    const auto id = static_cast<std::uint32_t>(strings_.size() + 1);
    strings_.emplace(text, id);
    writer_.define_string(id, text);
    return id;
  }
  std::uint32_t scope(std::uint32_t parent, int kind, std::string_view name) {
    const auto [entry, added] = scopes_.try_emplace({parent, string(name)}, static_cast<std::uint32_t>(scopes_.size() + 1));
    if (added) writer_.define_scope(entry->second, parent, static_cast<std::uint32_t>(kind), entry->first.second);
    return entry->second;
  }
  std::uint32_t frame(std::string_view function, std::string_view file, std::uint32_t line) {
    const std::pair<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> key = {{string(function), string(file)}, line};
    const auto [entry, added] = frames_.try_emplace(key, static_cast<std::uint32_t>(frames_.size() + 1));
    if (added) writer_.define_frame(entry->second, {key.first.first, key.first.second, line});
    return entry->second;
  }
  // `caller` is a stack, or 0.
  std::uint32_t stack(std::uint32_t caller, std::uint32_t frame) {
    const auto [entry, added] = stacks_.try_emplace({caller, frame}, static_cast<std::uint32_t>(stacks_.size() + 1));
    if (added) writer_.define_stack(entry->second, caller, frame);
    return entry->second;
  }

 private:
  writer::TraceWriter& writer_;
  std::map<std::string, std::uint32_t, std::less<>> strings_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> scopes_, stacks_;
  std::map<std::pair<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>, std::uint32_t> frames_;
};

}  // namespace liveset::imports
