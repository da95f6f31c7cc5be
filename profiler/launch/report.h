// What the collector tells about the files it made, and the one line that `run` prints.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace liveset::launch {

struct Report {
  struct File {
    std::string path, error;
    std::uint64_t events = 0, lost = 0, lost_in_rings = 0;
    bool open = false;
  };
  std::vector<File> files;
  bool complete = false;  // the collector lived to tell all
  std::string trouble;    // why there was no collector
  bool stale = false;     // OUT is there, but of an earlier run

  std::size_t open_files() const;
};

Report receive_report(int collector);

// One line, without its end: paths, events, losses; or why nothing was recorded.
std::string describe(const Report& report, const std::string& output);

}  // namespace liveset::launch
