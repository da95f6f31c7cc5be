// What a program or library says of itself: the libraries it needs, and whether it carries device code.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace liveset::launch {

struct ElfFile {
  std::vector<std::string> needed;  // DT_NEEDED
  bool has_device_code = false;     // a section .nv_fatbin
};

// Nothing when the file is no 64-bit ELF file, or damaged.
std::optional<ElfFile> read_elf(const std::string& path);

}  // namespace liveset::launch
