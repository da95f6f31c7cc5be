#include "viewer/report/kernel_name.h"

#include <cxxabi.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>
#include <memory>

namespace liveset::report {
namespace {

constexpr std::size_t most_bytes = 16 << 20;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// By how many powers of two the name can grow: a reference ("S1_", "T_") at most doubles what is there, a pack ("Dp", "sp") repeats at
// most as often as the name is long.
std::size_t doublings(std::string_view name) {
  std::size_t count = 0;
  for (std::size_t i = 0; i + 1 < name.size(); ++i) {
    if ((name[i] == 'D' || name[i] == 's') && name[i + 1] == 'p') count += std::bit_width(name.size());
    if (name[i] != 'S' && name[i] != 'T') continue;
    const auto end = std::find_if_not(name.begin() + static_cast<std::ptrdiff_t>(i) + 1, name.end(),
                                      [](char c) { return is_digit(c) || std::isupper(static_cast<unsigned char>(c)) != 0; });
    count += end != name.end() && *end == '_';
  }
  return count;
}

// Its names without arguments: "_ZN2at6native3addIfEE..." as "at::native::add<...>". Empty where it has another form.
std::string without_arguments(std::string_view mangled) {
  std::string text;
  std::size_t at = mangled.find_first_not_of("N", 2);
  while (at < mangled.size() && is_digit(mangled[at])) {
    std::size_t length = 0;
    for (; at < mangled.size() && is_digit(mangled[at]) && length < mangled.size(); ++at)
      length = 10 * length + static_cast<std::size_t>(mangled[at] - '0');
    if (length > mangled.size() - at) return {};
    std::string_view name = mangled.substr(at, length);
    if (name.substr(0, 11) == "_GLOBAL__N_") name = "(anonymous namespace)";
    text += (text.empty() ? "" : "::") + std::string(name);
    at += length;
  }
  return text.empty() ? text : text + "<...>";
}

}  // namespace

std::string readable_name(const std::string& mangled) {
  if (mangled.compare(0, 2, "_Z") != 0) return mangled;
  const std::size_t most_doublings = std::bit_width(most_bytes / std::max<std::size_t>(mangled.size(), 1));
  if (doublings(mangled) >= most_doublings) {
    const std::string text = without_arguments(mangled);
    return text.empty() ? mangled : text;
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text != nullptr ? text.get() : mangled;
}

}  // namespace liveset::report
