#include "profiler/writer/utf8.h"

#include <cstddef>
#include <cstdint>

namespace liveset::writer {
namespace {

// Length of the well-formed sequence at the start of `text`, 0 when there is none (RFC 3629: shortest form, no
// surrogates).
std::size_t sequence_length(std::string_view text) {
  const auto byte = [text](std::size_t index) { return index < text.size() ? static_cast<std::uint8_t>(text[index]) : 0U; };
  const auto continues = [&](std::size_t index) { return (byte(index) & 0xc0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned code = (first & 0xfU) << 12 | (byte(1) & 0x3fU) << 6;
    return continues(1) && continues(2) && code >= 0x800 && (code < 0xd800 || code > 0xdfff) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned code = (first & 7U) << 18 | (byte(1) & 0x3fU) << 12;
    return continues(1) && continues(2) && continues(3) && code >= 0x10000 && code <= 0x10ffff ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) {
      valid.push_back('?');
      text.remove_prefix(1);
    } else {
      valid.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return valid;
}

}  // namespace liveset::writer
