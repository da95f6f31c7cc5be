#include "viewer/report/stacks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "viewer/trace/stacks.h"

namespace liveset::report {

using nlohmann::ordered_json;

const char* why_no_stack(const trace::Dictionary& names) {
  const bool stacks =
      std::any_of(names.sources.begin(), names.sources.end(), [](const trace::Source& source) { return source.name == "stacks"; });
  return stacks || !names.stacks.empty() ? "no room for more stacks" : "recorded without --stacks";
}

void add_frames(const trace::Dictionary& names, std::uint32_t stack, ordered_json& json) {
  const trace::CallStack whole = trace::call_stack(names, stack);
  ordered_json& frames = json["frames"] = ordered_json::array();
  for (const trace::StackFrame& frame : whole.frames) {
    ordered_json& entry = frames.emplace_back();
    entry = {{"function", frame.function}, {"file", frame.file}, {"line", frame.line}};
    if (frame.offset == 0) continue;
    // Native code: lines are not known, and names only where the file that ran is on this machine.
    entry["line"] = nullptr;
    if (frame.function.empty()) entry["function"] = nullptr;
    entry["offset"] = frame.offset;
  }
  if (stack == 0 || stack >= names.stacks.size()) {
    json["frames_end"] = why_no_stack(names);
  } else if (!whole.ends.empty()) {
    json["frames_end"] = whole.ends;
  }
}

}  // namespace liveset::report
