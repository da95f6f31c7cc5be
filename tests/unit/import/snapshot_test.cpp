// Snapshots that are written here: every form that PyTorch had, windows, several devices, pending frees, what contradicts itself.
// Their numbers are worked out by hand beside them.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/python_pickle.h"
#include "tests/support/run_program.h"

namespace liveset {
namespace {

using nlohmann::json;
using test::Ran;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// What the snapshots are made of: seg(address, blocks) holds its blocks one behind the other; ev(action, address, size).
constexpr const char* helpers =
    "def block(size, state='active_allocated', requested=None, **more):\n"
    "  return dict(size=size, requested_size=size if requested is None else requested, state=state, **more)\n"
    "def seg(address, blocks, device=0, stream=0, **more):\n"
    "  at = address\n"
    "  for each in blocks:\n"
    "    each.setdefault('address', at); at += each['size']\n"
    "  active = [b for b in blocks if b['state'] != 'inactive']\n"
    "  given = [b for b in blocks if b['state'] == 'active_allocated']\n"
    "  s = dict(device=device, address=address, total_size=sum(b['size'] for b in blocks), allocated_size=sum(b['size'] for b in given),\n"
    "    active_size=sum(b['size'] for b in active), requested_size=sum(b['requested_size'] for b in active), stream=stream,\n"
    "    segment_type='small', is_expandable=False, blocks=blocks)\n"
    "  s.update(more)\n"
    "  return s\n"
    "clock = 1000\n"
    "def ev(action, addr, size, **more):\n"
    "  global clock\n"
    "  clock += 1\n"
    "  return dict(action=action, addr=addr, size=size, stream=0, time_us=clock, **more)\n"
    "def gone(addr, size):\n"
    "  return [ev('free_requested', addr, size), ev('free_completed', addr, size)]\n"
    "def snapshot(segments, *traces, **more):\n"
    "  return dict(segments=segments, device_traces=list(traces), **more)\n";

struct Snapshots : testing::Test {
  void SetUp() override {
    if (!test::has_python()) GTEST_SKIP() << "SKIPPED: no python3";
  }
  void write(const std::string& program) { ASSERT_TRUE(test::python_writes(path, helpers + program)); }
  Ran run(const std::string& arguments) const { return test::run_program("liveset " + arguments + " " + path); }
  json read(const std::string& arguments) const {
    const Ran ran = run(arguments + " --format json");
    EXPECT_EQ(ran.status, 0) << ran.err;
    return json::parse(ran.out, nullptr, false);
  }
  std::vector<std::string> kinds() const {
    std::vector<std::string> found;
    const json all = read("dump");
    for (const json& event : all["events"]) found.push_back(event["kind"]);
    return found;
  }
  std::string contradictions() const { return read("summary")["imported"]["heaps"][0]["contradictions"].dump(); }
  test::TemporaryFolder folder;
  std::string path = folder.file("snap.pickle");
};

// 512 asked and 400 asked (512 given) live at the dump; 1000 (1024 given) came and went before the second.
constexpr const char* whole_history =
    "s = [seg(0x10000, [block(512), block(512, requested=400), block(1048576 - 1024, 'inactive')])]\n"
    "t = [ev('segment_alloc', 0x10000, 1048576), ev('alloc', 0x10000, 512, frames=[dict(name='f', filename='a.py', line=3), "
    "dict(name='<module>', "
    "filename='a.py', line=9)]), ev('alloc', 0x10200, 1000)] + gone(0x10200, 1000) + [ev('alloc', 0x10200, 400)]\n";

TEST_F(Snapshots, OfEveryProtocolHaveTheSamePeak) {
  for (const char* protocol : {"2", "3", "4", "5"}) {
    write(std::string(whole_history) + "dump(snapshot(s, t), " + protocol + ")");
    const json summary = read("summary");
    EXPECT_EQ(summary["peak"]["bytes"], 1512);
    EXPECT_EQ(summary["peak"]["counter"], "requested");
    EXPECT_EQ(summary["peak"]["heap"], "cuda:0");
    EXPECT_EQ(summary["counters"]["cuda:0"]["requested"]["final"], 912);
    EXPECT_EQ(summary["counters"]["cuda:0"]["reserved"]["peak"], 1048576);
    EXPECT_EQ(summary["counters"]["cuda:0"]["allocated at the dump"]["final"], 1024);
    EXPECT_FALSE(summary["counters"]["cuda:0"].contains("allocated")) << "no event tells rounded bytes";
    EXPECT_EQ(summary["imported"]["heaps"][0]["history"], "whole");
    EXPECT_EQ(summary["health"]["contradictions"], 0) << contradictions();
    EXPECT_THAT(kinds(), ElementsAre("attribute", "segment_alloc", "alloc", "alloc", "free_requested", "alloc", "counter", "counter"));
  }
}

TEST_F(Snapshots, AreReadByEveryCommandThatReadsTraces) {
  write(std::string(whole_history) + "dump(snapshot(s, t))");
  EXPECT_EQ(test::run_program("liveset " + path).status, 0);
  EXPECT_THAT(run("summary").out, HasSubstr("PEAK  1.48 KiB requested on cuda:0  (1,512 bytes)"));
  EXPECT_EQ(read("peak --counter reserved")["bytes"], 1048576);
  EXPECT_EQ(read("peak --at 5")["bytes"], 912);
  EXPECT_EQ(run("peak --counter allocated").status, 2);
  EXPECT_THAT(run("peak --counter allocated").err, HasSubstr("it has requested, reserved, segments, "));
  EXPECT_THAT(run("peak --by stack").out, HasSubstr("a.py:3 f < a.py:9 <module>"));
  EXPECT_THAT(run("ledger --physical").out, HasSubstr("0x10200"));
  EXPECT_THAT(run("info").out, HasSubstr("pickle protocol 4"));
  EXPECT_EQ(run("check --max-peak 1512").status, 0);
  EXPECT_EQ(run("check --max-peak 1511").status, 1);
  EXPECT_THAT(run("check --max-peak 1511").out, HasSubstr("the peak of requested is 1,512 bytes on cuda:0"));
}

// A snapshot has no graph: what is made of one says so, and what has one, and sends nobody from one such command to the next.
TEST_F(Snapshots, AreNoStepsToPlan) {
  write(std::string(whole_history) + "dump(snapshot(s, t))");
  ASSERT_EQ(run("import").status, 0);
  const std::string kept = folder.file("snap.liveset");
  for (const std::string& file : {path, kept})
    for (const std::string& command : std::vector<std::string>{"whatif", "plan", "model", "predict", "compare --policy full " + path}) {
      const Ran ran = test::run_program("liveset " + command + " " + file);
      EXPECT_EQ(ran.status, 2) << command;
      EXPECT_THAT(ran.err,
                  testing::StartsWith("liveset: " + file + ": is a memory snapshot: it tells of blocks, and not what autograd's graph"));
      EXPECT_THAT(ran.err, HasSubstr("(record a step, liveset run "));
      EXPECT_EQ(ran.out, "");
    }
}

TEST_F(Snapshots, AreComparedByTheCountersThatTheyHave) {
  write(std::string(whole_history) + "dump(snapshot(s, t))");
  const std::string other = folder.file("other.pickle");
  ASSERT_TRUE(test::python_writes(
      other, std::string(helpers) + whole_history + "t += [ev('alloc', 0x10400, 700)] + gone(0x10400, 700)\ndump(snapshot(s, t))"));
  // 512 + 400 + 700 against 512 + 1000.
  const Ran ran = test::run_program("liveset compare --format json --counter requested " + other + " " + path);
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_EQ(json::parse(ran.out, nullptr, false)["difference"], 100);
  EXPECT_EQ(test::run_program("liveset compare --counter reserved " + other + " " + path).status, 0);
  const Ran rounded = test::run_program("liveset compare --counter allocated " + other + " " + path);
  EXPECT_EQ(rounded.status, 2);
  EXPECT_THAT(rounded.err, HasSubstr("it has requested, reserved"));
  write("dump([seg(0x10000, [block(512)])])");
  EXPECT_THAT(test::run_program("liveset compare --counter requested " + other + " " + path).err, HasSubstr("its peak is not known"));
}

// Two files written one behind the other, or a copy that went wrong: the first part alone is not the file.
TEST_F(Snapshots, ThatGoOnBehindTheirEndSaySo) {
  write(std::string(whole_history) + "dump(snapshot(s, t))\nopen(out, 'ab').write(b'behind')");
  EXPECT_EQ(contradictions(), R"(["the file goes on for 6 bytes behind the end of its pickle, which were not read"])");
  EXPECT_THAT(run("summary").out, HasSubstr("HEALTH  the file contradicts itself in 1 place of cuda:0"));
  EXPECT_THAT(run("info").out, HasSubstr("Health: what it was made of contradicts itself in 1 place\n"
                                         "  cuda:0: the file goes on for 6 bytes behind the end of its pickle, which were\n  not read\n"));
  EXPECT_EQ(read("info")["health"]["contradictions"], 1);
  const Ran ran = run("import");
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "liveset: " + path + ": contradicts itself in 1 place: liveset " + folder.file("snap.liveset") + " says where\n");
}

TEST_F(Snapshots, ThatGoOnBehindTheirEndSaySoOfOneDevice) {
  write(std::string(whole_history) +
        "import copy\nmore = copy.deepcopy((s, t))\nmore[0][0]['device'] = 1\n"
        "dump(snapshot(s + more[0], t, more[1]))\nopen(out, 'ab').write(b'behind')");
  EXPECT_EQ(contradictions(), R"(["the file goes on for 6 bytes behind the end of its pickle, which were not read"])");
  EXPECT_EQ(read("info")["health"]["contradictions"], 1);
  EXPECT_THAT(run("info").out, Not(HasSubstr("cuda:1: the file goes on")));
}

TEST_F(Snapshots, OfProtocols0And1AreRefusedByEveryCommand) {
  for (const char* protocol : {"0", "1"}) {
    write(std::string(whole_history) + "dump(snapshot(s, t), " + protocol + ")");
    for (const char* command : {"summary", "peak", "import", "predict", "plan", "whatif"}) {
      const Ran ran = run(command);
      EXPECT_EQ(ran.status, 3) << command;
      EXPECT_THAT(ran.err, HasSubstr(path + ": at byte 0: a pickle of protocol 0 or 1 (protocols 2 to 5 are read; ")) << command;
    }
  }
}

TEST_F(Snapshots, BecomeTracesThatStay) {
  write(std::string(whole_history) + "dump(snapshot(s, t))");
  const Ran ran = run("import");
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("snap.liveset  (8 events, from a torch-snapshot file)"));
  const json direct = read("summary"),
             kept = json::parse(test::run_program("liveset summary --format json " + folder.file("snap.liveset")).out);
  EXPECT_EQ(direct["peak"], kept["peak"]);
  EXPECT_EQ(kept["imported"]["file"], "snap.pickle");
  EXPECT_EQ(run("import").status, 2) << "the trace is there already";
  EXPECT_EQ(run("import -o " + folder.file("snap.liveset")).status, 0);
  EXPECT_EQ(run("import --from nonsense -o " + folder.file("y.liveset")).status, 2);
  EXPECT_EQ(run("import -o " + path).status, 2) << "not over the file itself";
  test::write_file(folder.file("text"), "hello");
  EXPECT_EQ(test::run_program("liveset import " + folder.file("text")).status, 3);
  // Over an older trace only when all went well.
  test::write_file(folder.file("bad.pickle"),
                   "\x80\x04"
                   "cos\nsystem\n");
  EXPECT_EQ(test::run_program("liveset import " + folder.file("bad.pickle") + " -o " + folder.file("snap.liveset")).status, 3);
  EXPECT_EQ(test::run_program("liveset summary " + folder.file("snap.liveset")).status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.file("snap.liveset.unfinished")));
}

TEST_F(Snapshots, ThatBeginLateOpenWithWhatLivedBefore) {
  // Before: 512 that is still there, 300 that is freed unseen. Baseline 812, then 1000 more: 1812.
  write(
      "s = [seg(0x10000, [block(512), block(1024, 'inactive'), block(512, 'inactive')])]\n"
      "dump(snapshot(s, [ev('alloc', 0x10200, 1000)] + gone(0x10200, 1000) + gone(0x10600, 300)))");
  const json summary = read("summary");
  EXPECT_EQ(summary["peak"]["bytes"], 1812);
  EXPECT_EQ(summary["imported"]["heaps"][0]["history"], "window");
  EXPECT_EQ(summary["imported"]["heaps"][0]["opening_blocks"], 2);
  EXPECT_EQ(summary["imported"]["heaps"][0]["opening_bytes"], 812);
  EXPECT_EQ(summary["counters"]["cuda:0"]["requested"]["final"], 512);
  EXPECT_EQ(summary["counters"]["cuda:0"]["reserved"]["peak"], 2048);
  EXPECT_EQ(summary["health"]["unmatched_frees"], 0);
  EXPECT_EQ(summary["health"]["contradictions"], 0) << contradictions();
  EXPECT_THAT(run("summary").out, HasSubstr("2 blocks of 812 B that lived before the file's first event"));
  EXPECT_THAT(run("peak --by op").out, HasSubstr("before the snapshot's first event"));
}

TEST_F(Snapshots, WithoutAPastHaveNoPeak) {
  const std::string state = "s = [seg(0x10000, [block(512), block(1024, 'active_pending_free'), block(512, 'inactive')])]\n";
  for (const char* trace :
       {"dump(snapshot(s))", "dump(snapshot(s, []))", "dump(s)",
        "dump(snapshot(s, [dict(action='snapshot', addr=0, size=1536, stream=0)]))", "dump(snapshot(s, gone(0x10600, 256)))"}) {
    write(state + trace);
    const json summary = read("summary");
    EXPECT_TRUE(summary["peak"].is_null()) << trace;
    EXPECT_EQ(summary["at_dump"]["bytes"], 1536) << trace;
    EXPECT_TRUE(summary["counters"]["cuda:0"]["requested"]["peak"].is_null());
    EXPECT_EQ(summary["counters"]["cuda:0"]["allocated at the dump"]["final"], 512);
    EXPECT_EQ(summary["counters"]["cuda:0"]["active at the dump"]["final"], 1536);
    EXPECT_EQ(summary["counters"]["cuda:0"]["reserved"]["final"], 2048);
    EXPECT_EQ(read("peak")["is_peak"], false);
    EXPECT_THAT(run("summary").out, HasSubstr("AT THE DUMP  1.50 KiB requested on cuda:0"));
    EXPECT_THAT(run("peak").out, Not(HasSubstr("PEAK")));
    EXPECT_EQ(run("check --max-peak 1GiB").status, 1) << "nobody knows";
    EXPECT_THAT(run("check --max-peak 1GiB").out, HasSubstr("no_peak"));
  }
}

TEST_F(Snapshots, OfOldPyTorchHaveAHistoryForFramesAndNoAddress) {
  // Both names of the pending state; real_size is what was asked for; the first of a history is the last user.
  write(
      "h = lambda addr, size: [dict(addr=addr, real_size=size, frames=[dict(name='g', filename='b.py', line=7)]), dict(addr=addr, "
      "real_size=9, frames=[])]\n"
      "dump(dict(segments=[dict(device=1, address=0x20000, total_size=4096, stream=0, segment_type='small', blocks=[\n"
      " dict(size=512, state='active_allocated', history=h(0x20000, 100)), dict(size=512, state='inactive', history=h(0x20200, 7)),\n"
      " dict(size=1024, state='active_awaiting_free', history=h(0x20400, 600)), dict(size=2048, state='active_pending_free')])]))");
  const json summary = read("summary");
  EXPECT_EQ(summary["at_dump"]["bytes"], 100 + 600 + 2048);
  EXPECT_EQ(summary["at_dump"]["heap"], "cuda:1");
  EXPECT_EQ(summary["health"]["contradictions"], 0) << contradictions();
  EXPECT_THAT(run("peak --by stack").out, HasSubstr("b.py:7 g"));
  EXPECT_THAT(run("ledger --physical").out, HasSubstr("0x20800")) << "where no address stands, blocks follow each other";
}

TEST_F(Snapshots, CountABlockUntilItsStreamIsDone) {
  // 600 is freed while a stream uses it; 500 come before that is done: 1100 at once, as PyTorch's requested_bytes has it.
  write(
      "s = [seg(0x10000, [block(1024, 'inactive'), block(512, requested=500), block(512, 'inactive')])]\n"
      "dump(snapshot(s, [ev('segment_alloc', 0x10000, 2048), ev('alloc', 0x10000, 600), ev('free_requested', 0x10000, 600), ev('alloc', "
      "0x10400, 500), "
      "ev('free_completed', 0x10000, 600)]))");
  const json summary = read("summary");
  EXPECT_EQ(summary["peak"]["bytes"], 1100);
  EXPECT_EQ(summary["health"]["contradictions"], 0) << contradictions();
  EXPECT_THAT(kinds(), ElementsAre("attribute", "segment_alloc", "alloc", "holder", "alloc", "free_requested", "counter", "counter"));
  EXPECT_THAT(run("dump").out, HasSubstr("the program freed it, and the work in the stream is not done"));
}

TEST_F(Snapshots, OfSeveralDevicesAndStreamsKeepThemApart) {
  write(
      "s = [seg(0x10000, [block(512), block(1536, 'inactive')]), seg(0x10000, [block(2048)], device=2, stream=77)]\n"
      "a = [ev('segment_alloc', 0x10000, 2048), ev('alloc', 0x10000, 512)]\n"
      "b = [ev('segment_alloc', 0x10000, 2048, ), ev('alloc', 0x10000, 2048)]\n"
      "for e in b: e['stream'] = 77\n"
      "c = ev('alloc', 0x10200, 100); a += [c] + gone(0x10200, 100)\n"
      "dump(snapshot(s, a, [], b))");
  const json summary = read("summary");
  EXPECT_EQ(summary["peak"]["heap"], "cuda:2");
  EXPECT_EQ(summary["peak"]["bytes"], 2048);
  EXPECT_EQ(summary["counters"]["cuda:0"]["requested"]["peak"], 612);
  EXPECT_EQ(summary["counters"]["cuda:0"]["reserved"]["peak"], 2048);
  EXPECT_FALSE(summary["counters"].contains("cuda:1"));
  EXPECT_EQ(summary["health"]["contradictions"], 0);
  // By time: both events of device 2 lie between those of device 0.
  const json all = read("dump");
  std::string order;
  for (const json& event : all["events"])
    if (event["kind"] == "alloc") order += event["heap"].get<std::string>().back();
  EXPECT_EQ(order, "020");
}

TEST_F(Snapshots, OfExpandableSegmentsMapAndUnmap) {
  // Two parts of 2 MiB are mapped, one goes again; 2 MiB that were there before.
  write(
      "m = 2097152\n"
      "s = [seg(0x1000000, [block(512), block(2 * m - 512, 'inactive')], is_expandable=True)]\n"
      "part = lambda i, action: ev(action, 0x1000000 + i * m, m)\n"
      "dump(snapshot(s, [part(1, 'segment_map'), part(2, 'segment_map'), ev('alloc', 0x1000000 + m, 2 * m)] + gone(0x1000000 + m, 2 * m) "
      "+\n"
      " [part(2, 'segment_unmap')], allocator_settings=dict(expandable_segments=True)))");
  const json summary = read("summary");
  EXPECT_EQ(summary["counters"]["cuda:0"]["reserved"]["final"], 2 * 2097152);
  EXPECT_EQ(summary["counters"]["cuda:0"]["reserved"]["peak"], 3 * 2097152);
  EXPECT_EQ(summary["peak"]["bytes"], 2 * 2097152 + 512);
  EXPECT_EQ(summary["health"]["contradictions"], 0) << contradictions();
}

TEST_F(Snapshots, TellOfMemoryThatRanOut) {
  write(
      "s = [seg(0x10000, [block(512), block(1536, 'inactive')])]\n"
      "o = ev('oom', 0, 1 << 40); del o['addr']; o['device_free'] = 12345\n"
      "dump(snapshot(s, [ev('segment_alloc', 0x10000, 2048), ev('alloc', 0x10000, 512), o, ev('made_up', 1, 2)]))");
  const json summary = read("summary");
  ASSERT_EQ(summary["out_of_memory"].size(), 1U);
  EXPECT_EQ(summary["out_of_memory"][0]["asked_bytes"], std::uint64_t{1} << 40);
  EXPECT_EQ(summary["out_of_memory"][0]["allocated_bytes"], 512);
  EXPECT_THAT(read("dump")["events"][0]["text"].get<std::string>(), HasSubstr(R"("unknown_actions":["made_up"])"));
}

// A later PyTorch may have kinds of events that are not known here: nobody is to take the sums for whole.
TEST_F(Snapshots, SayWhichEventsWerePassedOver) {
  const std::string begin = "s = [seg(0x10000, [block(512), block(1536, 'inactive')])]\nt = [ev('segment_alloc', 0x10000, 2048), ";
  write(begin + "ev('noise', 1, 2), ev('alloc', 0x10000, 512), ev('hum', 1, 2), ev('noise', 3, 4)]\ndump(snapshot(s, t))");
  const std::string says = "3 events of a kind that is not known (noise, hum) were passed over";
  const json summary = read("summary");
  EXPECT_EQ(summary["health"]["unknown_events"], 3);
  EXPECT_EQ(summary["imported"]["heaps"][0]["unknown_events"], 3);
  EXPECT_EQ(summary["imported"]["unknown_actions"], (json{"noise", "hum"}));
  EXPECT_THAT(run("summary").out, HasSubstr("HEALTH  " + says));
  EXPECT_EQ(read("info")["health"]["unknown_events"], 3);
  EXPECT_THAT(run("info").out, HasSubstr(says));
  for (const char* command : {"peak", "fragmentation"}) {
    EXPECT_THAT(run(command).out, HasSubstr("WARNING  " + says)) << command;
    EXPECT_THAT(read(command)["warnings"].dump(), HasSubstr(says)) << command;
  }
  write(begin + "ev('noise', 1, 2), ev('alloc', 0x10000, 512)]\ndump(snapshot(s, t))");
  EXPECT_THAT(run("summary").out, HasSubstr("HEALTH  1 event of a kind that is not known (noise) was passed over"));
  write(begin + "ev('alloc', 0x10000, 512)]\ndump(snapshot(s, t))");
  EXPECT_EQ(read("summary")["health"]["unknown_events"], 0);
  EXPECT_THAT(run("summary").out, HasSubstr("HEALTH  the file is whole"));
  EXPECT_THAT(run("info").out, Not(HasSubstr("passed over")));
}

// Segments and blocks of before the first event come one after the other: the moment that is shown is no moment between them. Blocks are
// as they were asked for, so the key is "requested", and what rounding takes of a segment is not known.
TEST_F(Snapshots, FragmentationIsOfTheFullestMomentAndOfRequestedBytes) {
  // 300 of 512 bytes lived before; 1000 come, and go.
  write(
      "s = [seg(0x10000, [block(512, requested=300), block(1536, 'inactive', 0)])]\n"
      "dump(snapshot(s, [ev('alloc', 0x10200, 1000)] + gone(0x10200, 1000)))");
  const json report = read("fragmentation");
  EXPECT_EQ(report["counters"], (json{{"requested", 1300}, {"allocated", nullptr}, {"active", nullptr}, {"reserved", 2048}}));
  EXPECT_EQ(report["is_peak"], true);
  EXPECT_EQ(report["free_is_at_most"], true);
  EXPECT_EQ(report["free_bytes"], 748);
  EXPECT_EQ(report["segments"][0]["pinned_by"][0]["requested"], 1000);
  const std::string text = run("fragmentation").out;
  EXPECT_THAT(text, HasSubstr("1.27 KiB requested, 2.00 KiB reserved"));
  EXPECT_THAT(text, HasSubstr("free: at most 748 B"));
  EXPECT_THAT(text, HasSubstr("largest free run: at most 536 B"));
  EXPECT_THAT(text, Not(HasSubstr("allocated, ")));
  // The simulation rounds what it is asked for, and knows both.
  const json simulated = read("fragmentation --simulate");
  EXPECT_EQ(simulated["counters"]["requested"], 1300);
  EXPECT_EQ(simulated["counters"]["allocated"], 512 + 1024);
  EXPECT_EQ(simulated["free_is_at_most"], false);
  // Only the state at the dump is in the file: that is what is shown, and it is no peak.
  write("dump([seg(0x10000, [block(512, requested=300), block(512), block(1024, 'inactive', 0)])])");
  const json last = read("fragmentation");
  EXPECT_EQ(last["counters"]["requested"], 812);
  EXPECT_EQ(last["is_peak"], false);
  EXPECT_THAT(run("fragmentation").out, testing::StartsWith("AT THE DUMP  2.00 KiB reserved on cuda:0"));
}

TEST_F(Snapshots, NameWhatTheProfilersHooksNamed) {
  write(
      "s = [seg(0x10000, [block(512), block(512), block(1024, 'inactive')])]\n"
      "t = [ev('segment_alloc', 0x10000, 2048), ev('alloc', 0x10000, 512)]\n"
      "note = lambda name, stage: dict(name=name, stage=stage, device=0, time_us=clock + 1)\n"
      "n = [note('ProfilerStep#7', 'START'), note('Optimizer.step#SGD.step', 'START')]\n"
      "t += [ev('alloc', 0x10200, 512), ev('alloc', 0x10400, 256)]\n"
      "clock += 1; n += [note('Optimizer.step#SGD.step', 'END'), note('never begun', 'END')]\n"
      "t += gone(0x10400, 256); n += [note('ProfilerStep#7', 'END')]\n"
      "dump(snapshot(s, t, external_annotations=n))");
  const json summary = read("summary");
  EXPECT_EQ(summary["peak"]["bytes"], 1280);
  EXPECT_EQ(summary["peak"]["phase"], "optimizer");
  EXPECT_EQ(summary["peak"]["scope"], "Optimizer.step#SGD.step");
  EXPECT_EQ(summary["peak"]["step"], 7);
  EXPECT_EQ(summary["phases"]["optimizer"]["allocations"], 2);
}

TEST_F(Snapshots, ThatContradictThemselvesSayWhere) {
  const std::string good =
      "blocks = [block(512), block(1536, 'inactive')]\ns = [seg(0x10000, blocks)]\nbegin = [ev('segment_alloc', 0x10000, 2048), "
      "ev('alloc', 0x10000, 512)]\n";
  const std::pair<const char*, const char*> cases[] = {
      {"begin[0]['size'] = 1024; dump(snapshot(s, begin))", "hold 0 bytes; the dump less the events is 1024"},
      {"dump(snapshot(s, begin + [ev('alloc', 0x10400, 256)]))",
       "the block at 0x10400 is allocated and not freed, and the dump does not have it"},
      {"begin[1]['size'] = 100; dump(snapshot(s, begin))", "the block at 0x10000 was allocated with 100 bytes; the dump says 512"},
      {"dump(snapshot(s, begin + [ev('alloc', 0x10000, 512)]))", "a block is allocated at 0x10000, where one lives (event 2 of device 0)"},
      {"dump(snapshot(s, begin + gone(0x10000, 512)))", "the block at 0x10000 is freed, and the dump has it"},
      {"dump(snapshot(s, begin + gone(0x10400, 8) + gone(0x10400, 8)))", "the block at 0x10400 is freed, and none lives there"},
      {"dump(snapshot(s, begin + [ev('alloc', 0x90000, 64)] + gone(0x90000, 64)))",
       "1 allocations lie in no segment, the first at 0x90000"},
      {"dump(snapshot(s, begin + [ev('alloc', 0x10200, 64)] + gone(0x10200, 65)))", "was allocated with 64 bytes and freed with 65"},
      {"dump(snapshot(s, begin + [ev('alloc', 0x10200, 1600)] + gone(0x10200, 1600)))", "more is allocated than is reserved after "},
      {"s[0]['total_size'] = 4096; begin[0]['size'] = 4096; dump(snapshot(s, begin))", "states 4096 bytes in all, its blocks hold 2048"},
      {"s[0]['active_size'] = 1; dump(snapshot(s, begin))", "states 1 bytes active, its blocks hold 512"},
      {"dump(snapshot(s + [seg(0x10400, [block(512, 'inactive')])], begin))", "segments overlap at 0x10400"},
      {"blocks[0]['address'] = 0; dump(snapshot(s, begin))", "the block at 0x0 lies outside of its segment"},
      {"blocks[0]['requested_size'] = 600; dump(snapshot(s, begin))", "holds less than was asked for"},
      {"dump(snapshot(s + [seg(0x30000, [block(512, address=0x10000)])], begin))", "two blocks at 0x10000"},
      {"dump(snapshot(s, begin + [ev('free_requested', 0x10000, 512)] * 2))", "is freed twice"},
  };
  write(good + "dump(snapshot(s, begin))");
  EXPECT_EQ(read("summary")["health"]["contradictions"], 0);
  for (const auto& [program, says] : cases) {
    write(good + program);
    EXPECT_THAT(contradictions(), HasSubstr(says)) << program;
    EXPECT_THAT(run("summary").out, HasSubstr("HEALTH  the file contradicts itself in ")) << program;
    EXPECT_THAT(run("peak").out, HasSubstr("WARNING  the file contradicts itself: ")) << program;
  }
}

TEST_F(Snapshots, ThatAreNoneAreRefusedInOneLine) {
  const std::string good = "s = [seg(0x10000, [block(512)])]\n";
  const std::pair<const char*, const char*> cases[] = {
      {"dump(7)", "no memory snapshot of PyTorch: it holds neither a dict nor a list of segments"},
      {"dump(dict(weights=[1]))", "it has no list \"segments\""},
      {"dump(dict(segments=[]))", "the snapshot is empty"},
      {"dump(dict(segments=[7]))", "a segment that is no dict in segments[0]"},
      {"dump(dict(segments=[dict(address=1)]))", "\"address\", \"total_size\" or \"blocks\" is missing in segments[0]"},
      {"s[0]['device'] = -1; dump(s)", "\"device\" is -1 in segments[0]"},
      {"s[0]['device'] = 2**40; dump(s)", "\"device\" is 1099511627776"},
      {"s[0]['total_size'] = 2**60; dump(s)", "\"total_size\" is 1152921504606846976"},
      {"s[0]['address'] = 2**64; dump(s)", "\"address\" is no number of 64 bits"},
      {"s[0]['blocks'][0]['size'] = 'x'; dump(s)", "\"size\" is no number of 64 bits"},
      {"s[0]['blocks'][0]['state'] = 'x'; dump(s)", "a block's \"state\" is none that PyTorch has"},
      {"del s[0]['blocks'][0]['size']; dump(s)", "a block without \"size\" or \"state\""},
      {"dump(s + [dict(s[0], blocks=s[0]['blocks'])])", "the same list of blocks stands there twice"},
      {"t = [ev('alloc', 1, 2)]; dump(snapshot(s, t, t))", "the same list of events stands there twice"},
      {"dump(snapshot(s, 7))", "no list of events in device_traces[0]"},
      {"dump(snapshot(s, [ev('alloc', 1, 2), 7]))", "an event that is no dict in device_traces[0] (event 1)"},
      {"dump(snapshot(s, [ev('alloc', 1, -2)]))", "\"size\" is -2"},
      {"dump(snapshot(s, [dict(action='alloc', size=1)]))", "an event without \"addr\" or \"size\""},
      {"dump(snapshot(s, [dict(addr=1, size=1)]))", "an event without \"action\""},
      {"dump(snapshot(s, [{str(i): 1 for i in range(1000)}]))", "an event of 1000 entries"},
      {"dump(snapshot(s, [ev('alloc', i << 40, 2**48) for i in range(5000)]))", "add up beyond 2^60 bytes"},
      {"dump(snapshot(s, [ev('free_completed', i << 40, 2**48) for i in range(5000)]))", "add up beyond 2^60 bytes"},
      {"dump(snapshot(s, [ev('segment_map', 1 << 40, 2**48)] * 5000))", "add up beyond 2^60 bytes"},
      {"dump(snapshot(s, [ev('segment_unmap', 1 << 40, 2**48)] * 5000))", "add up beyond 2^60 bytes"},
      {"dump([seg(i << 48, [block(2**48)]) for i in range(1, 5000)])", "add up beyond 2^60 bytes"},
      {"dump(snapshot(s, *[[]] * 5000))", "\"device_traces\" has 5000 devices"},
  };
  for (const auto& [program, says] : cases) {
    write(good + program);
    for (const char* command : {"summary", "dump"}) {
      const Ran ran = run(command);
      EXPECT_EQ(ran.status, 3) << program;
      EXPECT_EQ(ran.out, "");
      EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
      EXPECT_THAT(ran.err, HasSubstr(says)) << program;
      EXPECT_THAT(ran.err, HasSubstr(path));
    }
  }
}

}  // namespace
}  // namespace liveset
