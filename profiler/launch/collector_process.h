// The collector as a process of its own.
#pragma once
#include <sys/types.h>

#include <string>

namespace liveset::launch {

struct CollectorProcess {
  pid_t pid = -1;           // a child of the caller, in a session of its own; -1: could not be started
  int socket = -1;          // to it; collect/wire.h
  std::string folder;       // of the socket; removed by remove_folder()
  std::string socket_path;
  std::string problem;      // why it could not be started
};

// Call before the first thread.
CollectorProcess start_collector(const std::string& log_level, const std::string& log_file);
void remove_folder(const CollectorProcess& collector);

}  // namespace liveset::launch
