// A small device for tests: 1 GiB, of which a context takes 16 MiB.
#pragma once
#include <string>

#include "hooks/standin/model/machine.h"

namespace standin {

inline constexpr std::size_t mebibyte = std::size_t{1} << 20;
inline constexpr std::size_t device_bytes = 1024 * mebibyte;

inline Configuration small_device(const std::string& more = "") {
  return *Configuration::parse(
      "gpu=test\nname=Test GPU\ncapability=90\nmultiprocessors=8\ncontext_bytes=16777216\nmemory_bytes=1073741824\n" + more);
}

}  // namespace standin
