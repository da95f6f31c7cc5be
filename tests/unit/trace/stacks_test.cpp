#include "viewer/trace/stacks.h"

#include <gmock/gmock.h>

#include "tests/support/opened_trace.h"
#include "tests/support/trace_builder.h"

namespace liveset::trace {
namespace {

using test::TraceBuilder;
using testing::ElementsAre;

constexpr const char* torch_file = "/usr/lib/python3/site-packages/torch/nn/functional.py";

class Stacks : public test::OpenedTraceTest {
 protected:
  std::uint32_t text(const std::string& name) {
    proto::String& string = *dictionary_.add_string();
    string.set_id(static_cast<std::uint32_t>(dictionary_.string_size()));
    string.set_text(name);
    return string.id();
  }
  std::uint32_t frame(const std::string& function, const std::string& file, std::uint32_t line) {
    proto::Frame& frame = *dictionary_.add_frame();
    frame.set_id(static_cast<std::uint32_t>(dictionary_.frame_size()));
    frame.set_function(text(function));
    frame.set_file(file.empty() ? 0 : text(file));
    frame.set_line(line);
    return frame.id();
  }
  std::uint32_t stack(std::uint32_t parent, std::uint32_t frame) {
    proto::Stack& stack = *dictionary_.add_stack();
    stack.set_id(static_cast<std::uint32_t>(dictionary_.stack_size()));
    stack.set_parent(parent);
    stack.set_frame(frame);
    return stack.id();
  }
  void open() { file_.emplace(open_good(TraceBuilder().header().dictionary(dictionary_).footer().bytes())); }
  const Dictionary& names() const { return file_->dictionary(); }
  std::vector<std::string> frames(std::uint32_t id) const {
    std::vector<std::string> all;
    for (const StackFrame& frame : call_stack(names(), id).frames) all.push_back(frame_text(frame));
    return all;
  }

 private:
  proto::Dictionary dictionary_;
  std::optional<TraceFile> file_;
};

TEST_F(Stacks, AreListedFromTheInnermostFrame) {
  const std::uint32_t main = stack(0, frame("<module>", "/work-folder/train.py", 90));
  const std::uint32_t step = stack(main, frame("step", "/work-folder/train.py", 80));
  const std::uint32_t linear = stack(step, frame("linear", torch_file, 7));
  open();
  EXPECT_THAT(frames(linear), ElementsAre("functional.py:7 linear", "train.py:80 step", "train.py:90 <module>"));
  EXPECT_THAT(frames(main), ElementsAre("train.py:90 <module>"));
  EXPECT_EQ(call_stack(names(), linear).ends, "");
  EXPECT_EQ(names().stack_text(linear), "train.py:80 step < train.py:90 <module>");
}

TEST_F(Stacks, OfTorchAloneShowItsFrames) {
  const std::uint32_t only = stack(0, frame("linear", torch_file, 7));
  open();
  EXPECT_EQ(names().stack_text(only), "functional.py:7 linear");
}

TEST_F(Stacks, SayWhyTheyHaveNoFramesOrNoMore) {
  const std::uint32_t none = stack(0, frame("thread without the interpreter", "", 0));
  const std::uint32_t cut = stack(none, frame("f", "a.py", 3));
  open();
  EXPECT_TRUE(call_stack(names(), none).frames.empty());
  EXPECT_EQ(call_stack(names(), none).ends, "thread without the interpreter");
  EXPECT_EQ(names().stack_text(none), "(thread without the interpreter)");
  EXPECT_THAT(frames(cut), ElementsAre("a.py:3 f"));
  EXPECT_EQ(call_stack(names(), cut).ends, "thread without the interpreter");
  EXPECT_EQ(names().stack_text(0), "");
  EXPECT_EQ(names().stack_text(77), "");
}

TEST_F(Stacks, ThatAreTooLongAreCut) {
  std::uint32_t chain = 0;
  const std::uint32_t deep = frame("f", "a.py", 3);
  for (int i = 0; i < 1000; ++i) chain = stack(chain, deep);
  open();
  EXPECT_EQ(call_stack(names(), chain).frames.size(), most_frames);
  EXPECT_EQ(call_stack(names(), chain).ends, "further frames are left out");
  EXPECT_EQ(names().stack_text(chain), "a.py:3 f < a.py:3 f < a.py:3 f < a.py:3 f < a.py:3 f < a.py:3 f < a.py:3 f < a.py:3 f < ...");
}

TEST_F(Stacks, LongNamesAreShortenedInTextsOnly) {
  const std::string euros = [] {
    std::string text;
    for (int i = 0; i < 1000; ++i) text += "\xe2\x82\xac";
    return text;
  }();
  const std::uint32_t long_one = stack(0, frame(euros, "folder/" + std::string(500, 'f'), 1));
  open();
  EXPECT_EQ(names().stack_text(long_one), std::string(120, 'f') + "...:1 " + euros.substr(0, 120) + "...");
  EXPECT_EQ(call_stack(names(), long_one).frames.at(0).function, euros);
}

TEST_F(Stacks, CyclesAndUnknownFramesEnd) {
  const std::uint32_t one = stack(2, frame("f", "a.py", 1));
  const std::uint32_t two = stack(one, 1);
  const std::uint32_t own = stack(3, 1);
  const std::uint32_t lost = stack(own, 4711);
  open();
  EXPECT_EQ(frames(one).size(), 1U);
  EXPECT_EQ(frames(two).size(), 2U);
  EXPECT_EQ(frames(own).size(), 1U);
  EXPECT_EQ(call_stack(names(), lost).ends, "a frame's name was lost");
}

}  // namespace
}  // namespace liveset::trace
