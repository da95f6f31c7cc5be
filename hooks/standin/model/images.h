// Names of the kernels in a module's image, as far as it can be read.
#pragma once
#include <optional>
#include <set>
#include <string>

namespace standin {

// Of a cubin (an ELF file in memory) or PTX text; nothing for other images (fat binaries are compressed): there any name may exist.
std::optional<std::set<std::string>> kernels_in(const void* image);

}  // namespace standin
