#include "viewer/compare/equivalence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>

#include "viewer/trace/columns.h"
#include "viewer/trace/job_json.h"

namespace liveset::compare {
namespace {

using nlohmann::json;
using trace::text_in;

constexpr std::size_t most_tensors = 1000000;
constexpr std::size_t most_index_bytes = std::size_t{256} << 20;

std::int64_t number_in(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return 0;
  return std::clamp<std::int64_t>(found->get<std::int64_t>(), 0, std::numeric_limits<std::int64_t>::max());
}

std::optional<double> real_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional<double>(found->get<double>()) : std::nullopt;
}

TensorPrint print_in(const json& object) {
  TensorPrint print;
  print.step = number_in(object, "step");
  print.order = number_in(object, "order");
  print.what = text_in(object, "what");
  print.name = text_in(object, "name");
  print.dtype = text_in(object, "dtype");
  print.hash = text_in(object, "hash");
  print.norm = real_in(object, "norm");
  print.max_abs = real_in(object, "max_abs");
  print.not_finite = static_cast<std::uint64_t>(number_in(object, "not_finite"));
  if (const auto shape = object.find("shape"); shape != object.end() && shape->is_array()) {
    for (const json& size : *shape) {
      if (size.is_number_unsigned() && size.get<std::uint64_t>() <= std::uint64_t{1} << 40) print.shape.push_back(size.get<std::int64_t>());
    }
  }
  if (const auto samples = object.find("samples"); samples != object.end() && samples->is_array()) {
    for (const json& sample : *samples) {
      if (!sample.is_array() || sample.size() != 2 || !sample[0].is_number_unsigned()) continue;
      print.samples.emplace_back(sample[0].get<std::uint64_t>(),
                                 sample[1].is_number() ? std::optional<double>(sample[1].get<double>()) : std::nullopt);
    }
  }
  return print;
}

int rank_of(const std::string& what) { return what == "loss" ? 0 : what == "gradient" ? 1 : 2; }

using Key = std::tuple<std::int64_t, int, std::string, std::string>;
Key key_of(const TensorPrint& print) { return {print.step, rank_of(print.what), print.what, print.name}; }

std::string label(const TensorPrint& print) { return print.what + " " + print.name + ", step " + std::to_string(print.step); }

// Files that a run wrote beside its trace: only names without a folder are taken.
void read_index(const std::filesystem::path& folder, std::map<Key, std::string>& files) {
  std::error_code code;
  const auto size = std::filesystem::file_size(folder / "index.json", code);
  if (code || size > most_index_bytes) return;
  std::ifstream in(folder / "index.json");
  const json index = json::parse(in, nullptr, false);
  if (!index.is_object() || text_in(index, "byte_order") != "little") return;
  const auto tensors = index.find("tensors");
  if (tensors == index.end() || !tensors->is_array()) return;
  for (const json& each : *tensors) {
    if (!each.is_object()) continue;
    const std::string file = text_in(each, "file");
    if (!file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos)
      files.emplace(key_of(print_in(each)), (folder / file).string());
  }
}

double double_of(const char* bytes, const std::string& dtype) {
  const auto wide = [](std::uint32_t bits) {
    float number = 0;
    std::memcpy(&number, &bits, sizeof number);
    return static_cast<double>(number);
  };
  if (dtype == "float64") {
    double number = 0;
    std::memcpy(&number, bytes, sizeof number);
    return number;
  }
  if (dtype == "float32") {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes, sizeof bits);
    return wide(bits);
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  if (dtype == "bfloat16") return wide(static_cast<std::uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  const double size = exponent == 0x1f ? (fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan(""))
                      : exponent == 0  ? std::ldexp(fraction, -24)
                                       : std::ldexp(fraction | 0x400, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

std::size_t width_of(const std::string& dtype) {
  return dtype == "float64" ? 8 : dtype == "float32" ? 4 : dtype == "float16" || dtype == "bfloat16" ? 2 : 0;
}

double epsilon_of(const std::string& dtype) {
  if (dtype == "float64" || dtype == "complex128") return std::ldexp(1, -52);
  if (dtype == "float32" || dtype == "complex64") return std::ldexp(1, -23);
  if (dtype == "float16") return std::ldexp(1, -10);
  if (dtype == "bfloat16") return std::ldexp(1, -7);
  return 0;  // whole numbers: they are equal or not
}

struct Measured {
  double largest = 0;           // of elements that are finite in both
  std::uint64_t misplaced = 0;  // elements that are not finite in one only, or in another way
};

// Zero elements of nothing too; nothing when the product is beyond what a file holds.
std::optional<std::uint64_t> bytes_of(const TensorPrint& print) {
  std::uint64_t bytes = width_of(print.dtype);
  for (const std::int64_t size : print.shape) {
    const auto length = static_cast<std::uint64_t>(size);
    if (length != 0 && bytes > (std::uint64_t{1} << 62) / length) return std::nullopt;
    bytes *= length;
  }
  return bytes;
}

bool is_whole(const std::string& path, std::uint64_t bytes) {
  std::error_code code;
  return !path.empty() && std::filesystem::is_regular_file(path, code) && !code && std::filesystem::file_size(path, code) == bytes && !code;
}

bool same_kind(double one, double other) {
  return (std::isfinite(one) && std::isfinite(other)) || (std::isnan(one) && std::isnan(other)) || one == other;
}

// Nothing when one of the files is not the whole tensor.
std::optional<Measured> measure_files(const TensorPrint& a, const TensorPrint& b) {
  const std::size_t width = width_of(a.dtype);
  const std::optional<std::uint64_t> bytes = bytes_of(a);
  if (width == 0 || a.dtype != b.dtype || a.shape != b.shape || !bytes || !is_whole(a.file, *bytes) || !is_whole(b.file, *bytes))
    return std::nullopt;
  std::ifstream first(a.file, std::ios::binary), second(b.file, std::ios::binary);
  if (!first || !second) return std::nullopt;
  std::vector<char> one(1 << 16), other(1 << 16);
  Measured found;
  for (std::uint64_t left = *bytes; left != 0;) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left, one.size()));
    if (!first.read(one.data(), static_cast<std::streamsize>(count)) || !second.read(other.data(), static_cast<std::streamsize>(count)))
      return std::nullopt;
    left -= count;
    for (std::size_t at = 0; at + width <= count; at += width) {
      const double x = double_of(&one[at], a.dtype), y = double_of(&other[at], b.dtype);
      if (!same_kind(x, y)) {
        ++found.misplaced;
      } else if (std::isfinite(x)) {
        found.largest = std::max(found.largest, std::fabs(x - y));
      }
    }
  }
  return found;
}

// From samples and norms.
Measured least_difference(const TensorPrint& a, const TensorPrint& b) {
  Measured least;
  for (std::size_t each = 0; each < std::min(a.samples.size(), b.samples.size()); ++each) {
    const auto& [place, one] = a.samples[each];
    const auto& [other_place, other] = b.samples[each];
    if (place != other_place) continue;
    least.misplaced += one.has_value() != other.has_value();
    if (one && other) least.largest = std::max(least.largest, std::fabs(*one - *other));
  }
  double elements = 1;
  for (const std::int64_t size : a.shape) elements *= static_cast<double>(size);
  if (a.norm && b.norm && a.not_finite == 0 && b.not_finite == 0 && elements >= 1) {
    const double difference = std::fabs(*a.norm - *b.norm);
    // Norms are rounded themselves.
    if (difference > 1e-12 * std::max(*a.norm, *b.norm)) least.largest = std::max(least.largest, difference / std::sqrt(elements));
  }
  return least;
}

std::string elements(std::uint64_t count) { return std::to_string(count) + (count == 1 ? " element is" : " elements are"); }

Difference compare_tensors(const TensorPrint& a, const TensorPrint& b, std::uint64_t reduction_length) {
  Difference made;
  made.a = a;
  made.b = b;
  const std::optional<Measured> exact = measure_files(a, b);
  const Measured least = least_difference(a, b);
  // Files that say less than samples and norms are not of these runs; where all elements differ by the same, norms say it to a rounding.
  made.exact = exact && least.largest <= exact->largest * (1 + 1e-9) && least.misplaced <= exact->misplaced;
  made.largest = made.exact ? exact->largest : std::max(exact ? exact->largest : 0, least.largest);
  const std::uint64_t misplaced = std::max(exact ? exact->misplaced : 0, least.misplaced);
  made.tolerance =
      epsilon_of(a.dtype) * std::sqrt(static_cast<double>(reduction_length)) * std::max(a.max_abs.value_or(0), b.max_abs.value_or(0));
  if (a.dtype != b.dtype) {
    made.reason = "of " + a.dtype + " in one and " + b.dtype + " in the other";
  } else if (a.shape != b.shape) {
    made.reason = "of another shape";
  } else if (a.not_finite != b.not_finite) {
    made.reason = elements(a.not_finite) + " not finite in one and " + std::to_string(b.not_finite) + " in the other";
  } else if (misplaced != 0) {
    made.reason = std::string(made.exact ? "" : "at least ") + elements(misplaced) + " not finite in one run only, or in another way";
  } else if (epsilon_of(a.dtype) == 0) {
    made.reason = "other bits, in a type that is not rounded or not known";
  }
  made.beyond = !made.reason.empty() || !(made.largest <= made.tolerance);
  return made;
}

}  // namespace

Result<Fingerprint> read_fingerprint(const trace::TraceFile& file) {
  Fingerprint found;
  found.path = file.path();
  bool any = false;
  trace::Columns kinds;
  const trace::Dictionary& names = file.dictionary();
  std::unordered_set<std::uint32_t> texts;  // String ids
  for (std::size_t chunk = 0; chunk < file.chunks().size(); ++chunk) {
    if (const Status status = file.read_chunk(chunk, 0, kinds); !status) return status.error();
    const bool has = std::any_of(kinds.kind.begin(), kinds.kind.end(),
                                 [](std::uint8_t each) { return (each & 0x7f) == static_cast<std::uint8_t>(trace::Kind::attribute); });
    if (!has) continue;
    const Status status = trace::for_each_event(file, chunk, chunk + 1, [&](const trace::Event& event) {
      if (event.kind != trace::Kind::attribute) return true;
      const std::string_view key = names.string(event.name);
      if (key != "liveset.fingerprint" && key != "liveset.fingerprint.step") return true;
      any = true;
      if (!texts.insert(event.text).second) return true;  // said before: the same tensor of the same step
      const json said = json::parse(names.string(event.text), nullptr, false);
      if (!said.is_object() || (key == "liveset.fingerprint" && found.tensors.size() >= most_tensors)) {
        ++found.left_out;
      } else if (key == "liveset.fingerprint") {
        found.tensors.push_back(print_in(said));
      } else {
        found.rows = std::max(found.rows, static_cast<std::uint64_t>(number_in(said, "rows")));
      }
      return true;
    });
    if (!status) return status.error();
  }
  if (!any)
    return Error{ErrorKind::usage,
                 file.path(),
                 {},
                 "was recorded without --fingerprint",
                 "record both runs with: liveset run --fingerprint -- python train.py"};
  std::map<Key, std::string> files;
  const std::filesystem::path folder = file.path() + ".values";
  read_index(folder, files);
  for (TensorPrint& print : found.tensors) {
    const auto whole = files.find(key_of(print));
    if (whole != files.end()) print.file = whole->second;
  }
  std::stable_sort(found.tensors.begin(), found.tensors.end(), [](const TensorPrint& one, const TensorPrint& other) {
    return std::make_tuple(one.step, rank_of(one.what), one.order) < std::make_tuple(other.step, rank_of(other.what), other.order);
  });
  return found;
}

Equivalence compare_fingerprints(const Fingerprint& a, const Fingerprint& b) {
  Equivalence result;
  std::uint64_t longest = 1;
  std::map<Key, std::size_t> of_b;
  for (std::size_t each = 0; each < b.tensors.size(); ++each) of_b.emplace(key_of(b.tensors[each]), each);
  for (const TensorPrint& print : a.tensors) {
    if (print.what == "loss") continue;
    for (const std::int64_t size : print.shape) longest = std::max(longest, static_cast<std::uint64_t>(size));
  }
  const std::uint64_t rows = std::max({a.rows, b.rows, std::uint64_t{1}});
  result.reduction_length = rows > (std::uint64_t{1} << 62) / longest ? std::uint64_t{1} << 62 : rows * longest;
  std::vector<bool> met(b.tensors.size());
  std::size_t last = 0;
  for (const TensorPrint& print : a.tensors) {
    const auto found = of_b.find(key_of(print));
    if (found == of_b.end() || met[found->second]) {
      result.only_a.push_back(label(print));
      continue;
    }
    const TensorPrint& other = b.tensors[found->second];
    met[found->second] = true;
    result.other_order = result.other_order || found->second < last;
    last = found->second;
    if (print.hash.empty() || other.hash.empty()) {
      result.unreadable.push_back(label(print));
      continue;
    }
    ++result.compared;
    result.not_finite_a += print.not_finite;
    result.not_finite_b += other.not_finite;
    if (print.hash == other.hash && print.dtype == other.dtype && print.shape == other.shape) {
      ++result.bitwise_equal;
    } else {
      result.differences.push_back(compare_tensors(print, other, result.reduction_length));
    }
  }
  for (std::size_t each = 0; each < b.tensors.size(); ++each) {
    if (!met[each]) result.only_b.push_back(label(b.tensors[each]));
  }
  return result;
}

}  // namespace liveset::compare
