#include "viewer/ledger/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "viewer/ledger/block_table.h"

namespace liveset::ledger {
namespace {

constexpr std::uint64_t unknown = std::numeric_limits<std::uint64_t>::max();

std::uint64_t available_on_machine() {
  std::ifstream file("/proc/meminfo");
  std::string title, unit;
  std::uint64_t kibibytes = 0, sum = 0;
  bool known = false;
  while (file >> title >> kibibytes && std::getline(file, unit)) {
    if (title != "MemAvailable:" && title != "SwapFree:") continue;
    known |= title == "MemAvailable:";
    sum += kibibytes << 10;
  }
  return known ? sum : unknown;
}

// Of the group itself and not less what it uses: most of that is cached files, which give way.
std::uint64_t control_group_limit() {
  std::uint64_t bytes = 0;
  std::ifstream file("/sys/fs/cgroup/memory.max");
  return file >> bytes ? bytes : unknown;  // "max" is no number
}

std::uint64_t process_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : unknown;
}

}  // namespace

Status expect_room(const trace::TraceFile& file, std::uint64_t limit) {
  if (limit == 0) limit = std::min({available_on_machine(), control_group_limit(), process_limit()});
  if (file.allocations() <= limit / sizeof(Block)) return Done{};
  constexpr std::uint64_t mebibyte = 1U << 20;
  return Error{ErrorKind::unreadable, file.path(), std::nullopt,
               "the trace states " + std::to_string(file.allocations()) + " allocations; its ledger takes " +
                   std::to_string(sizeof(Block)) + " bytes for each, and " + std::to_string(limit / mebibyte) + " MiB are available",
               file.allocations() / 64 > file.file_bytes() ? "the file is far too small for that many: is it a trace?"
                                                           : "read it on a machine with more memory"};
}

}  // namespace liveset::ledger
