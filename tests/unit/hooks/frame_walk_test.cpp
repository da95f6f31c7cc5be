// Frames as bytes, in layouts like those of CPython 3.10 (one kind of frames, an index), 3.11 (behind one more structure, an address)
// and 3.14 (marks in the code's address). Whether a layout is the running interpreter's is tests/torch/test_stacks.py's affair.
#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "hooks/python/frame_layout.h"

namespace liveset::python {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr FrameLayout indexed{16, 24, -1, 32, 24, 96, 0, 112, 104, 0};
constexpr FrameLayout addressed{16, 56, 8, 32, 48, 56, 69, 120, 112, 184};
constexpr std::uint64_t code = 0x5000;
constexpr std::uint8_t of_a_function = 0, of_the_interpreter = 3;

// Fails at the read of that number, which counts down.
struct FailingReader {
  template <class T>
  bool operator()(std::uint64_t address, T& out) const {
    return left-- > 0 && DirectReader()(address, out);
  }
  int& left;
};

class FrameWalks : public testing::Test {
 protected:
  struct Bytes {
    alignas(8) unsigned char bytes[128] = {};
    std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes); }
    template <class T>
    void put(std::uint64_t at, T value) {
      std::memcpy(bytes + at, &value, sizeof value);
    }
  };

  void use(const FrameLayout& layout) {
    layout_ = layout;
    if (layout.chain_frame >= 0) thread_.put(layout.thread_frame, chain_.address());
  }

  // Below the frames that were added before.
  Bytes& add_frame(std::uint64_t of_code, std::uint8_t owner = of_a_function) {
    Bytes* caller = frames_.empty() ? nullptr : &frames_.back();
    Bytes& frame = frames_.emplace_back();
    frame.put(layout_.frame_code, of_code);
    frame.put(layout_.frame_previous, caller != nullptr ? caller->address() : 0);
    if (layout_.frame_owner != 0) frame.put(layout_.frame_owner, owner);
    if (layout_.chain_frame >= 0) {
      chain_.put(static_cast<std::uint64_t>(layout_.chain_frame), frame.address());
    } else {
      thread_.put(layout_.thread_frame, frame.address());
    }
    return frame;
  }
  void add_at_index(std::uint64_t of_code, std::int32_t index) { add_frame(of_code).put(layout_.frame_instruction, index); }
  void add_at_address(std::uint64_t of_code, std::uint64_t instruction, std::uint8_t owner = of_a_function) {
    add_frame(of_code, owner).put(layout_.frame_instruction, instruction);
  }

  template <class Reader = DirectReader>
  bool walk(std::uint32_t most = 8, const Reader& read = {}) {
    std::vector<Place> places(most);
    std::uint32_t count = 0;
    found_.clear();
    const bool whole = walk_frames(layout_, thread_.address(), read, places.data(), most, count, cut_);
    EXPECT_LE(count, most);
    for (std::uint32_t i = 0; i < count; ++i) found_.emplace_back(places[i].code, places[i].unit);
    return whole;
  }

  FrameLayout layout_ = indexed;
  Bytes thread_, chain_;
  std::deque<Bytes> frames_;
  std::vector<std::pair<std::uint64_t, std::int64_t>> found_;
  bool cut_ = false;
};

TEST_F(FrameWalks, InnermostFirstByIndex) {
  add_at_index(code, 7);
  add_at_index(code + 16, 0);
  add_at_index(code, -1);  // has not begun
  EXPECT_TRUE(walk());
  EXPECT_THAT(found_, ElementsAre(Pair(code, -1), Pair(code + 16, 0), Pair(code, 7)));
  EXPECT_FALSE(cut_);
}

TEST_F(FrameWalks, ByTheInstructionsAddressInUnitsOfTwoBytes) {
  use(addressed);
  add_at_address(code, code + 184 + 2 * 33);
  add_at_address(code + 0x1000, code + 0x1000 + 184 - 2);
  EXPECT_TRUE(walk());
  EXPECT_THAT(found_, ElementsAre(Pair(code + 0x1000, -1), Pair(code, 33)));
}

TEST_F(FrameWalks, MarksInTheCodesAddressAreNoPartOfIt) {
  use(addressed);
  add_at_address(code | 1, code + 184 + 2 * 5);
  EXPECT_TRUE(walk());
  EXPECT_THAT(found_, ElementsAre(Pair(code, 5)));
}

TEST_F(FrameWalks, TheInterpretersOwnEntriesAreLeftOut) {
  use(addressed);
  add_at_address(code, code + 184);
  add_at_address(0, 0, of_the_interpreter);
  add_at_address(code + 16, code + 16 + 184);
  add_at_address(0, 0, of_the_interpreter + 1);
  EXPECT_TRUE(walk());
  EXPECT_THAT(found_, ElementsAre(Pair(code + 16, 0), Pair(code, 0)));
}

TEST_F(FrameWalks, AThreadWithoutFrames) {
  EXPECT_TRUE(walk());
  EXPECT_THAT(found_, IsEmpty());
  use(addressed);
  EXPECT_TRUE(walk());
  EXPECT_THAT(found_, IsEmpty());
  thread_.put(addressed.thread_frame, std::uint64_t{0});  // without the structure between
  EXPECT_TRUE(walk());
  EXPECT_FALSE(cut_);
}

TEST_F(FrameWalks, ThoseThatFitAreWhole) {
  for (std::int32_t i = 0; i < 5; ++i) add_at_index(code, i);
  EXPECT_TRUE(walk(5));
  EXPECT_FALSE(cut_);
  EXPECT_TRUE(walk(3));
  EXPECT_TRUE(cut_);
  EXPECT_THAT(found_, ElementsAre(Pair(code, 4), Pair(code, 3), Pair(code, 2)));
}

TEST_F(FrameWalks, ARingOfFramesEnds) {
  use(addressed);
  Bytes& outer = add_frame(0, of_the_interpreter);
  add_frame(0, of_the_interpreter);
  outer.put(layout_.frame_previous, frames_.back().address());
  EXPECT_TRUE(walk(4));
  EXPECT_TRUE(cut_);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(FrameWalks, WhatCannotBeReadEndsTheWalk) {
  use(addressed);
  add_at_address(code, code + 184);
  add_at_address(code, code + 184);
  constexpr int reads = 2 + 2 * 4;  // the two on the way to the frames, and of each: owner, code, instruction, caller
  for (int readable = 0; readable < reads; ++readable) {
    int left = readable;
    EXPECT_FALSE(walk(8, FailingReader{left})) << readable;
  }
  int left = reads;
  EXPECT_TRUE(walk(8, FailingReader{left}));
  EXPECT_EQ(left, 0);
}

}  // namespace
}  // namespace liveset::python
