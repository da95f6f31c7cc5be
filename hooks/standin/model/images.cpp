#include "hooks/standin/model/images.h"

#include <cctype>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace standin {
namespace {

template <class Number>
Number read(const char* place) {
  Number value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

// Each kernel of a cubin has a section .text.NAME.
std::set<std::string> kernels_of_elf(const char* image) {
  constexpr std::size_t sections_at = 0x28, section_size_at = 0x3a, section_count_at = 0x3c, names_index_at = 0x3e,
                        offset_in_section = 0x18;
  const char* sections = image + read<std::uint64_t>(image + sections_at);
  const std::size_t size = read<std::uint16_t>(image + section_size_at);
  const std::size_t count = read<std::uint16_t>(image + section_count_at);
  const std::size_t names_index = read<std::uint16_t>(image + names_index_at);
  std::set<std::string> kernels;
  if (names_index >= count) return kernels;
  const char* names = image + read<std::uint64_t>(sections + names_index * size + offset_in_section);
  constexpr std::string_view prefix = ".text.";
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view name = names + read<std::uint32_t>(sections + i * size);
    if (name.substr(0, prefix.size()) == prefix) kernels.emplace(name.substr(prefix.size()));
  }
  return kernels;
}

std::set<std::string> kernels_of_ptx(std::string_view text) {
  std::set<std::string> kernels;
  constexpr std::string_view keyword = ".entry";
  for (auto place = text.find(keyword); place != std::string_view::npos; place = text.find(keyword, place)) {
    place += keyword.size();
    while (place < text.size() && std::isspace(static_cast<unsigned char>(text[place]))) ++place;
    auto end = place;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_' || text[end] == '$')) ++end;
    kernels.emplace(text.substr(place, end - place));
  }
  return kernels;
}

}  // namespace

std::optional<std::set<std::string>> kernels_in(const void* image) {
  const auto* bytes = static_cast<const char*>(image);
  if (std::strncmp(bytes,
                   "\x7f"
                   "ELF",
                   4) == 0)
    return bytes[4] == 2 ? std::optional(kernels_of_elf(bytes)) : std::nullopt;
  // PTX begins with comments and its version.
  constexpr std::size_t head = 4096;
  const std::string_view start(bytes, strnlen(bytes, head));
  const bool is_text = !start.empty() && (std::isspace(static_cast<unsigned char>(start[0])) || start[0] == '/' || start[0] == '.');
  if (is_text && start.find(".version") != std::string_view::npos) return kernels_of_ptx(bytes);
  return std::nullopt;
}

}  // namespace standin
