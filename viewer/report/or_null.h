// What is not known is null in JSON.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace liveset::report {

inline nlohmann::ordered_json or_null(std::string_view text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace liveset::report
