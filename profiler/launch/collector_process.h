// The collector as a process of its own.
#pragma once
#include <sys/types.h>

#include <string>

namespace liveset::launch {

struct CollectorProcess {
  pid_t pid = -1;      // a child of the caller, in a session of its own; -1: could not be started
  int socket = -1;     // to it; collect/wire.h
  std::string folder;  // of the socket; removed by remove_folder(), or by the collector at its end
  std::string socket_path;
  std::string problem;      // why it could not be started
  std::string log_problem;  // why it keeps no log
};

struct LogOptions {
  std::string level;  // spdlog's names; empty: info with a file, else off
  std::string file;   // empty: standard error
};

// Returns when it is ready. It keeps `claim` open. Call before the first thread, with descriptors 0 to 2 open.
CollectorProcess start_collector(LogOptions log, int claim);
// Where a library of any path can be preloaded from.
std::string preload_link(const CollectorProcess& collector);
void remove_folder(const CollectorProcess& collector);

}  // namespace liveset::launch
