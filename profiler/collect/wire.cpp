#include "profiler/collect/wire.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace liveset::collect {

bool send_fields(int socket, const std::vector<std::string>& fields) {
  std::string packet;
  for (const std::string& field : fields) packet.append(field).push_back('\0');
  ssize_t sent = 0;
  do sent = send(socket, packet.data(), packet.size(), MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(packet.size());
}

std::vector<std::string> receive_fields(int socket, bool wait) {
  std::string packet(16 * 1024, '\0');
  ssize_t got = 0;
  do got = recv(socket, packet.data(), packet.size(), wait ? 0 : MSG_DONTWAIT);
  while (got < 0 && errno == EINTR && wait);
  std::vector<std::string> fields;
  if (got <= 0) {
    if (got == 0) errno = 0;
    return fields;
  }
  packet.resize(static_cast<std::size_t>(got));
  for (std::size_t at = 0; at < packet.size();) {
    const std::size_t end = packet.find('\0', at);
    if (end == std::string::npos) break;
    fields.push_back(packet.substr(at, end - at));
    at = end + 1;
  }
  return fields;
}

int listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return -1;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener, 4096) != 0) {
    const int error = errno;
    close(listener);
    errno = error;
    return -1;
  }
  return listener;
}

}  // namespace liveset::collect
