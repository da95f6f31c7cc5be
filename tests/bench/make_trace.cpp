// make_trace --events N --out FILE [--pattern train|random|checkpoint] [--no-totals]: a trace of a known shape, through the
// writer. Prints one JSON object: what was written, and what CPU time the writer took for it.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>

#include "profiler/writer/trace_writer.h"
#include "tests/support/checkpoint_pattern.h"
#include "tests/support/train_pattern.h"

namespace {

// CPU time of this thread: the machine may be busy with other things.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Options {
  std::uint64_t events = 1'000'000;
  std::string out, pattern = "train";
  bool totals = true;
};

int usage() {
  std::fputs("usage: make_trace --events N --out FILE [--pattern train|random|checkpoint] [--no-totals]\n", stderr);
  return 2;
}

// Events are made in blocks, so that making them is not counted as the writer's time.
template <class Pattern>
double write(liveset::writer::TraceWriter& writer, Pattern& pattern, const Options& options) {
  constexpr std::size_t block_events = 16384;
  std::vector<liveset::writer::Event> block;
  double seconds = 0;
  for (std::uint64_t done = 0; done < options.events; done += block.size()) {
    block.clear();
    while (block.size() < block_events && done + block.size() < options.events) {
      block.push_back(pattern.next());
      if (!options.totals) block.back().has_totals = false;
    }
    const double begin = cpu_seconds();
    for (const liveset::writer::Event& event : block) writer.append(event);
    seconds += cpu_seconds() - begin;
  }
  return seconds;
}

template <class Pattern>
int make(const Options& options) {
  liveset::writer::HeaderInfo info;
  info.tool_version = LIVESET_VERSION;
  info.host = "synthetic";
  info.executable = "make_trace";
  info.command = {"make_trace", "--events", std::to_string(options.events), "--pattern", options.pattern};
  std::string error;
  const auto writer = liveset::writer::TraceWriter::create(options.out, info, &error);
  if (writer == nullptr) {
    std::fprintf(stderr, "make_trace: %s\n", error.c_str());
    return 1;
  }
  Pattern pattern;
  Pattern::define(*writer);
  double seconds = write(*writer, pattern, options);
  const double begin = cpu_seconds();
  const bool whole = writer->finish("exit");
  seconds += cpu_seconds() - begin;
  const auto bytes = static_cast<double>(std::filesystem::file_size(options.out));
  const auto events = static_cast<double>(options.events);
  std::printf(
      "{\"pattern\": \"%s\", \"events\": %llu, \"bytes\": %.0f, \"bytes_per_event\": %.3f, \"writer_ns_per_event\": "
      "%.1f}\n",
      options.pattern.c_str(), static_cast<unsigned long long>(options.events), bytes, bytes / events, seconds * 1e9 / events);
  return whole ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--no-totals") {
      options.totals = false;
    } else if (i + 1 == argc) {
      return usage();
    } else if (name == "--events") {
      options.events = std::strtoull(argv[++i], nullptr, 10);
    } else if (name == "--out") {
      options.out = argv[++i];
    } else if (name == "--pattern") {
      options.pattern = argv[++i];
    } else {
      return usage();
    }
  }
  if (options.out.empty() || options.events == 0) return usage();
  if (options.pattern == "train") return make<liveset::test::TrainPattern>(options);
  if (options.pattern == "checkpoint") return make<liveset::test::CheckpointPattern>(options);
  if (options.pattern == "random") return make<liveset::test::RandomPattern>(options);
  return usage();
}
