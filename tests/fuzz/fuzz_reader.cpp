// fuzz_reader [--iterations N] [--seed S]: damages good traces in N ways of each kind and reads them, analysis
// included. fuzz_reader FILE...: reads these (to see a failure again).
//
// No file may crash us, hang us or make us take much memory. Damage to bytes must be noticed, or change nothing: an
// error or a note with the offset, or exactly the events of the good file. A failing file is kept, and named.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <streambuf>
#include <string>
#include <tuple>
#include <vector>

#include "profiler/writer/trace_writer.h"
#include "tests/fuzz/torch_events.h"
#include "tests/fuzz/trace_mutator.h"
#include "tests/support/random_events.h"
#include "tests/support/temporary_folder.h"
#include "viewer/ledger/logical_trace.h"
#include "viewer/model/recorded_step.h"
#include "viewer/model/whatif.h"
#include "viewer/report/fragmentation.h"
#include "viewer/report/gap_report.h"
#include "viewer/report/leaks.h"
#include "viewer/report/peak.h"
#include "viewer/report/ranks.h"
#include "viewer/report/recompute.h"
#include "viewer/report/summary.h"
#include "viewer/trace/facts.h"
#include "viewer/trace/trace_file.h"

namespace {

using namespace liveset;

struct Outcome {
  std::string said;  // error or note; empty when all is well
  std::uint64_t events = 0, fingerprint = 0;
  bool has_model = false;
};

void mix(std::uint64_t& hash, std::uint64_t number) { hash = (hash ^ number) * 0x100000001b3U; }

// `liveset check`, of a job of two such ranks.
void read_checks(const trace::TraceFile& file, const std::string& path) {
  std::vector<trace::TraceFile> files;
  for (int rank = 0; rank < 2; ++rank) {
    Result<trace::TraceFile> again = trace::TraceFile::open(path);
    if (again) files.push_back(std::move(*again));
  }
  if (files.empty() || file.allocations() > 1'000'000) return;
  std::vector<report::Check> checks;
  for (const bool some_ranks : {false, true}) {
    if (auto distributed = report::check_distributed(files, some_ranks)) checks = std::move(*distributed);
  }
  if (auto replay = report::check_replay(files)) checks.push_back(std::move(*replay));
  if (auto equivalence = report::check_equivalence(files.front(), files.back())) checks.push_back(std::move(*equivalence));
  (void)report::check_text(checks, 20, {});
  (void)report::check_table(checks, report::TableFormat::md, {});
  (void)report::check_json(checks).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Takes what is written, and keeps nothing.
struct Nowhere : std::streambuf {
  int overflow(int c) override { return c; }
  std::streamsize xsputn(const char*, std::streamsize count) override { return count; }
};

void read_peak(const trace::TraceFile& file) {
  for (const report::GroupBy by : {report::GroupBy::memory_class, report::GroupBy::module, report::GroupBy::op, report::GroupBy::stack}) {
    report::PeakOptions options;
    options.by = by;
    if (by == report::GroupBy::op) options.at = file.events() / 2;
    const Result<report::PeakReport> peak = report::build_peak(file, options);
    if (!peak) continue;
    (void)report::peak_text(*peak, 10, {});
    (void)report::shortage_text(*peak, {});
    (void)report::peak_report_json(*peak).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
}

void read_fragmentation(const trace::TraceFile& file) {
  std::ostringstream out;
  for (const bool simulate : {false, true}) {
    report::FragmentationOptions options;
    options.simulate = simulate;
    if (simulate && file.events() % 2 != 0) options.settings = "expandable_segments:True";
    if (const auto found = report::build_fragmentation(file, options))
      out << report::fragmentation_json(*found).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
          << report::fragmentation_text(*found, 3, {}) << report::fragmentation_markdown(*found, {}) << report::fragmentation_csv(*found);
  }
}

void read_recompute_and_leaks(const trace::TraceFile& file) {
  Nowhere nowhere;
  std::ostream out(&nowhere);
  if (const auto recompute = report::build_recompute(file, {})) {
    report::write_recompute_json(out, *recompute);
    report::write_recompute_csv(out, *recompute);
    out << report::recompute_text(*recompute, 10, {}) << report::recompute_markdown(*recompute, 10, {});
  }
  if (const auto leaks = report::build_leaks(file, {})) {
    report::write_leaks_json(out, *leaks);
    out << report::leaks_text(*leaks, 10, {}) << report::leaks_markdown(*leaks, {}) << report::leaks_csv(*leaks);
  }
}

// Beside itself: whatever the file says, there is no difference, and every text can be written.
void read_comparison(const trace::TraceFile& file) {
  for (const char* counter : {"allocated", "reserved", "requested"}) {
    compare::TraceOptions options;
    options.counter = counter;
    Result<compare::PeakComparison> found = compare::compare_traces(file, options, file, options);
    if (!found) continue;
    if (found->gap.difference != 0) std::abort();
    const report::GapReport report{std::move(*found), {}, {}};
    (void)report::gap_text(report, {});
    (void)report::gap_markdown(report, {});
    (void)report::gap_csv(report);
    (void)report::gap_json(report).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
}

// `liveset model` and `whatif`. A model that is made is whole: every policy says something of it, and it is its own text's.
bool read_recorded_step(const trace::TraceFile& file) {
  model::RecordedStepOptions options;
  options.step = test::TorchEvents::plain_step;
  const Result<model::RecordedStep> step = model::model_of_step(file, options);
  if (!step) return false;
  for (const model::Policy& policy : model::usual_policies(step->model)) (void)model::outcome(step->model, policy);
  if (!model::parse_model(model::model_text(step->model), "step")) std::abort();
  return true;
}

// All that `liveset summary` and `liveset dryrun` read: counters, devices, kernels, estimates.
void read_reports(const trace::TraceFile& file) {
  using nlohmann::ordered_json;
  for (const char* counter : {"allocated", "reserved"}) {
    report::SummaryOptions options;
    options.counter = counter;
    const Result<report::Summary> summary = report::summarize(file, options);
    if (!summary) continue;
    (void)report::summary_text(*summary, {});
    (void)report::summary_markdown(*summary, {});
    (void)report::summary_json(*summary).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }
}

Outcome read_path(const std::string& path) {
  Outcome outcome;
  Result<trace::TraceFile> file = trace::TraceFile::open(path);
  if (!file) return {file.error().message()};
  outcome.said = file->health().note;
  Status status = trace::for_each_event(*file, [&](const trace::Event& event) {
    ++outcome.events;
    for (const std::uint64_t field :
         {event.index, event.time_ns, std::uint64_t(event.kind), std::uint64_t(event.phase), std::uint64_t(event.scope), event.address,
          event.size, event.allocation, std::uint64_t(event.value), static_cast<std::uint64_t>(event.number)}) {
      mix(outcome.fingerprint, field);
    }
    for (std::uint32_t i = 0; i < event.read_count; ++i) mix(outcome.fingerprint, event.reads[i]);
    mix(outcome.fingerprint, file->dictionary().scope_path(event.scope).size());
    if (event.allocation != trace::no_allocation && event.allocation >= file->allocations() && event.kind == trace::Kind::alloc)
      std::abort();
    return true;
  });
  if (!status) outcome.said += status.error().message();
  if (const auto facts = trace::read_facts(path); !facts) outcome.said += facts.error().message();
  // The analysis must stand whatever the reader lets through.
  (void)ledger::build_logical(*file, {});
  read_peak(*file);
  read_fragmentation(*file);
  read_recompute_and_leaks(*file);
  read_comparison(*file);
  outcome.has_model = read_recorded_step(*file);
  read_reports(*file);
  read_checks(*file, path);
  return outcome;
}

Outcome read_bytes(const std::string& bytes) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    std::perror("memfd");
    std::exit(2);
  }
  Outcome outcome = read_path("/proc/self/fd/" + std::to_string(fd));
  close(fd);
  return outcome;
}

// Checkpoint regions whose recomputed blocks are freed in chunks of their own, and whose addresses are used again.
void add_recomputes(writer::TraceWriter& writer, std::uint64_t time_ns) {
  constexpr std::uint32_t region = 1 + test::TrainPattern::scopes, name = 1;
  writer.define_scope(region, 1, proto::SCOPE_REGION, name);
  const auto append = [&](writer::Event event, int phase) {
    event.phase = static_cast<std::uint8_t>(phase);
    event.scope = region;
    writer.append(event);
  };
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::uint64_t address = 0x1000 * (1 + i);
    append(test::event(proto::EVENT_SCOPE_BEGIN, time_ns), proto::PHASE_BACKWARD);
    append(test::allocation(time_ns, address, 64), proto::PHASE_RECOMPUTE);
    writer.flush();
    append(test::release(time_ns, address), proto::PHASE_RECOMPUTE);
    writer.flush();
    append(test::allocation(time_ns, address, 32), proto::PHASE_RECOMPUTE);
    if (i % 2 == 0) append(test::release(time_ns, address), proto::PHASE_RECOMPUTE);
    append(test::event(proto::EVENT_SCOPE_END, time_ns), proto::PHASE_BACKWARD);
  }
}

// What a dry run adds: memory by library behind segments, handles and mappings, kernels, and what was estimated.
void add_dry_run(writer::TraceWriter& writer, std::uint64_t time_ns) {
  constexpr std::uint32_t first_name = 1000, heaps = 3, torch = 2, nccl = 3, host = 4;
  std::uint32_t name = first_name;
  const auto named = [&](const std::string& text) {
    writer.define_string(name, text);
    return name++;
  };
  writer.define_source(2, "driver", "1", "the driver's calls", "nothing");
  const char* const names[heaps] = {"cuda:0/torch", "cuda:1/nccl", "host/torch"};
  for (std::uint32_t i = 0; i < heaps; ++i) writer.define_heap(torch + i, named(names[i]), i < 2 ? proto::CUDA : proto::CPU, i % 2, 2);
  const auto append = [&](int kind, std::uint32_t heap, std::uint64_t address, std::uint64_t bytes) {
    writer::Event event = test::allocation(time_ns, address, bytes, heap);
    event.kind = static_cast<std::uint8_t>(kind);
    writer.append(event);
  };
  const auto attribute = [&](const char* key, const std::string& json) {
    writer::Event event = test::event(proto::EVENT_ATTRIBUTE, time_ns);
    event.name = named(key);
    event.text = named(json);
    writer.append(event);
  };
  attribute("standin.device", R"({"gpu":"h100","name":"GPU","capability":90,"memory_bytes":85018279936,"context_bytes":549453824,)"
                              R"("devices":2,"world":2,"backing":"small","assumed":["context_bytes"]})");
  for (std::uint64_t i = 1; i <= 16; ++i) {
    for (const int kind : {proto::EVENT_SEGMENT_ALLOC, proto::EVENT_HANDLE_CREATE, proto::EVENT_SEGMENT_MAP})
      append(kind, i % 2 == 0 ? torch : nccl, 0x100000 * i, 4096 * i);
    append(proto::EVENT_HOST_ALLOC, host, 0x200000 * i, 512);
    writer::Event kernel = test::event(proto::EVENT_KERNEL, time_ns);
    kernel.name = named("_ZN2at6native" + std::to_string(3 + i / 10) + "add" + (i < 10 ? "" : "s") + "IfEEvT_");
    kernel.scope = 1 + static_cast<std::uint32_t>(i % 3);
    kernel.phase = i % 2 == 0 ? proto::PHASE_RECOMPUTE : proto::PHASE_FORWARD;
    writer.append(kernel);
    attribute("standin.estimate", R"({"what":"workspace","detail":"call )" + std::to_string(i % 5) + R"(","count":)" + std::to_string(i) +
                                      R"(,"first":["/a/torch/f.py:1 f","/a/train.py:12 step"]})");
    if (i % 3 == 0) append(proto::EVENT_HANDLE_RELEASE, i % 2 == 0 ? torch : nccl, 0x100000 * i, 4096 * i);
    if (i % 4 == 0) append(proto::EVENT_SEGMENT_UNMAP, i % 2 == 0 ? torch : nccl, 0x100000 * i, 4096 * i);
    if (i == 8) append(proto::EVENT_OUT_OF_MEMORY, 1, 0, std::uint64_t{1} << 40);
  }
}

constexpr std::uint32_t first_torch_name = 2000;

std::string good_trace(std::uint64_t seed, bool finished) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("good.liveset");
  const test::RandomEvents stream(seed, 400);
  std::string error;
  auto writer = writer::TraceWriter::create(path, test::header_info(), &error);
  if (writer == nullptr) return {};
  test::TrainPattern::define(*writer);
  writer->define_value(1, 2, 3, 4);
  int count = 0;
  for (const writer::Event& event : stream.written()) {
    if (++count % 100 == 0) writer->flush();
    writer->append(event);
  }
  writer->calibrate(1, 2);
  writer->lose(1, 3);
  test::TrainPattern pattern;
  std::uint64_t time_ns = 0;
  for (int i = 0; i < 2000; ++i) {
    const writer::Event& event = pattern.next();
    time_ns = event.time_ns;
    writer->append(event);
  }
  add_recomputes(*writer, time_ns);
  add_dry_run(*writer, time_ns);
  const test::TorchEvents torch(*writer, first_torch_name, time_ns);
  for (const writer::Event& event : torch.events()) writer->append(event);
  if (finished) writer->finish("exit");
  writer.reset();
  return test::read_file(path);
}

// The trace of a PyTorch job that says each of its events once, but one event `times` times.
std::string repeated_trace(std::size_t which, std::size_t times) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("repeated.liveset");
  std::string error;
  auto writer = writer::TraceWriter::create(path, test::header_info(), &error);
  if (writer == nullptr) return {};
  test::TrainPattern::define(*writer);
  const test::TorchEvents torch(*writer, first_torch_name, 1000);
  for (std::size_t i = 0; i < torch.events().size(); ++i) {
    for (std::size_t again = 0; again < (i == which ? times : 1); ++again) writer->append(torch.events()[i]);
  }
  writer->finish("exit");
  writer.reset();
  return test::read_file(path);
}

// Of the second step and those behind it, each event of another kind, scope, name or class than those before: what is quadratic in it takes
// minutes.
std::size_t repeat_events(std::size_t times) {
  std::size_t which = 0, files = 0;
  std::vector<writer::Event> events;
  {
    const test::TemporaryFolder folder;
    std::string error;
    auto writer = writer::TraceWriter::create(folder.file("events.liveset"), test::header_info(), &error);
    if (writer == nullptr) return 0;
    events = test::TorchEvents(*writer, first_torch_name, 1000).events();
  }
  std::set<std::tuple<int, int, std::uint32_t, int>> seen;
  bool second = false;
  for (const writer::Event& event : events) {
    second = second || (event.kind == proto::EVENT_STEP_BEGIN && event.number == 1);
    const auto number = which++;
    if (!second || !seen.emplace(event.kind, event.phase, event.scope, event.memory_class).second) continue;
    if (event.kind == proto::EVENT_ATTRIBUTE) seen.erase({event.kind, event.phase, event.scope, event.memory_class});
    (void)read_bytes(repeated_trace(number, times));
    ++files;
  }
  return files;
}

// Keeps the file that fails, so that it can be read again.
[[noreturn]] void fail(const std::string& bytes, const std::string& what) {
  const std::string path = std::filesystem::temp_directory_path() / "fuzz_reader_failure.liveset";
  test::write_file(path, bytes);
  std::fprintf(stderr, "fuzz_reader: %s; the file is kept at %s\n", what.c_str(), path.c_str());
  std::exit(1);
}

void expect_noticed(const std::string& bytes, const Outcome& good, const char* kind) {
  const Outcome outcome = read_bytes(bytes);
  if (outcome.said.empty()) {
    if (outcome.events != good.events || outcome.fingerprint != good.fingerprint)
      fail(bytes, std::string(kind) + " was not noticed, and events changed");
  } else if (outcome.said.find("at byte ") == std::string::npos && outcome.said.find("empty") == std::string::npos) {
    fail(bytes, std::string(kind) + " was reported without its place: " + outcome.said);
  } else if (outcome.said.find('\n') != std::string::npos) {
    fail(bytes, std::string(kind) + " was not reported in one line");
  }
}

int campaign(std::size_t iterations, std::uint64_t seed) {
  std::size_t lies_noticed = 0;
  for (const bool finished : {true, false}) {
    const std::string good = good_trace(seed, finished);
    const Outcome whole = read_bytes(good);
    if (whole.events == 0 || whole.said.empty() != finished) fail(good, "the good file is not good: " + whole.said);
    if (!whole.has_model) fail(good, "no model could be made of the good file's last step");
    test::TraceMutator mutator(good, seed);
    for (std::size_t i = 0; i < iterations; ++i) {
      expect_noticed(mutator.cut(i, iterations), whole, "a cut");
      // A file without a footer has a note anyway, so only in the other can a flip go by unnoticed.
      expect_noticed(mutator.flip(), whole, "a flipped byte");
      lies_noticed += read_bytes(mutator.lie()).said.empty() ? 0 : 1;
    }
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t times = 10'000;
#else
  constexpr std::size_t times = 100'000;
#endif
  const std::size_t repeated = repeat_events(times);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "fuzz_reader: 2 files, each with %zu cuts, %zu flipped bytes and %zu lies behind right checksums (%zu noticed); "
      "%zu files that repeat one event %zu times; %ld MiB at most\n",
      iterations, iterations, iterations, lies_noticed, repeated, times, usage.ru_maxrss / 1024);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (usage.ru_maxrss > 400 * 1024) return 1;
#endif
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit memory{1U << 30, 1U << 30};  // a file that asks for more shall fail us, not the machine
  setrlimit(RLIMIT_AS, &memory);
#endif
  std::size_t iterations = 1000;
  std::uint64_t seed = 1;
  bool files = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--iterations" && i + 1 < argc) {
      iterations = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      files = true;
      const Outcome outcome = read_path(argument);
      std::printf("%s: %llu events; %s\n", argument.c_str(), static_cast<unsigned long long>(outcome.events), outcome.said.c_str());
    }
  }
  return files ? 0 : campaign(iterations, seed);
}
