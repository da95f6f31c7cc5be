// Reads the JSON texts that a job's hooks left in a trace. The trace may hold anything: a member that is absent, or of another type
// than asked for, reads as nothing.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace liveset::trace {

// Whatever the text is, an object comes out.
inline nlohmann::ordered_json object_in(std::string_view text) {
  nlohmann::ordered_json found = nlohmann::ordered_json::parse(text, nullptr, false);
  return found.is_object() ? found : nlohmann::ordered_json::object();
}

template <class Json>
std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->template get<std::string>() : std::string();
}

// A whole number of 0 or more; 0 for anything else.
template <class Json>
std::uint64_t number_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() && *found >= 0 ? found->template get<std::uint64_t>() : 0;
}

template <class Json>
std::optional<bool> flag_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? std::optional(found->template get<bool>()) : std::nullopt;
}

}  // namespace liveset::trace
