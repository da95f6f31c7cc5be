// summary, peak and ledger as a person calls them: exit statuses, one-line errors, formats.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/tiny_trace.h"

namespace liveset {
namespace {

using nlohmann::json;
using test::Ran;
using test::TinyTrace;
using testing::HasSubstr;

Ran run_program(const std::string& arguments) { return test::run_program("liveset " + arguments); }

std::size_t lines(const std::string& text) { return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')); }

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0, begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) longest = std::max(longest, end - begin);
  return longest;
}

const char* const readers[] = {"summary ", "peak ", "ledger --physical ", "ledger --logical ", "ledger --at 0x10 "};

void expect_error(const Ran& ran, int status, const std::string& says) {
  EXPECT_EQ(ran.status, status) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(lines(ran.err), 1U) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr(says));
  EXPECT_EQ(ran.err.substr(0, 9), "liveset: ");
}

TEST(BadFiles, AreOneLineAndStatusThree) {
  const test::TemporaryFolder folder;
  const std::string missing = folder.file("missing.liveset"), empty = test::written(folder, "empty.liveset", ""),
                    png = test::written(folder, "picture.png", std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) + std::string(200, 'x'));
  for (const char* reader : readers) {
    expect_error(run_program(reader + missing), 3, missing);
    expect_error(run_program(reader + empty), 3, empty);
    expect_error(run_program(reader + png), 3, png);
    expect_error(run_program(reader + folder.path().string()), 3, "directory");
  }
}

// One step on two heaps; the file stays for the whole suite.
struct Commands : testing::Test {
  Commands() {
    trace.source("python");
    const auto cpu = trace.heap("cpu"), cuda = trace.heap("cuda:0");
    trace.alloc(cpu, 0x1000, 4096, 4096, 0);  // 0
    trace.step(0);                            // 1
    trace.phase = proto::PHASE_FORWARD;
    trace.alloc(cuda, 0x1000, 2048, 2048, 8192);  // 2
    trace.alloc(cuda, 0x2000, 1024, 3072, 8192);  // 3
    trace.free(cuda, 0x2000, 2048, 4096);         // 4
    trace.open();
  }
  json run_json(const std::string& arguments) {
    const Ran ran = run_program(arguments + " --format json " + trace.path());
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    return json::parse(ran.out, nullptr, false);
  }
  TinyTrace trace;
};

TEST_F(Commands, SummaryIsTheDefault) {
  const Ran ran = run_program(trace.path());
  EXPECT_THAT(ran.out, HasSubstr("PEAK"));
  EXPECT_EQ(ran.out, run_program("summary " + trace.path()).out);
}

TEST_F(Commands, SummaryPutsThePeakFirst) {
  const Ran ran = run_program("summary " + trace.path());
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.out, HasSubstr("PEAK  3.00 KiB allocated on cuda:0  (3,072 bytes)"));
  EXPECT_THAT(ran.out, HasSubstr("step 0, forward, at 3.000 us (event 3)"));
  EXPECT_THAT(ran.out, HasSubstr("HEALTH  nothing lost"));
  EXPECT_EQ(ran.out.find('\x1b'), std::string::npos);
}

TEST_F(Commands, HeapAndCounterAreAChoice) {
  EXPECT_EQ(run_json("summary")["peak"]["bytes"], 3072);
  EXPECT_EQ(run_json("summary --heap cpu")["peak"]["bytes"], 4096);
  const json reserved = run_json("summary --counter reserved")["peak"];
  EXPECT_EQ(reserved["bytes"], 8192);
  EXPECT_EQ(reserved["event"], 2);
  EXPECT_EQ(reserved["classes"]["unattributed"].get<int>() + reserved["beyond_blocks"].get<int>(), 8192);
  EXPECT_EQ(reserved["classes"]["unattributed"], reserved["allocated_bytes"]);  // in a step without a backward
  expect_error(run_program("summary --heap cuda:7 " + trace.path()), 2, "its heaps are cpu, cuda:0");
  expect_error(run_program("peak --counter active " + trace.path()), 2, "it has allocated, reserved");
}

TEST_F(Commands, RangesSelect) {
  EXPECT_EQ(run_json("summary --range event:4..5")["peak"]["bytes"], 2048);
  EXPECT_EQ(run_json("peak --range 0..3us")["bytes"], 2048);
  EXPECT_EQ(run_json("ledger --physical --range step:0")["events"].size(), 3U);
  for (const char* reader : readers) {
    expect_error(run_program(std::string(reader) + "--range step:4 " + trace.path()), 2, "its steps are 0..0");
    expect_error(run_program(std::string(reader) + "--range nonsense " + trace.path()), 2, "forms: step:A..B");
    expect_error(run_program(std::string(reader) + "--range event:9..12 " + trace.path()), 2, "events 0..4 and");
  }
}

TEST_F(Commands, PeakShowsAnyEvent) {
  const json at = run_json("peak --at 4");
  EXPECT_EQ(at["is_peak"], false);
  EXPECT_EQ(at["bytes"], 2048);
  EXPECT_EQ(at["largest"].size(), 1U);
  EXPECT_EQ(run_json("peak --top 1")["largest"].size(), 1U);
  expect_error(run_program("peak --at 5 " + trace.path()), 2, "no event 5 (it has events 0..4)");
  for (const char* option : {"--at", "--top"}) {
    for (const char* wrong : {"-1", "''", "1.5", "0x10"})
      expect_error(run_program(std::string("peak ") + option + "=" + wrong + " " + trace.path()), 2, "is not a whole number of 0 or more");
    for (const char* large : {"18446744073709551615", "99999999999999999999"})
      expect_error(run_program(std::string("peak ") + option + " " + large + " " + trace.path()), 2, "is too large");
  }
}

TEST_F(Commands, PhysicalLedgerRunsAlong) {
  const json ledger = run_json("ledger --physical --heap cuda:0");
  EXPECT_EQ(ledger["schema"], "liveset.ledger/1");
  ASSERT_EQ(ledger["events"].size(), 3U);
  EXPECT_EQ(ledger["events"][1]["live_bytes"], 3072);
  EXPECT_EQ(ledger["events"][2]["kind"], "free_requested");
  EXPECT_EQ(ledger["events"][2]["address"], 0x2000);
  EXPECT_EQ(ledger["events"][2]["live_blocks"], 1);
}

TEST_F(Commands, AnAddressHasAHistory) {
  const json history = run_json("ledger --at 0x1fff");
  ASSERT_EQ(history["blocks"].size(), 1U);  // the last byte of cpu's block; cuda's at 0x1000 is shorter
  EXPECT_EQ(history["blocks"][0]["heap"], "cpu");
  EXPECT_EQ(run_json("ledger --at 4096")["blocks"].size(), 2U);
  EXPECT_EQ(run_json("ledger --at 0x99999")["blocks"].size(), 0U);
  expect_error(run_program("ledger --at 0xzz " + trace.path()), 2, "not an address");
}

TEST_F(Commands, FormatsKeepTheirShape) {
  EXPECT_THAT(run_program("summary --format csv " + trace.path()).out, HasSubstr("peak.bytes,3072\n"));
  EXPECT_THAT(run_program("summary --format md " + trace.path()).out, HasSubstr("| bytes |"));
  EXPECT_THAT(run_program("summary --units bytes " + trace.path()).out, HasSubstr("PEAK  3,072 allocated"));
  EXPECT_THAT(run_program("peak --by phase --format csv " + trace.path()).out,
              HasSubstr("bytes,percent,blocks,phase\n3072,100.0000,2,forward\n"));
  EXPECT_THAT(run_program("ledger --physical --format csv " + trace.path()).out,
              HasSubstr("4,free_requested,0x2000,1024,1,2048,forward\n"));
}

TEST_F(Commands, WrongUseIsStatusTwo) {
  for (const char* arguments :
       {"ledger ", "ledger --logical --physical ", "summary --format xml ", "peak --by colour ", "summary --nonsense "})
    EXPECT_EQ(run_program(arguments + trace.path()).status, 2) << arguments;
  EXPECT_EQ(run_program("summary").status, 2);
  expect_error(run_program("summary --format xml " + trace.path()), 2,
               "--format: 'xml' is none of table|json|csv|md (liveset summary --help)");
  expect_error(run_program("peak --nonsense " + trace.path()), 2, "--nonsense");
  expect_error(run_program("status"), 2, "'status' is no command and no trace (the commands are run, dryrun, summary, peak");
  expect_error(run_program("diff " + trace.path()), 2, "'diff' is no command");
  expect_error(run_program(""), 2, "no command is named");
}

TEST_F(Commands, HelpKeepsToTheWidth) {
  for (const char* command : {"", "run", "summary", "peak", "ledger", "predict", "compare", "info", "dump"}) {
    const Ran ran = run_program("help " + std::string(command));
    EXPECT_EQ(ran.status, 0);
    EXPECT_LE(longest_line(ran.out), 80U) << ran.out;
  }
  EXPECT_EQ(run_program("--version").out.substr(0, 8), "liveset ");
}

TEST_F(Commands, LinesKeepToTheWidth) {
  for (const char* reader : {"summary", "peak", "ledger --physical", "info"})
    EXPECT_LE(longest_line(run_program(std::string(reader) + " " + trace.path()).out), 80U) << reader;
}

TEST_F(Commands, PeakByOpSaysThatNoOpIsNamed) {
  EXPECT_THAT(run_program("peak --by op " + trace.path()).out, HasSubstr("None of these blocks was made in an op"));
  EXPECT_EQ(run_program("peak --by phase " + trace.path()).out.find("None of"), std::string::npos);
}

TEST_F(Commands, HelpIsACommandToo) {
  EXPECT_EQ(run_program("help").out, run_program("--help").out);
  EXPECT_EQ(run_program("help peak").out, run_program("peak --help").out);
  EXPECT_THAT(run_program("help peak").out, HasSubstr("--by"));
  for (const char* command : {"run", "dryrun", "summary", "peak", "ledger", "predict", "compare", "info", "dump"})
    EXPECT_LE(longest_line(run_program(std::string("help ") + command).out), 80U) << command;
}

// An answer that did not arrive is no answer.
TEST_F(Commands, WhatCannotBeWrittenIsStatusThree) {
  const std::string program = std::string(LIVESET_BIN_DIR) + "/liveset ";
  for (const std::string reader : {"summary", "peak", "ledger --physical", "ledger --logical", "info", "dump", "dump --format json"}) {
    expect_error(test::run_command(program + reader + " " + trace.path() + " >/dev/full"), 3,
                 "could not be written: No space left on device");
    expect_error(test::run_command(program + reader + " " + trace.path() + " >&-"), 3, "could not be written");
  }
  expect_error(test::run_command(program + "--help >/dev/full"), 3, "could not be written");
  // A reader that leaves is no error, even for a caller that ignores SIGPIPE.
  EXPECT_EQ(test::run_command("trap '' PIPE; " + program + "dump " + trace.path() + " | true").err, "");
}

TEST_F(Commands, ACutFileIsReadInPart) {
  const std::string whole = test::read_file(trace.path());
  const test::TemporaryFolder folder;
  const std::string cut = test::written(folder, "cut.liveset", whole.substr(0, whole.size() - 40));
  const Ran ran = run_program("summary " + cut);
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.out, HasSubstr("the file is incomplete"));
  EXPECT_THAT(ran.err, HasSubstr("read in part"));
  for (const char* reader : readers) EXPECT_EQ(run_program(std::string(reader) + "--strict " + cut).status, 4) << reader;
  EXPECT_EQ(run_program("summary --strict " + trace.path()).status, 0);
}

TEST_F(Commands, NothingInAMessageActsOnTheTerminal) {
  const Ran ran = run_program("summary \"$(printf 'a/\\033[31mb\\233')\"");
  expect_error(ran, 3, "a/?[31mb?: ");
}

TEST_F(Commands, NumbersAreNeverShortened) {
  TinyTrace wide;
  wide.alloc(wide.heap("cpu"), 0x1000, 1020 << 10);
  wide.open();
  EXPECT_THAT(run_program("ledger --physical " + wide.path()).out, HasSubstr("  1020.00 KiB      1  1020.00 KiB  "));
}

TEST(Runs, WithSeveralTracesShowTheOneWithSteps) {
  TinyTrace launcher, trainer;
  launcher.alloc(launcher.heap("cpu"), 0x1000, 999);
  launcher.open();
  const auto heap = trainer.heap("cpu");
  trainer.step(0);
  trainer.alloc(heap, 0x1000, 10);
  trainer.open();
  const test::TemporaryFolder folder;
  const std::string out = folder.file("out.liveset");
  std::filesystem::copy_file(launcher.path(), out);
  std::filesystem::create_directory(out + ".d");
  std::filesystem::copy_file(trainer.path(), out + ".d/1-42-99.liveset");
  test::write_file(out + ".d/2-43-99.liveset", "not a trace");
  const Ran ran = run_program("summary --format json " + out);
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.err, HasSubstr("2-43-99.liveset"));
  const json summary = json::parse(ran.out);
  EXPECT_EQ(summary["peak"]["bytes"], 10);
  EXPECT_EQ(summary["traces"].size(), 2U);
  EXPECT_THAT(run_program("summary " + out).out, HasSubstr("other traces of this run"));
  EXPECT_THAT(run_program("peak --format json " + out).out, HasSubstr("\"bytes\": 10,"));
}

TEST(Empty, ATraceWithoutBlocksSaysSo) {
  TinyTrace trace;
  trace.step(0);
  trace.open();
  const Ran ran = run_program("summary " + trace.path());
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.out, HasSubstr("the trace has no allocation"));
  EXPECT_EQ(run_program("peak " + trace.path()).status, 0);
  EXPECT_EQ(json::parse(run_program("summary --format json " + trace.path()).out)["peak"], nullptr);
}

}  // namespace
}  // namespace liveset
