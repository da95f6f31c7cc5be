#include "profiler/collect/output_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace liveset::collect {

namespace fs = std::filesystem;

bool is_trace(const std::string& path) {
  char start[32] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(start, sizeof start);
  const std::string text(start, sizeof start);
  return text[0] == '\n' && text.find("liveset trace") != std::string::npos;  // the header's field number, its magic
}

std::string resolved(std::string path) {
  std::error_code code;
  for (int links = 0; links < 40 && fs::is_symlink(path, code); ++links) {
    const fs::path target = fs::read_symlink(path, code);
    if (code) break;
    path = (fs::path(path).parent_path() / target).string();
  }
  return path;
}

std::string make_way(const std::string& output) {
  std::error_code code;
  const std::string folder = output + ".d";
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const std::string path = it->path().string();
    if (it->path().extension() == ".liveset" && is_trace(path)) unlink(path.c_str());
  }
  rmdir(folder.c_str());
  std::string first = resolved(output);
  unlink(first.c_str());  // whoever still reads an older one keeps it
  return first;
}

std::string further_path(const std::string& output, std::uint32_t sequence, std::int64_t pid, std::uint64_t start_time) {
  const std::string folder = output + ".d";
  mkdir(folder.c_str(), 0777);
  char number[16];
  std::snprintf(number, sizeof number, "%03u", sequence);
  return folder + "/" + number + "-" + std::to_string(pid) + "-" + std::to_string(start_time) + ".liveset";
}

}  // namespace liveset::collect
