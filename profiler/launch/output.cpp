#include "profiler/launch/output.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>

#include "profiler/collect/output_files.h"

namespace liveset::launch {
namespace {

constexpr const char* elsewhere = " (choose another place with -o)";

std::string problem_of(const std::string& output) {
  struct stat info {};
  const bool exists = stat(output.c_str(), &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) return output + ": exists and is no regular file" + elsewhere;
  if (exists && ((info.st_mode & 0222) == 0 || access(output.c_str(), W_OK) != 0))
    return output + ": exists and is write-protected" + elsewhere;
  if (exists && info.st_size != 0 && !collect::is_trace(output)) return output + ": exists and is no liveset trace" + elsewhere;
  const std::string folder = folder_of(output);
  if (access(folder.c_str(), W_OK | X_OK) != 0) return folder + ": " + std::strerror(errno) + elsewhere;
  return {};
}

// A socket's name without a file: it is gone with the last process that has it open, however that ends. -1 when there
// is none to be had; *taken when somebody else has it.
int claim(const std::string& output, bool* taken) {
  struct stat folder {};
  if (stat(folder_of(output).c_str(), &folder) != 0) return -1;
  const std::string name = "liveset " + std::to_string(folder.st_dev) + " " + std::to_string(folder.st_ino) + " " +
                           std::to_string(std::hash<std::string>()(output.substr(output.rfind('/') + 1)));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0) {
    return socket;
  }
  *taken = errno == EADDRINUSE;
  close(socket);
  return -1;
}

}  // namespace

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Output claim_output(const std::string& output) {
  Output made;
  const std::string target = collect::resolved(output);
  made.problem = problem_of(target);
  bool taken = false;
  if (made.problem.empty()) made.claim = claim(target, &taken);
  if (taken) made.problem = output + ": another run is recording to it" + elsewhere;
  return made;
}

}  // namespace liveset::launch
