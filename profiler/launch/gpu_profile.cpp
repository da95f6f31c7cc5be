#include "profiler/launch/gpu_profile.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "hooks/standin/limits.h"

namespace liveset::launch {
namespace {

using nlohmann::json;

using standin::limits::most_bytes;

// Reads the parts of one file. Every reader says what is wrong once, and the first complaint wins.
class ProfileReader {
 public:
  explicit ProfileReader(std::string file) : file_(std::move(file)) {}
  const std::string& problem() const { return problem_; }

  void complain(const std::string& field, const std::string& what) {
    if (problem_.empty()) problem_ = file_ + ": " + (field.empty() ? "" : field + ": ") + what;
  }

  // The object's member, or null with a complaint.
  const json* member(const json& object, const std::string& field, const std::string& key) {
    const auto found = object.find(key);
    if (found != object.end()) return &*found;
    complain(field, "\"" + key + "\" is missing");
    return nullptr;
  }

  void only(const json& object, const std::string& field, const std::vector<std::string>& known) {
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) complain(field, "unknown field \"" + key + "\"");
    }
  }

  // A fact with its reason; `take` turns the JSON value into T or gives nothing.
  template <class T, class Take>
  Fact<T> fact(const json& facts, const std::string& key, const std::string& expected, Take take) {
    Fact<T> made;
    const std::string field = "facts." + key;
    const json* found = member(facts, "facts", key);
    if (found == nullptr) return made;
    if (!found->is_object()) {
      complain(field, R"(must be {"value": ..., "source": "..."} or {"value": ..., "assumed": "..."})");
      return made;
    }
    only(*found, field, {"value", "source", "assumed"});
    if (found->contains("source") == found->contains("assumed")) complain(field, R"(must have either "source" or "assumed")");
    made.assumed = found->contains("assumed");
    const char* reason_key = made.assumed ? "assumed" : "source";
    if (found->contains(reason_key)) {
      const json& reason = (*found)[reason_key];
      if (reason.is_string() && !reason.get_ref<const std::string&>().empty())
        made.reason = reason.get<std::string>();
      else
        complain(field + "." + reason_key, "must be a text that is not empty");
    }
    const json* value = member(*found, field, "value");
    const std::optional<T> taken = value != nullptr ? take(*value) : std::nullopt;
    if (taken)
      made.value = *taken;
    else
      complain(field + ".value", "must be " + expected);
    return made;
  }

  Fact<std::int64_t> number(const json& facts, const std::string& key, std::int64_t low, std::int64_t high) {
    const std::string expected = "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
    return fact<std::int64_t>(facts, key, expected, [low, high](const json& value) -> std::optional<std::int64_t> {
      if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX)) return std::nullopt;
      const auto number = value.get<std::int64_t>();
      return number >= low && number <= high ? std::optional(number) : std::nullopt;
    });
  }

 private:
  std::string file_, problem_;
};

std::optional<std::string> take_name(const json& value) {
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  // The driver's field has 256 bytes, and a line of the dry run's configuration one line.
  const bool printable = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
  return !text.empty() && text.size() < 256 && printable ? std::optional(text) : std::nullopt;
}

// "9.0" -> 90.
std::optional<int> take_capability(const json& value) {
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  const char* end = text.data() + text.size();
  int major = 0, minor = 0;
  const auto first = std::from_chars(text.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  if (second.ec != std::errc() || second.ptr != end || major < 0 || major > 99 || minor < 0 || minor > 9) return std::nullopt;
  const int capability = 10 * major + minor;
  return capability >= standin::limits::least_capability && capability <= standin::limits::most_capability ? std::optional(capability)
                                                                                                           : std::nullopt;
}

// N of "attribute.N".
std::optional<int> attribute_number(const std::string& key) {
  constexpr std::string_view prefix = "attribute.";
  if (key.compare(0, prefix.size(), prefix) != 0) return std::nullopt;
  int number = 0;
  const char* end = key.data() + key.size();
  const auto [ptr, error] = std::from_chars(key.data() + prefix.size(), end, number);
  return error == std::errc() && ptr == end && number > 0 ? std::optional(number) : std::nullopt;
}

std::size_t line_of(const std::string& text, std::size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  return 1 + static_cast<std::size_t>(std::count(text.begin(), end, '\n'));
}

FoundProfile read_profile_file(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) return {{}, path + ": is a directory"};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return {{}, path + ": " + std::strerror(errno != 0 ? errno : EIO)};
  return parse_gpu_profile(text.str(), path);
}

}  // namespace

std::vector<std::string> GpuProfile::assumed() const {
  std::vector<std::string> names;
  if (name.assumed) names.emplace_back("name");
  if (capability.assumed) names.emplace_back("capability");
  if (multiprocessors.assumed) names.emplace_back("multiprocessors");
  if (memory_bytes.assumed) names.emplace_back("memory_bytes");
  if (context_bytes.assumed) names.emplace_back("context_bytes");
  for (const auto& [number, fact] : attributes) {
    if (fact.assumed) names.push_back("attribute." + std::to_string(number));
  }
  return names;
}

FoundProfile parse_gpu_profile(const std::string& text, const std::string& file) {
  json root;
  try {
    root = json::parse(text);
  } catch (const json::parse_error& error) {
    return {{}, file + ":" + std::to_string(line_of(text, error.byte)) + ": is no JSON"};
  }
  ProfileReader reader(file);
  FoundProfile found;
  GpuProfile& profile = found.profile;
  if (!root.is_object()) {
    reader.complain("", R"(must be an object with "gpu" and "facts")");
    return {{}, reader.problem()};
  }
  reader.only(root, "", {"gpu", "facts"});
  if (const json* gpu = reader.member(root, "", "gpu"); gpu != nullptr) {
    if (const auto name = take_name(*gpu))
      profile.gpu = *name;
    else
      reader.complain("gpu", "must be a short text");
  }
  const json* facts = reader.member(root, "", "facts");
  if (facts != nullptr && !facts->is_object()) reader.complain("facts", "must be an object");
  if (!reader.problem().empty()) return {{}, reader.problem()};

  std::vector<std::string> known = {"name", "capability", "multiprocessors", "memory_bytes", "context_bytes", "cublas_workspace_bytes"};
  profile.name = reader.fact<std::string>(*facts, "name", "a text of one line, shorter than 256 bytes", take_name);
  profile.capability = reader.fact<int>(*facts, "capability", "a text like \"9.0\", from 5.0 to 20.9", take_capability);
  profile.multiprocessors = reader.number(*facts, "multiprocessors", 1, standin::limits::most_multiprocessors);
  profile.memory_bytes = reader.number(*facts, "memory_bytes", 1, most_bytes);
  profile.context_bytes = reader.number(*facts, "context_bytes", 0, most_bytes);
  if (facts->contains("cublas_workspace_bytes"))
    profile.cublas_workspace_bytes = reader.number(*facts, "cublas_workspace_bytes", 0, most_bytes);
  for (const auto& [key, value] : facts->items()) {
    const std::optional<int> number = attribute_number(key);
    if (!number) continue;
    known.push_back(key);
    profile.attributes[*number] = reader.number(*facts, key, 0, INT32_MAX);
  }
  reader.only(*facts, "facts", known);
  if (profile.context_bytes.value >= profile.memory_bytes.value) reader.complain("facts.context_bytes.value", "must be below memory_bytes");
  if (!reader.problem().empty()) return {{}, reader.problem()};
  return found;
}

std::vector<std::string> gpu_profile_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (std::filesystem::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    if (it->path().extension() == ".json") names.push_back(it->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

FoundProfile find_gpu_profile(const std::string& wanted, const std::string& folder) {
  const bool is_path = wanted.find('/') != std::string::npos || std::filesystem::path(wanted).extension() == ".json";
  if (is_path) return read_profile_file(wanted);
  const std::vector<std::string> names = gpu_profile_names(folder);
  if (std::find(names.begin(), names.end(), wanted) != names.end()) return read_profile_file(folder + "/" + wanted + ".json");
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  return {{}, "unknown GPU \"" + wanted + "\" (known: " + known + "; or a file, see liveset dryrun --help)"};
}

}  // namespace liveset::launch
