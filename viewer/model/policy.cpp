#include <algorithm>
#include <charconv>
#include <numeric>

#include "viewer/model/model.h"

namespace liveset::model {
namespace {

Error bad_policy(std::string what) {
  return {ErrorKind::usage,
          "",
          {},
          std::move(what),
          "policies are save-all, segment:K and segments:N,N,..., as in segment:2 or segments:3,2,1"};
}

// What is wrong with a segment's length, empty when nothing is.
std::string read_length(std::string_view text, std::uint64_t& length) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument || (error == std::errc() && length < 1))
    return " must be a whole number of at least 1";
  return error == std::errc() && length <= max_layers ? "" : " is too large, at most " + std::to_string(max_layers);
}

}  // namespace

Result<Policy> parse_policy(std::string_view text) {
  Policy policy;
  policy.text = text;
  if (text == "save-all") return policy;
  const auto colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  std::string_view rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (kind == "segment") {
    policy.kind = Policy::Kind::equal_segments;
    if (const std::string wrong = read_length(rest, policy.length); !wrong.empty())
      return bad_policy("policy '" + policy.text + "': the segment length" + wrong);
    return policy;
  }
  if (kind != "segments") return bad_policy("unknown policy '" + policy.text + "'");
  policy.kind = Policy::Kind::segments;
  while (true) {
    const auto comma = rest.find(',');
    std::uint64_t length = 0;
    if (const std::string wrong = read_length(rest.substr(0, comma), length); !wrong.empty())
      return bad_policy("policy '" + policy.text + "': segment " + std::to_string(policy.lengths.size() + 1) + wrong);
    policy.lengths.push_back(length);
    if (comma == std::string_view::npos) return policy;
    rest.remove_prefix(comma + 1);
  }
}

Result<std::vector<std::uint64_t>> boundaries(const Policy& policy, std::uint64_t layers, bool short_segment_first) {
  std::vector<std::uint64_t> cuts{0};
  if (policy.kind == Policy::Kind::segments) {
    const std::uint64_t sum = std::accumulate(policy.lengths.begin(), policy.lengths.end(), std::uint64_t{0});
    if (sum != layers)
      return bad_policy("policy '" + policy.text + "': the segments have " + std::to_string(sum) + " layers, the model has " +
                        std::to_string(layers));
    for (const std::uint64_t length : policy.lengths) cuts.push_back(cuts.back() + length);
    return cuts;
  }
  const std::uint64_t length = policy.kind == Policy::Kind::save_all ? 1 : policy.length;
  if (short_segment_first && layers % length != 0) cuts.push_back(layers % length);
  while (cuts.back() < layers) cuts.push_back(std::min(layers, cuts.back() + length));
  return cuts;
}

}  // namespace liveset::model
