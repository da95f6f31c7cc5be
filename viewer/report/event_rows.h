// Single events as `liveset dump` shows them: every field that the event's kind has, with names for ids.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "viewer/trace/records.h"

namespace liveset::report {

nlohmann::ordered_json event_json(const trace::Dictionary& names, const trace::Event& event);
// The fields beyond index, time, kind, phase and scope, as one line of text.
std::string event_details(const trace::Dictionary& names, const trace::Event& event);

}  // namespace liveset::report
