// read_trace FILE [NAME,NAME,...]: decodes the named columns (kind, time, thread, phase, scope, heap, stream, address,
// size, age, total, reserved, value, name, class, reads, number, text, stack, or all) of every chunk. Prints one JSON
// object with the CPU time for opening (which checks every packet) and for decoding.
#include <cstdio>
#include <ctime>
#include <sstream>
#include <string>

#include "viewer/trace/trace_file.h"

namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// In the order of ColumnId, from 1.
constexpr const char* column_names[] = {"kind",  "time",     "thread", "phase", "scope", "heap",  "stream", "address", "size", "age",
                                        "total", "reserved", "value",  "name",  "class", "reads", "number", "text",    "stack"};

liveset::trace::ColumnMask parse_mask(const std::string& text) {
  if (text == "all") return liveset::trace::all_columns;
  liveset::trace::ColumnMask mask = 0;
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');) {
    unsigned id = 1;
    for (const char* known : column_names) {
      if (name == known) mask |= 1U << id;
      ++id;
    }
  }
  return mask;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: read_trace FILE [NAME,NAME,...]\n", stderr);
    return 2;
  }
  const liveset::trace::ColumnMask mask = parse_mask(argc > 2 ? argv[2] : "kind,size,age,scope");
  const double start = cpu_seconds();
  auto file = liveset::trace::TraceFile::open(argv[1]);
  if (!file) {
    std::fprintf(stderr, "%s\n", file.error().message().c_str());
    return 3;
  }
  const double opened = cpu_seconds();
  liveset::trace::Columns columns;
  for (std::size_t chunk = 0; chunk < file->chunks().size(); ++chunk) {
    if (const auto status = file->read_chunk(chunk, mask, columns); !status) {
      std::fprintf(stderr, "%s\n", status.error().message().c_str());
      return 3;
    }
  }
  const double read = cpu_seconds();
  const double per_event = 1e9 / static_cast<double>(file->events());
  std::printf("{\"events\": %llu, \"open_ns_per_event\": %.2f, \"decode_ns_per_event\": %.2f}\n",
              static_cast<unsigned long long>(file->events()), (opened - start) * per_event, (read - opened) * per_event);
  return 0;
}
