#include <gmock/gmock.h>

#include "tests/support/opened_trace.h"
#include "tests/support/trace_builder.h"

namespace liveset::trace {
namespace {

using test::TraceBuilder;
using testing::HasSubstr;

class Dictionaries : public test::OpenedTraceTest {
 protected:
  TraceFile open_with(const proto::Dictionary& dictionary) {
    return open_good(TraceBuilder().header().dictionary(dictionary).footer().bytes());
  }
  static void add_scope(proto::Dictionary& dictionary, std::uint32_t id, std::uint32_t parent, proto::ScopeKind kind,
                        const std::string& name) {
    proto::String& string = *dictionary.add_string();
    string.set_id(static_cast<std::uint32_t>(dictionary.string_size()));
    string.set_text(name);
    proto::Scope& scope = *dictionary.add_scope();
    scope.set_id(id);
    scope.set_parent(parent);
    scope.set_kind(kind);
    scope.set_name(string.id());
  }
};

TEST_F(Dictionaries, PathsOfScopes) {
  proto::Dictionary dictionary;
  add_scope(dictionary, 1, 0, proto::SCOPE_MODULE, "GPT");
  add_scope(dictionary, 2, 1, proto::SCOPE_REGION, "checkpoint:0");
  add_scope(dictionary, 3, 2, proto::SCOPE_MODULE, "bs.0");
  add_scope(dictionary, 4, 3, proto::SCOPE_OP, "addmm");
  const TraceFile file = open_with(dictionary);
  EXPECT_EQ(file.dictionary().module_path(4), "GPT.bs.0");
  EXPECT_EQ(file.dictionary().scope_path(4), "GPT/checkpoint:0/bs.0/addmm");
  EXPECT_EQ(file.dictionary().module_path(0), "");
  EXPECT_EQ(file.dictionary().module_path(99), "");
}

TEST_F(Dictionaries, LongPathsAreCutInTheirMiddleAndDeepOnesAtTheirRoot) {
  proto::Dictionary dictionary;
  add_scope(dictionary, 1, 0, proto::SCOPE_MODULE, "root" + std::string(10'000, 'x'));
  add_scope(dictionary, 2, 1, proto::SCOPE_MODULE, "leaf");
  add_scope(dictionary, 3, 0, proto::SCOPE_MODULE,
            "\xc3\xa9" + std::string(508, 'a') + std::string(1000, '\xc3').replace(0, 2, "\xc3\xa9"));
  for (std::uint32_t id = 4; id < 5000; ++id) add_scope(dictionary, id, id == 4 ? 0 : id - 1, proto::SCOPE_REGION, "");
  const TraceFile file = open_with(dictionary);
  const std::string path = file.dictionary().module_path(2, 1024);
  EXPECT_EQ(path.size(), 1024U);
  EXPECT_EQ(file.dictionary().module_path(2).size(), 10'009U);  // whole, as nobody asks for less
  EXPECT_TRUE(path.starts_with("rootxxx")) << path;
  EXPECT_TRUE(path.ends_with("xxx.leaf")) << path;
  EXPECT_THAT(path, HasSubstr("x...x"));
  EXPECT_THAT(file.dictionary().module_path(3, 1024), HasSubstr("aa..."));  // no half character before the mark
  EXPECT_EQ(file.dictionary().scope_path(4999, 1024), "..." + std::string(1021, '/'));
  EXPECT_EQ(file.dictionary().module_path(4999, 1024), "...");
}

TEST_F(Dictionaries, APathThatBeginsInsideACharacterIsCutToo) {
  proto::Dictionary dictionary;
  add_scope(dictionary, 1, 0, proto::SCOPE_MODULE, "root");
  add_scope(dictionary, 2, 1, proto::SCOPE_MODULE, "\xa9" + std::string(2000, 'x'));
  const TraceFile file = open_with(dictionary);
  EXPECT_EQ(file.dictionary().module_path(2, 1024), "..." + std::string(1021, 'x'));
}

TEST_F(Dictionaries, CyclesAreCut) {
  proto::Dictionary dictionary;
  add_scope(dictionary, 1, 2, proto::SCOPE_MODULE, "a");
  add_scope(dictionary, 2, 1, proto::SCOPE_MODULE, "b");
  add_scope(dictionary, 3, 3, proto::SCOPE_MODULE, "c");
  const TraceFile file = open_with(dictionary);
  EXPECT_EQ(file.dictionary().module_path(2), "a.b");
  EXPECT_EQ(file.dictionary().module_path(3, 1024), "c");
}

TEST_F(Dictionaries, IdsBeyondTheEndReadAsEmpty) {
  proto::Dictionary dictionary;
  add_scope(dictionary, 1, 0, proto::SCOPE_MODULE, "a");
  dictionary.mutable_scope(0)->set_name(77);
  const TraceFile file = open_with(dictionary);
  EXPECT_EQ(file.dictionary().string(77), "");
  EXPECT_EQ(file.dictionary().module_path(1), "");
}

TEST_F(Dictionaries, AnIdOutOfAllReasonMakesNoRoomForItself) {
  proto::Dictionary dictionary;
  dictionary.add_string()->set_id(4'000'000'000U);
  const TraceFile file = open_with(dictionary);
  EXPECT_EQ(file.health().damaged_packets, 1);
  EXPECT_THAT(file.health().note, HasSubstr("a dictionary packet makes no sense"));
  EXPECT_LT(file.dictionary().strings.size(), 10);
}

TEST_F(Dictionaries, TextNeedNotBeUtf8) {
  proto::Dictionary dictionary;
  proto::String& string = *dictionary.add_string();
  string.set_id(1);
  string.set_text("\xff\x00z", 3);
  EXPECT_EQ(open_with(dictionary).dictionary().string(1), std::string_view("\xff\x00z", 3));
}

TEST_F(Dictionaries, ALayerOfZeroIsNotNoLayer) {
  proto::Dictionary dictionary;
  dictionary.add_value()->set_id(1);
  proto::Value& none = *dictionary.add_value();
  none.set_id(2);
  none.set_layer(-1);
  const TraceFile file = open_with(dictionary);
  EXPECT_EQ(file.dictionary().values.at(1).layer, 0);
  EXPECT_EQ(file.dictionary().values.at(2).layer, -1);
}

TEST(Names, OfKindsPhasesAndClasses) {
  EXPECT_EQ(kind_name(Kind::value_retain), "keep");
  EXPECT_EQ(kind_name(Kind::value_remake), "rerun");
  EXPECT_EQ(kind_name(static_cast<Kind>(99)), "unknown");
  EXPECT_EQ(phase_name(Phase::recompute), "recompute");
  EXPECT_EQ(phase_name(static_cast<Phase>(99)), "other");
  EXPECT_EQ(class_name(MemoryClass::checkpoint_input), "checkpoint_input");
  EXPECT_EQ(class_name(MemoryClass::unattributed), "unattributed");
}

}  // namespace
}  // namespace liveset::trace
