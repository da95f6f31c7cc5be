// The restricted reader of pickles: what Python writes reads as Python reads it; what is no plain data is refused where it stands.
#include "viewer/import/pickle.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "tests/support/python_pickle.h"

namespace liveset::imports {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

Result<Pickle> parse(const std::string& bytes, const PickleLimits& limits = {}) {
  return Pickle::parse({bytes.begin(), bytes.end()}, "x.pickle", limits);
}
std::string error_of(const std::string& bytes, const PickleLimits& limits = {}) {
  const Result<Pickle> pickle = parse(bytes, limits);
  return pickle ? "" : pickle.error().message();
}

// Of small pickles without cycles.
ordered_json json_of(const Pickle& pickle, Pickle::Id id) {
  std::int64_t number = 0;
  switch (pickle.kind(id)) {
    case Pickle::Kind::none: return nullptr;
    case Pickle::Kind::boolean: return pickle.truth(id);
    case Pickle::Kind::integer: pickle.integer(id, number); return number;
    case Pickle::Kind::wide_integer: return "wide";
    case Pickle::Kind::real: return "real";
    case Pickle::Kind::bytes: return "bytes";
    case Pickle::Kind::text: return std::string(pickle.text(id));
    case Pickle::Kind::dict: {
      ordered_json dict = ordered_json::object();
      pickle.for_each_pair(id, [&](Pickle::Id key, Pickle::Id value) {
        const ordered_json name = json_of(pickle, key);
        dict[name.is_string() ? name.get<std::string>() : name.dump()] = json_of(pickle, value);
        return true;
      });
      return dict;
    }
    default: {
      ordered_json list = ordered_json::array();
      pickle.for_each(id, [&](Pickle::Id item) {
        list.push_back(json_of(pickle, item));
        return true;
      });
      return list;
    }
  }
}

TEST(Pickles, OfEveryProtocolReadAsPythonReadsThem) {
  if (!test::has_python()) GTEST_SKIP() << "SKIPPED: no python3";
  const test::TemporaryFolder folder;
  for (int protocol = 2; protocol <= 5; ++protocol) {
    const std::string file = folder.file("data");
    ASSERT_TRUE(test::python_writes(
        file,
        "shared = [1, 2]\n"
        "dump({'n': None, 'yes': True, 'no': False, 'numbers': [0, 255, 256, 65535, 65536, -1, -128, 2**31-1, -2**31, 2**31, "
        "2**40, -2**40, 2**63-1, -2**63, 2**63, 10**30, -10**30],\n"
        " 'float': 1.5, 'text': 'h\\u00e9', 'long': 'x' * 300, 'bytes': b'ab', 'tuples': [(), (1,), (1, 2), (1, 2, 3), "
        "(1, 2, 3, 4)], 'same': [shared, shared, ['a', 'a']], 'many': list(range(2500)), 'empty': [{}, []], 'dict': {1: 2, "
        "'k': {'l': []}}, 'one': [7], 'array': bytearray(b'z') if " +
            std::to_string(protocol) + " == 5 else b'z'}, " + std::to_string(protocol) + ")"));
    const Result<Pickle> pickle = Pickle::read(file);
    if (protocol == 2) {
      // Protocol 2 has no bytes: Python writes a call that makes them.
      ASSERT_FALSE(pickle);
      EXPECT_THAT(pickle.error().message(), HasSubstr("refused: GLOBAL, which names code of a program (plain data needs none"));
      continue;
    }
    ASSERT_TRUE(pickle) << pickle.error().message();
    EXPECT_EQ(pickle->protocol(), protocol);
    ordered_json read = json_of(*pickle, pickle->root());
    ordered_json many = ordered_json::array();
    for (int i = 0; i < 2500; ++i) many.push_back(i);
    EXPECT_EQ(read["many"], many);
    read.erase("many");
    EXPECT_EQ(read["long"], std::string(300, 'x'));
    read.erase("long");
    EXPECT_EQ(read,
              ordered_json::parse(R"({"n": null, "yes": true, "no": false, "numbers": [0, 255, 256, 65535, 65536, -1, -128, 2147483647,
      -2147483648, 2147483648, 1099511627776, -1099511627776, 9223372036854775807, -9223372036854775808, "wide", "wide", "wide"],
      "float": "real", "text": "h)"
                                  "\xc3\xa9"
                                  R"(", "bytes": "bytes", "tuples": [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4]],
      "same": [[1, 2], [1, 2], ["a", "a"]], "empty": [{}, []], "dict": {"1": 2, "k": {"l": []}}, "one": [7], "array": "bytes"})"))
        << "protocol " << protocol;
  }
}

TEST(Pickles, OfProtocol2WithoutBytesAndSets) {
  if (!test::has_python()) GTEST_SKIP() << "SKIPPED: no python3";
  const test::TemporaryFolder folder;
  ASSERT_TRUE(test::python_writes(folder.file("two"), "dump({'a': [(1, 2), 'b', 2**40, -3], 'b': 'b'}, 2)"));
  Result<Pickle> pickle = Pickle::read(folder.file("two"));
  ASSERT_TRUE(pickle) << pickle.error().message();
  EXPECT_EQ(json_of(*pickle, pickle->root()).dump(), R"({"a":[[1,2],"b",1099511627776,-3],"b":"b"})");
  ASSERT_TRUE(test::python_writes(folder.file("set"), "dump([{5}, frozenset([6])], 4)"));
  pickle = Pickle::read(folder.file("set"));
  ASSERT_TRUE(pickle) << pickle.error().message();
  EXPECT_EQ(json_of(*pickle, pickle->root()).dump(), "[[5],[6]]");
}

TEST(Pickles, ShareWhatTheFileShares) {
  // [x, x] with x a memo'd list; and a list that contains itself.
  const Result<Pickle> shared = parse(std::string("\x80\x04](]\x94h\0e.", 10));
  ASSERT_TRUE(shared) << shared.error().message();
  std::vector<Pickle::Id> items;
  shared->for_each(shared->root(), [&](Pickle::Id id) { return items.push_back(id), true; });
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0], items[1]);
}

TEST(Pickles, ListsThatContainThemselvesAreNoTrouble) {
  const Result<Pickle> cyclic =
      parse(std::string("\x80\x04]\x94h\x00"
                        "a.",
                        8));
  ASSERT_TRUE(cyclic) << cyclic.error().message();
  cyclic->for_each(cyclic->root(), [&](Pickle::Id id) {
    EXPECT_EQ(id, cyclic->root());
    return true;
  });
  EXPECT_EQ(cyclic->size(cyclic->root()), 1U);
}

TEST(Pickles, OfOtherInstructionsAreRefusedWhereTheyStand) {
  const std::string head("\x80\x04");
  const std::pair<std::string, const char*> refused[] = {
      {"cos\nsystem\n", "GLOBAL"},
      {"\x93", "STACK_GLOBAL"},
      {"R", "REDUCE"},
      {"b", "BUILD"},
      {"o", "OBJ"},
      {"i", "INST"},
      {"\x81", "NEWOBJ"},
      {"\x92", "NEWOBJ_EX"},
      {"P", "PERSID"},
      {"Q", "BINPERSID"},
      {"\x82\x01", "EXT1"},
      {"\x83\x01\x01", "EXT2"},
      {"\x84\x01\x01\x01\x01", "EXT4"},
      {"\x97", "NEXT_BUFFER"},
      {"\x98", "READONLY_BUFFER"},
      {"I1\n", "INT, an instruction of protocols 0 and 1 (protocols 2 to 5 are read; Python writes it again"},
      {"L1L\n", "LONG, an"},
      {"F1\n", "FLOAT, an"},
      {"S'x'\n", "STRING, an"},
      {"Vx\n", "UNICODE, an"},
      {"g0\n", "GET, an"},
      {"p0\n", "PUT, an"}};
  for (const auto& [bytes, name] : refused)
    EXPECT_THAT(error_of(head + "NN(" + bytes), HasSubstr(std::string("x.pickle: at byte 5: refused: ") + name));
  EXPECT_THAT(error_of(head + "\xff"), HasSubstr("at byte 2: 0xff is no instruction of a pickle"));
}

// They have no mark of their own, so what Python writes there is known by how it begins.
TEST(Pickles, OfProtocols0And1AreToldHowToBecomeReadable) {
  if (!test::has_python()) GTEST_SKIP() << "SKIPPED: no python3";
  const test::TemporaryFolder folder;
  for (const char* const value : {"{'segments': [], 'device_traces': [[2**40]]}", "[]"}) {
    for (int protocol = 0; protocol <= 2; ++protocol) {
      const std::string file = folder.file("data"), again = folder.file("again");
      ASSERT_TRUE(test::python_writes(file, std::string("dump(") + value + ", " + std::to_string(protocol) + ")"));
      const Result<Pickle> pickle = Pickle::read(file);
      EXPECT_EQ(static_cast<bool>(pickle), protocol >= 2) << value << protocol;
      if (pickle) continue;
      const std::string told = pickle.error().message(), begin = "pickle.dump(", hint = told.substr(told.find(begin));
      EXPECT_THAT(told, HasSubstr("at byte 0: a pickle of protocol 0 or 1 (protocols 2 to 5 are read; "));
      // What it says to do helps.
      std::string program = hint.substr(0, hint.rfind(')'));
      program.replace(program.find("old.pickle"), 10, file);
      program.replace(program.find("new.pickle"), 10, again);
      ASSERT_TRUE(test::python_writes(folder.file("program"), program));
      EXPECT_TRUE(Pickle::read(again));
    }
  }
}

TEST(Pickles, SayWhatStandsBehindTheirEnd) {
  EXPECT_EQ(parse("\x80\x02N.")->bytes_behind(), 0U);
  EXPECT_EQ(parse("\x80\x02N.N.")->bytes_behind(), 2U);
}

TEST(Pickles, ThatCallAProgramStartNothing) {
  if (!test::has_python()) GTEST_SKIP() << "SKIPPED: no python3";
  const test::TemporaryFolder folder;
  const std::string witness = folder.file("witness");
  for (int protocol = 2; protocol <= 5; ++protocol) {
    ASSERT_TRUE(test::python_writes(folder.file("bad"),
                                    "class Bad:\n  def __reduce__(self):\n    import os\n    return os.system, ('touch " + witness +
                                        "',)\ndump({'segments': [], 'device_traces': [Bad()]}, " + std::to_string(protocol) + ")"));
    const Result<Pickle> pickle = Pickle::read(folder.file("bad"));
    ASSERT_FALSE(pickle);
    EXPECT_THAT(pickle.error().message(), HasSubstr(protocol < 4 ? "refused: GLOBAL" : "refused: STACK_GLOBAL"));
  }
  EXPECT_FALSE(std::filesystem::exists(witness));
}

TEST(Pickles, AreCheckedForLengthsBeforeRoomIsMade) {
  const std::string head("\x80\x04"), forty("\0\0\0\0\0\1\0\0", 8);  // 2^40
  for (const char* opcode : {"\x8d", "\x8e", "\x96"})
    EXPECT_THAT(error_of(head + opcode + forty + "abc"), HasSubstr("at byte 2: a length of 1099511627776 bytes where 3 are left"));
  EXPECT_THAT(error_of(head + "\x95" + forty + "N."), HasSubstr("a frame of 1099511627776 bytes where 2 are left"));
  EXPECT_THAT(error_of(head + "X\xff\xff\xff\xff" + "abc"), HasSubstr("a length of 4294967295 bytes where 3 are left"));
  EXPECT_THAT(error_of(head + "\x8b\xff\xff\xff\xff" + "abc"), HasSubstr("a length of 4294967295 bytes where 3 are left"));
  EXPECT_THAT(error_of(head + "\x8a\x05" + "abc"), HasSubstr("a length of 5 bytes where 3 are left"));
  EXPECT_THAT(error_of(head + "]r\xff\xff\xff\x7f."), HasSubstr("memo 2147483647 in a file of fewer bytes"));
  EXPECT_THAT(error_of(head + "j\xff\xff\xff\x7f."), HasSubstr("memo 2147483647 holds nothing"));
}

TEST(Pickles, WithAStackThatDoesNotFitAreRefused) {
  const std::string head("\x80\x04");
  for (const char* body : {".",     "(.",     "N(.",   "a.",       "Na.",   "NNa.", "]a.",   "e.",     "(e.",     "N(e.",
                           "N(Ne.", "](NNu.", "}(Nu.", "}(NNe.",   "Ns.",   "}Ns.", "\x85.", "N\x86.", "NN\x87.", "0.",
                           "1.",    "2.",     "\x94.", "(N(\x85.", "]((e.", "(Nd.", "N(t",   "\x91.",  "N(N\x90."})
    EXPECT_NE(error_of(head + body), "") << body;
  EXPECT_EQ(error_of(head + "N2\x86."), "");
  EXPECT_EQ(error_of(head + "N(NN1."), "");
  EXPECT_EQ(error_of(head + "N(0."), "");
}

TEST(Pickles, TornAtAnyByteAreRefused) {
  if (!test::has_python()) GTEST_SKIP() << "SKIPPED: no python3";
  const test::TemporaryFolder folder;
  for (int protocol = 2; protocol <= 5; ++protocol) {
    ASSERT_TRUE(test::python_writes(
        folder.file("data"),
        "dump({'a': [1, 300, 2**40, 1.5, None, True, (1, 2, 3, 4)], 'b': 'text', 'c': {'d': 'text'}}, " + std::to_string(protocol) + ")"));
    const std::string whole = test::read_file(folder.file("data"));
    EXPECT_EQ(error_of(whole), "");
    for (std::size_t end = 0; end < whole.size(); ++end) EXPECT_THAT(error_of(whole.substr(0, end)), HasSubstr("at byte ")) << end;
  }
}

TEST(Pickles, AreBoundInValuesAndDepth) {
  PickleLimits limits;
  limits.values = 1000;
  EXPECT_THAT(error_of("\x80\x04(" + std::string(2000, ']') + "t.", limits), HasSubstr("more than 1000 values"));
  EXPECT_THAT(error_of("\x80\x04" + std::string(20000, '(') + "N."), HasSubstr("nested deeper than 10000"));
  // Tuples within tuples, as deep as the file is long: no recursion anywhere.
  const Result<Pickle> deep = parse("\x80\x04N" + std::string(3'000'000, '\x85') + ".");
  ASSERT_TRUE(deep);
  EXPECT_EQ(deep->size(deep->root()), 1U);
}

TEST(Pickles, ThatDoubleByTheMemoStayAsSmallAsTheirFile) {
  // Each list holds the one before twice: 2^60 leaves for whoever would copy, 60 lists here.
  std::string bytes = "\x80\x04]\x94";
  for (char i = 0; i < 60; ++i) bytes += std::string("](h") + i + "h" + i + "e\x94";
  const Result<Pickle> bomb = parse(bytes + ".");
  ASSERT_TRUE(bomb) << bomb.error().message();
  EXPECT_LT(bomb->values(), 400U);
}

TEST(Pickles, TakeLittleMoreMemoryThanTheirFile) {
  if (!test::has_python()) GTEST_SKIP() << "SKIPPED: no python3";
  const test::TemporaryFolder folder;
  ASSERT_TRUE(test::python_writes(folder.file("data"),
                                  "dump({'device_traces': [[{'action': 'alloc', 'addr': 2**46 + i, 'size': 4096 + i, 'stream': 0, "
                                  "'time_us': 2**50 + i, 'frames': []} for i in range(100000)]]})"));
  const Result<Pickle> pickle = Pickle::read(folder.file("data"));
  ASSERT_TRUE(pickle);
  EXPECT_LT(pickle->memory_bytes(), 5 * pickle->file_bytes());
}

}  // namespace
}  // namespace liveset::imports
