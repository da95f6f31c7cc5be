#include "profiler/launch/library_folder.h"

#include <unistd.h>

#include <cstdlib>

#include "profiler/launch/output.h"

namespace liveset::launch {

std::string own_path() {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return path;
}

std::string find_own(const std::string& name) {
  const std::string folder = folder_of(own_path());
  for (const char* place : {"/../lib/", "/../lib/liveset/"}) {
    char* found = realpath((folder + place + name).c_str(), nullptr);
    if (found == nullptr) continue;
    const std::string path = found;
    std::free(found);
    return path;
  }
  return {};
}

}  // namespace liveset::launch
