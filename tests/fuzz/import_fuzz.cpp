// Other tools' files against mutation: whatever the bytes, reading one gives a trace that every report reads, or an error of one line, in
// bounded memory. Deterministic; `import_fuzz [ROUNDS [SEED]]`.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "viewer/import/importer.h"
#include "viewer/import/pickle.h"
#include "viewer/report/peak.h"
#include "viewer/report/summary.h"

namespace {

using namespace liveset;

// Writes pickles of protocol 4 as Python does, without its memo.
struct PickleWriter {
  std::string bytes = "\x80\x04";
  PickleWriter& text(const std::string& value) {
    bytes += "\x8c";
    bytes += static_cast<char>(value.size());
    bytes += value;
    return *this;
  }
  PickleWriter& number(std::uint64_t value) {
    bytes += "\x8a\x08";
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
    return *this;
  }
  PickleWriter& raw(const std::string& opcodes) {
    bytes += opcodes;
    return *this;
  }
};

std::string snapshot_seed() {
  PickleWriter out;
  out.raw("}(").text("segments").raw("](");
  for (std::uint64_t i = 0; i < 2; ++i) {
    out.raw("}(").text("device").number(i).text("address").number(0x10000).text("total_size").number(4096).text("stream").number(0);
    out.text("is_expandable").raw(i == 0 ? "\x89" : "\x88").text("blocks").raw("](");
    for (const char* state : {"active_allocated", "inactive", "active_pending_free"})
      out.raw("}(").text("size").number(1024).text("requested_size").number(1000).text("state").text(state).raw("u");
    out.raw("}(").text("size").number(1024).text("state").text("inactive").text("history").raw("](}(").text("addr").number(0x10c00);
    out.text("real_size").number(7).text("frames").raw("]ueue").raw("u");
  }
  out.raw("e").text("device_traces").raw("](");
  for (std::uint64_t device = 0; device < 2; ++device) {
    out.raw("](");
    std::uint64_t time = 100;
    for (const char* action : {"segment_alloc", "alloc", "free_requested", "alloc", "free_completed", "snapshot", "oom", "segment_map",
                               "segment_unmap", "segment_free", "free_completed", "alloc"}) {
      out.raw("}(")
          .text("action")
          .text(action)
          .text("addr")
          .number(0x10000 + 0x400 * (time % 3))
          .text("size")
          .number(512)
          .text("stream")
          .number(0);
      out.text("time_us")
          .number(time++)
          .text("frames")
          .raw("](}(")
          .text("name")
          .text("f")
          .text("filename")
          .text("a.py")
          .text("line")
          .number(3)
          .raw("ueu");
    }
    out.raw("e");
  }
  out.raw("e").text("external_annotations").raw("](");
  for (const char* stage : {"START", "END"})
    out.raw("}(")
        .text("stage")
        .text(stage)
        .text("name")
        .text("Optimizer.step#A")
        .text("device")
        .number(0)
        .text("time_us")
        .number(105)
        .raw("u");
  return out.raw("eu.").bytes;
}

const std::string log_seed =
    "{\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"START\"}\n{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"a\"}\n"
    "{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"a\",\"MEMORY\":\"100\"}\n{\"INSTRUCTION\":\"COPY\",\"DST\":\"b\",\"SRC\":\"a\"}\n"
    "{\"INSTRUCTION\":\"CALL\",\"NAME\":\"mm\",\"ARGS\":[\"a\",\"b\"],\"RESULT\":[\"c\"],\"TIME\":\"5\"}\n{\"INSTRUCTION\":\"MEMORY\","
    "\"NAME\":\"c\",\"MEMORY\":\"7\"}\n"
    "{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"c\",\"ALIAS\":\"-1\"}\n{\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"BACKWARD\"}\n"
    "{\"INSTRUCTION\":\"COPY_FROM\",\"DST\":\"b\",\"SRC\":\"c\"}\n{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"a\"}\n";

const std::vector<std::string> words{"cos\nsystem\n",
                                     "R",
                                     "\x93",
                                     "\x81",
                                     "b",
                                     "]",
                                     "}",
                                     "(",
                                     ")",
                                     "e",
                                     "u",
                                     "s",
                                     "a",
                                     "0",
                                     "1",
                                     "2",
                                     "\x94",
                                     std::string("h\0", 2),
                                     "r\xff\xff\xff\x7f",
                                     std::string("\x8d\0\0\0\0\0\1\0\0", 9),
                                     "\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
                                     "X\xff\xff\xff\xff",
                                     "\x8b\xff\xff\xff\x7f",
                                     "N",
                                     ".",
                                     "\x85",
                                     "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff",
                                     "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
                                     "\"-1\"",
                                     "\"281474976710656\"",
                                     "\n",
                                     "[[[[",
                                     "{"};

std::string current;
[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "import_fuzz: %s, for %zu bytes in import_fuzz.failing\n", what.c_str(), current.size());
  test::write_file("import_fuzz.failing", current);
  std::exit(1);
}

unsigned long accepted = 0;

void check(const std::string& bytes, const test::TemporaryFolder& folder) {
  current = bytes;
  const std::string in = folder.file("in"), out = folder.file("out.liveset");
  test::write_file(in, bytes);
  for (const imports::Importer& importer : imports::importers()) {
    std::string error;
    const Status status = importer.run(in, writer::open_file_sink(out, &error));
    if (!status) {
      if (status.error().message().find('\n') != std::string::npos) fail("a message of several lines: " + status.error().message());
      continue;
    }
    ++accepted;
    Result<trace::TraceFile> file = trace::TraceFile::open(out);
    if (!file) fail("the trace does not read: " + file.error().message());
    if (file->health().truncated || file->health().damaged_packets != 0) fail("the trace is damaged");
    Result<report::Summary> summary = report::summarize(*file, {});
    if (!summary) fail("no summary: " + summary.error().message());
    if (!summary->imported) fail("the trace does not say where it comes from");
    (void)report::summary_text(*summary, {});
    Result<report::PeakReport> peak = report::build_peak(*file, {});
    if (!peak) fail("no peak: " + peak.error().message());
    (void)report::peak_text(*peak, 10, {});
  }
}

std::string mutated(std::string text, std::mt19937_64& random) {
  for (auto changes = 1 + random() % 3; changes > 0; --changes) {
    const std::size_t at = random() % (text.size() + 1);
    switch (random() % 8) {
      case 0: text.insert(at, words[random() % words.size()]); break;
      case 1: text.erase(at, 1 + random() % 8); break;
      case 2: text.insert(at, text.substr(random() % (text.size() + 1), random() % 60)); break;
      case 3: text.resize(at); break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(random());
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long rounds = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 4000;
  std::mt19937_64 random(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1);
  const test::TemporaryFolder folder;
  const std::vector<std::string> seeds{snapshot_seed(), log_seed};
  for (const std::string& seed : seeds) {
    const unsigned long before = accepted;
    check(seed, folder);
    if (accepted == before) fail("a seed is refused");
    for (std::size_t end = 0; end < seed.size(); ++end) check(seed.substr(0, end), folder);
  }
  const unsigned long whole = accepted;
  for (unsigned long round = 0; round < rounds; ++round) check(mutated(seeds[random() % seeds.size()], random), folder);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%lu mutations of %zu files, %lu accepted, %ld MiB at most\n", rounds, seeds.size(), accepted - whole,
              usage.ru_maxrss / 1024);
#if !defined(__SANITIZE_ADDRESS__)
  if (usage.ru_maxrss > 512 * 1024) fail("memory without bounds");
#endif
  // A fuzzer whose every input is refused at the door tests the door.
  return accepted - whole < rounds / 100 ? 1 : 0;
}
