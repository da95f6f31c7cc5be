#include "viewer/report/rules.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "viewer/report/text.h"

namespace liveset::report {
namespace {

using nlohmann::json;

constexpr std::size_t max_rules = 10'000, max_file_bytes = std::size_t{4} << 20, max_pattern = 4096;
constexpr const char* hint = R"(a file of rules is {"rules": [{"category": "attention", "module": "*.attn*"}]})";
constexpr const char* known_fields = "category, module, op, stack, class, dtype, min_bytes and max_bytes";
constexpr const char* field_names[] = {"module", "op", "stack", "class", "dtype"};

class Parser {
 public:
  explicit Parser(const std::string& path) : path_(path) {}

  Result<Rules> parse(std::string_view text) {
    bool twice = false;
    std::string key_twice;
    std::vector<std::set<std::string>> keys;  // of the objects that are open: JSON would take the last of two without a word
    const auto look = [&](int, json::parse_event_t event, json& parsed) {
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
      if (event == json::parse_event_t::key && !keys.empty() && !keys.back().insert(parsed.get<std::string>()).second && !twice) {
        twice = true;
        key_twice = parsed.get<std::string>();
      }
      return true;
    };
    json root;
    try {
      root = json::parse(text, look);
    } catch (const json::parse_error& error) {
      return fail("it is no JSON, at byte " + std::to_string(error.byte));
    }
    if (twice) return fail("the field " + quote(key_twice) + " stands twice in one object");
    if (!root.is_object() || !root.contains("rules") || !root["rules"].is_array()) return fail("it has no list \"rules\"");
    for (const auto& [key, item] : root.items())
      if (key != "rules") return fail("field " + quote(key) + " is unknown; only \"rules\" is known there");
    if (root["rules"].empty()) return fail("the list \"rules\" is empty");
    if (root["rules"].size() > max_rules) return fail("it has more than " + std::to_string(max_rules) + " rules");
    Rules rules;
    for (const json& item : root["rules"]) {
      rules.emplace_back();
      if (std::string problem = rule(item, rules.back()); !problem.empty())
        return fail("rule " + std::to_string(rules.size()) + ": " + problem);
    }
    return rules;
  }

 private:
  Error fail(std::string what) const { return {ErrorKind::usage, path_, std::nullopt, std::move(what), hint}; }
  static std::string quote(const std::string& text) { return '"' + printable(text, {}, 60) + '"'; }

  // What is wrong with it; empty: nothing.
  static std::string rule(const json& item, Rule& rule) {
    if (!item.is_object()) return "it is no object";
    for (const auto& [key, value] : item.items()) {
      if (std::string problem = field(key, value, rule); !problem.empty()) return "field " + quote(key) + " " + problem;
    }
    if (rule.category.empty()) return "field \"category\" is missing";
    if (rule.min_bytes > rule.max_bytes) return "field \"min_bytes\" is above \"max_bytes\": it fits nothing";
    return "";
  }

  static std::string field(const std::string& key, const json& value, Rule& rule) {
    if (key == "min_bytes" || key == "max_bytes") {
      if (!value.is_number_unsigned()) return "is not a whole number of bytes, 0 or more";
      (key == "min_bytes" ? rule.min_bytes : rule.max_bytes) = value.get<std::uint64_t>();
      return "";
    }
    const auto known = std::find(std::begin(field_names), std::end(field_names), key);
    if (key != "category" && known == std::end(field_names)) return std::string("is unknown; known are ") + known_fields;
    if (!value.is_string()) return "is no text";
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty()) return "is empty";
    if (text.size() > max_pattern) return "is longer than " + std::to_string(max_pattern) + " bytes";
    if (key == "category") {
      rule.category = text;
      return "";
    }
    const auto number = static_cast<std::size_t>(known - std::begin(field_names));
    if (number == Rule::memory_class && !names_a_class(text)) return "fits no class: " + quote(text);
    rule.patterns[number] = text;
    rule.has_pattern[number] = true;
    return "";
  }

  static bool names_a_class(const std::string& pattern) {
    for (int i = 1; i < trace::class_count; ++i)
      if (matches(pattern, trace::class_name(static_cast<trace::MemoryClass>(i)))) return true;
    return false;
  }

  const std::string& path_;
};

}  // namespace

Result<Rules> parse_rules(std::string_view text, const std::string& path) { return Parser(path).parse(text); }

Result<Rules> read_rules(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(max_file_bytes + 1, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && !file.eof())
    return Error{ErrorKind::usage, path, std::nullopt, "the file of rules cannot be read", hint};
  if (file.gcount() > static_cast<std::streamsize>(max_file_bytes))
    return Error{ErrorKind::usage, path, std::nullopt, "the file of rules is larger than 4 MiB", hint};
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_rules(text, path);
}

// Only the last star has to be tried again: an earlier one that took less would leave that star the same text or more.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

namespace {

// Several nodes may retain a block: the rule speaks of any of them. Names of slots are "SoftmaxBackward0.result".
bool fits_a_node(std::string_view pattern, const LiveBlock& block) {
  return matches(pattern, block.op) || std::any_of(block.names.begin(), block.names.end(), [&](const std::string& name) {
           const std::size_t dot = name.rfind('.');
           return dot != std::string::npos && matches(pattern, std::string_view(name).substr(0, dot));
         });
}

}  // namespace

std::string category_of(const Rules& rules, const LiveBlock& block) {
  const std::string_view texts[Rule::fields] = {block.module, block.op, block.stack, trace::class_name(block.memory_class), block.dtype};
  for (const Rule& rule : rules) {
    bool fits = block.detail.bytes >= rule.min_bytes && block.detail.bytes <= rule.max_bytes;
    for (std::size_t i = 0; fits && i < Rule::fields; ++i)
      fits = !rule.has_pattern[i] || (i == Rule::op ? fits_a_node(rule.patterns[i], block) : matches(rule.patterns[i], texts[i]));
    if (fits) return rule.category;
  }
  return "(no category)";
}

}  // namespace liveset::report
