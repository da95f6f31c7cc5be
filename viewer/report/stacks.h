// A block's call stack as JSON: the whole of it, where tables show the frames outside of torch (trace::Dictionary::stack_text).
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "viewer/trace/records.h"

namespace liveset::report {

// Adds "frames": innermost first, each "function", "file", "line"; and, where they do not go to the outermost frame or there are none,
// "frames_end": why.
void add_frames(const trace::Dictionary& names, std::uint32_t stack, nlohmann::ordered_json& json);

// Why a block of this trace that has stack 0 has no frames.
const char* why_no_stack(const trace::Dictionary& names);

}  // namespace liveset::report
