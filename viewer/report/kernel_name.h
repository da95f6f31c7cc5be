// Kernels' names as people know them.
#pragma once
#include <string>
#include <string_view>

namespace liveset::report {

// "_ZN2at6native3addIfEEvT_" as "void at::native::add<float>(float)". Where a name says so much by references to its own parts that
// spelling them out could take more than 16 MiB (a name of 300 bytes can be made to take all memory), it is "at::native::add<...>".
// What is no C++ name stays as it is.
std::string readable_name(const std::string& mangled);

}  // namespace liveset::report
