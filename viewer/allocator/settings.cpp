#include "viewer/allocator/settings.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

namespace liveset::allocator {
namespace {

// Of PyTorch 2.14, beside those below: how memory of the host is pinned, how CUDA is called, what an error looks like.
constexpr std::string_view keys_without_effect[] = {
    "backend",
    "graph_capture_record_stream_reuse",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "throw_on_cudamalloc_oom",
};
constexpr std::string_view known_keys =
    "expandable_segments, garbage_collection_threshold, large_segment_size_mb, max_non_split_rounding_mb, max_split_size_mb, "
    "per_process_memory_fraction, roundup_power2_divisions";

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {
    std::string word;
    const auto flush = [&] {
      if (!word.empty()) tokens_.push_back(std::exchange(word, {}));
    };
    for (const char character : text) {
      if (character == ',' || character == ':' || character == '[' || character == ']') {
        flush();
        tokens_.emplace_back(1, character);
      } else if (character != ' ' && character != '\t' && character != '\n' && character != '\r') {
        word += character;
      }
    }
    flush();
  }

  Result<Settings> run() {
    while (at_ < tokens_.size()) {
      const std::string key = next();
      if (!expect(":")) return failed("\"" + key + "\" is followed by no value", "write " + key + ":VALUE");
      if (Status status = value_of(key); !status) return status.take_error();
      if (at_ < tokens_.size() && !expect(",")) return failed("there is no comma before \"" + tokens_[at_] + "\"", "KEY:VALUE,KEY:VALUE");
    }
    return std::move(settings_);
  }

 private:
  Error failed(std::string what, std::string hint) const {
    return {ErrorKind::usage, "", std::nullopt, "allocator settings \"" + std::string(text_.substr(0, 200)) + "\": " + what,
            std::move(hint)};
  }
  std::string next() { return at_ < tokens_.size() ? tokens_[at_++] : ""; }
  bool expect(std::string_view token) {
    if (at_ >= tokens_.size() || tokens_[at_] != token) return false;
    ++at_;
    return true;
  }

  Status value_of(const std::string& key) {
    if (key == "roundup_power2_divisions") return divisions();
    if (key == "max_split_size_mb") return mebibytes(key, 20, settings_.max_split_size);
    if (key == "max_non_split_rounding_mb") return mebibytes(key, 20, settings_.max_non_split_rounding_size);
    if (key == "large_segment_size_mb") return mebibytes(key, 11, settings_.large_segment_size);
    if (key == "garbage_collection_threshold") {
      if (!fraction(settings_.garbage_collection_threshold) || settings_.garbage_collection_threshold <= 0 ||
          settings_.garbage_collection_threshold >= 1)
        return failed(key + " is not between 0 and 1", "0.8 gives back cached memory from 80 % of the device on");
      return Done{};
    }
    if (key == "per_process_memory_fraction") {
      if (!fraction(settings_.memory_fraction) || settings_.memory_fraction < 0 || settings_.memory_fraction > 1)
        return failed(key + " is not from 0 to 1", "1 allows all of the device");
      return Done{};
    }
    if (key == "expandable_segments") {
      const std::string value = next();
      if (value != "True" && value != "False") return failed(key + " is neither True nor False", "PyTorch takes no other spelling");
      settings_.expandable_segments = value == "True";
      return Done{};
    }
    if (std::find(std::begin(keys_without_effect), std::end(keys_without_effect), key) == std::end(keys_without_effect))
      return failed("\"" + key + "\" is no setting that is known here", "those with an effect are " + std::string(known_keys));
    if (const std::string value = next(); key == "backend" && value != "native")
      return failed("the backend " + value + " is not the caching allocator that is simulated", "only native is");
    settings_.without_effect.push_back(key);
    return Done{};
  }

  static std::optional<std::uint64_t> number(const std::string& token) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error != std::errc() || end != token.data() + token.size()) return std::nullopt;
    return value;
  }
  bool fraction(double& into) {
    const std::string token = next();
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), into);
    return error == std::errc() && end == token.data() + token.size() && std::isfinite(into);
  }
  Status mebibytes(const std::string& key, std::uint64_t least, std::uint64_t& into) {
    const auto value = number(next());
    if (!value) return failed(key + " is no whole number of MiB", "");
    if (*value < least) return failed(key + " is less than " + std::to_string(least), "PyTorch refuses that too");
    into = *value > unlimited / mebibyte ? unlimited : *value * mebibyte;
    // A segment or a page that no device has room for.
    if (key == "large_segment_size_mb" && into > std::uint64_t{1} << 48) return failed(key + " is more than 256 TiB", "");
    return Done{};
  }

  Status divisions() {
    auto& entries = settings_.roundup_power2_divisions;
    if (!expect("[")) {
      const auto value = number(next());
      if (!value || !std::has_single_bit(*value)) return failed("roundup_power2_divisions is no power of two", "8, or [256:1,512:2,>:8]");
      entries.fill(*value);
      return Done{};
    }
    entries.fill(0);
    bool first = true;
    std::size_t last = 0;
    while (!expect("]")) {
      const std::string from = next();
      if (!expect(":")) return failed("roundup_power2_divisions: \"" + from + "\" is followed by no value", "[256:1,512:2,>:8]");
      const auto value = number(next());
      if (!value || (*value != 0 && !std::has_single_bit(*value)))
        return failed("roundup_power2_divisions: the divisions from \"" + from + "\" on are no power of two and not 0",
                      "[256:1,512:2,>:8]");
      if (from == ">") {
        std::fill(entries.begin() + static_cast<std::ptrdiff_t>(std::min(last + 1, entries.size())), entries.end(), *value);
      } else {
        const auto megabytes = number(from);
        if (!megabytes || !std::has_single_bit(*megabytes))
          return failed("roundup_power2_divisions: \"" + from + "\" is no power of two in MiB", "[256:1,512:2,>:8]");
        const std::size_t index = std::min<std::size_t>(static_cast<std::size_t>(std::countr_zero(*megabytes)), entries.size() - 1);
        if (first) std::fill(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(index), *value);
        entries[index] = *value;
        first = false;
        last = index;
      }
      if (!expect(",") && (at_ >= tokens_.size() || tokens_[at_] != "]"))
        return failed("roundup_power2_divisions: the list has no end", "");
    }
    return Done{};
  }

  std::string_view text_;
  std::vector<std::string> tokens_;
  std::size_t at_ = 0;
  Settings settings_;
};

}  // namespace

Result<Settings> parse_settings(std::string_view text) { return Parser(text).run(); }

std::uint64_t rounded_size(const Settings& settings, std::uint64_t size) {
  constexpr std::uint64_t least = 512;
  if (size < least) return least;
  const int power = static_cast<int>(std::bit_width(size)) - 1;
  const std::uint64_t divisions = settings.roundup_power2_divisions[static_cast<std::size_t>(std::clamp(power - 20, 0, 15))];
  if (divisions > 1 && size / divisions >= least && size > least * divisions) {
    if (std::has_single_bit(size)) return size;
    const std::uint64_t step = (std::uint64_t{1} << power) / divisions;  // 512 or more
    return (size + step - 1) / step * step;
  }
  return (size + least - 1) / least * least;
}

}  // namespace liveset::allocator
