#include "profiler/launch/report.h"

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
    if (fields[0] != "file" || fields.size() != 6) continue;
    report.files.push_back({fields[1], fields[5], std::strtoull(fields[2].c_str(), nullptr, 10), std::strtoull(fields[3].c_str(), nullptr, 10),
                            fields[4] == "open"});
  }
}

std::string describe(const Report& report, const std::string& output) {
  if (!report.trouble.empty()) return "nothing was recorded: " + report.trouble;
  if (!report.complete) {
    struct stat info {};
    const bool exists = stat(output.c_str(), &info) == 0;
    return "the collector ended before the job; " + (exists ? output + " holds what it had written" : "nothing was recorded");
  }
  std::uint64_t events = 0, lost = 0, written = 0;
  std::string error;
  for (const Report::File& file : report.files) {
    events += file.events;
    lost += file.lost;
    written += file.path.empty() || (file.events == 0 && !file.open) ? 0 : 1;
    if (error.empty()) error = file.error;
  }
  if (report.files.empty()) {
    return "nothing was recorded: no process of the job reported anything (neither PyTorch nor a program that uses liveset.h ran)";
  }
  std::string line = written == 0 ? "nothing was recorded" : output + ": " + plural(events, "event", "events");
  if (written > 1) line += " of " + plural(written, "process", "processes") + ", the later ones in " + output + ".d/";
  if (lost != 0) line += ", " + grouped(lost) + " lost";
  if (report.open_files() != 0) line += "; " + plural(report.open_files(), "process is", "processes are") + " still being recorded";
  if (!error.empty()) line += "; " + error;
  return line;
}

}  // namespace liveset::launch
