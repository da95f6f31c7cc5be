#include "profiler/launch/report.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "profiler/collect/wire.h"

namespace liveset::launch {
namespace {

// 1234567 -> "1,234,567".
std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string plural(std::uint64_t number, const char* one, const char* many) { return grouped(number) + " " + (number == 1 ? one : many); }

}  // namespace

std::size_t Report::open_files() const {
  return static_cast<std::size_t>(std::count_if(files.begin(), files.end(), [](const File& file) { return file.open; }));
}

Report receive_report(int collector) {
  Report report;
  for (;;) {
    const std::vector<std::string> fields = collect::receive_fields(collector, true);
    if (fields.empty()) return report;
    if (fields[0] == "done") {
      report.complete = true;
      return report;
    }
    if (fields[0] != "file" || fields.size() != 7) continue;
    const auto number = [&](int field) { return std::strtoull(fields[static_cast<std::size_t>(field)].c_str(), nullptr, 10); };
    report.files.push_back({fields[1], fields[6], number(2), number(3), number(4), fields[5] == "open"});
  }
}

std::string describe(const Report& report, const std::string& output) {
  const std::string nothing = std::string("nothing was recorded") + (report.stale ? " (" + output + " is of an earlier run)" : "");
  if (!report.trouble.empty()) return nothing + ": " + report.trouble;
  if (!report.complete) {
    struct stat info {};
    const bool written = !report.stale && stat(output.c_str(), &info) == 0;
    return "the collector ended before the job; " + (written ? output + " holds what it had written" : nothing);
  }
  std::uint64_t events = 0, lost = 0, lost_in_rings = 0, written = 0;
  std::string error;
  for (const Report::File& file : report.files) {
    events += file.events;
    lost += file.lost;
    lost_in_rings += file.lost_in_rings;
    written += file.path.empty() || (file.events == 0 && !file.open) ? 0 : 1;
    if (error.empty()) error = file.error;
  }
  if (report.files.empty()) {
    rlimit size{};
    const bool limited = getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur != RLIM_INFINITY;
    return nothing +
           ": no process reported an allocation (children made by fork without exec are not recorded, static and setuid programs and "
           "those whose environment was cleared, as env -i does, cannot be" +
           (limited ? "; a file size limit, ulimit -f, bounds the recorder's memory, too)" : ")");
  }
  std::string line = written == 0 ? nothing : output + ": " + plural(events, "event", "events");
  if (written > 1) line += " of " + plural(written, "process", "processes") + ", the later ones in " + output + ".d/";
  if (lost != 0) line += ", " + grouped(lost) + " lost";
  if (lost_in_rings != 0) {
    if (lost_in_rings < lost) line += ", " + grouped(lost_in_rings) + " of them";
    line += " to full buffers (LIVESET_RING_BYTES and LIVESET_RING_TOTAL make them larger)";
  }
  if (report.open_files() != 0) line += "; " + plural(report.open_files(), "process is", "processes are") + " still being recorded";
  if (!error.empty()) line += "; " + error;
  return line;
}

}  // namespace liveset::launch
