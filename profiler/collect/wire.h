// What the launcher and the collector say to each other, one packet each over a SOCK_SEQPACKET pair: a word, then fields, each
// ended by a 0 byte. The same program speaks on both ends.
//
//   launcher: "job" PID OUT       before the job's program starts
//             "ended" STATUS      of wait(); then a report is expected
//   collector: "ready"             at first, or what is in its way
//              "file" PATH EVENTS LOST LOST_IN_RINGS STATE ERROR    at last; STATE: closed, open (its process still runs) or none (no
//                                  file could be made)
//              "done"
#pragma once
#include <string>
#include <vector>

namespace liveset::collect {

bool send_fields(int socket, const std::vector<std::string>& fields);
// The next packet; empty at the end of the connection, or when there is none now (`wait` false: sets errno EAGAIN).
std::vector<std::string> receive_fields(int socket, bool wait);

// The collector's own socket, to which jobs connect: binds and listens at `path`; -1 with errno.
int listen_at(const std::string& path);

}  // namespace liveset::collect
