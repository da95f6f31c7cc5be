#include "viewer/trace/stacks.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace liveset::trace {

CallStack call_stack(const Dictionary& dictionary, std::uint32_t stack, std::size_t most) {
  CallStack whole;
  // A caller's id is smaller than that of what it calls (the reader sees to that), so this ends.
  for (; stack != 0 && stack < dictionary.stacks.size(); stack = dictionary.stacks[stack].parent) {
    if (whole.frames.size() == most) {
      whole.ends = "further frames are left out";
      break;
    }
    const std::uint32_t id = dictionary.stacks[stack].frame;
    const Frame frame = id < dictionary.frames.size() ? dictionary.frames[id] : Frame{};
    if (frame.file == 0 && frame.line == 0) {
      whole.ends = frame.function != 0 ? dictionary.string(frame.function) : "a frame's name was lost";
      break;
    }
    whole.frames.push_back({dictionary.string(frame.function), dictionary.string(frame.file), frame.line, frame.offset});
  }
  return whole;
}

bool inside_torch(std::string_view file) {
  // As installed, as built from its sources, and as a dry run links it.
  constexpr std::string_view folders[] = {"-packages/torch/", "/pytorch/torch/", "/liveset-dryrun-"};
  return std::any_of(std::begin(folders), std::end(folders),
                     [file](std::string_view folder) { return file.find(folder) != std::string_view::npos; });
}

namespace {

// Names come from the program and may be of any length; a text is one of many.
std::string shortened(std::string_view name) {
  constexpr std::size_t most = 120;
  if (name.size() <= most) return std::string(name);
  std::size_t end = most;
  while (end != 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;  // not in the middle of a character
  return std::string(name.substr(0, end)) + "...";
}

}  // namespace

std::string frame_text(const StackFrame& frame) {
  const std::string_view name = frame.file.substr(frame.file.rfind('/') + 1);  // npos + 1 is 0
  if (frame.line != 0) return shortened(name) + ":" + std::to_string(frame.line) + " " + shortened(frame.function);
  if (!frame.function.empty()) return shortened(name) + " " + shortened(frame.function);
  if (frame.offset == 0) return shortened(name);
  std::array<char, 24> place;
  std::snprintf(place.data(), place.size(), "+0x%llx", static_cast<unsigned long long>(frame.offset));
  return shortened(name) + place.data();
}

// The innermost frames outside of torch; of torch when there are no others.
std::string Dictionary::stack_text(std::uint32_t stack) const {
  constexpr std::size_t most_shown = 8;
  const CallStack whole = call_stack(*this, stack);
  std::string text;
  for (const bool torch_too : {false, true}) {
    std::size_t shown = 0;
    for (const StackFrame& frame : whole.frames) {
      if (!torch_too && inside_torch(frame.file)) continue;
      if (++shown > most_shown) break;
      text.append(shown == 1 ? "" : " < ").append(frame_text(frame));
    }
    if (shown > most_shown) text += " < ...";
    if (shown != 0) return text;
  }
  return whole.ends.empty() ? std::string() : "(" + shortened(whole.ends) + ")";
}

}  // namespace liveset::trace
