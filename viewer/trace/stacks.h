// Call stacks of blocks, from the dictionary's chains of frames.
//
// A frame without file and line is no place in a program: its function is a sentence. A stack of only such a frame says why there are
// no frames; as the outermost frame of a stack it says why the stack ends there.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/trace/records.h"

namespace liveset::trace {

struct StackFrame {
  std::string_view function, file;
  std::uint32_t line = 0;
  std::uint64_t offset = 0;  // of native code: in the file
};

struct CallStack {
  std::vector<StackFrame> frames;  // innermost first
  std::string_view ends;           // why it ends where it does, or why there are no frames; "" when it is whole
};

// At most `most` frames: a trace may hold any chain. The texts live as long as the dictionary.
inline constexpr std::size_t most_frames = 256;
CallStack call_stack(const Dictionary& dictionary, std::uint32_t stack, std::size_t most = most_frames);

// A frame of PyTorch's own Python files: of little use to somebody who looks for the line of a program that asked for memory.
bool inside_torch(std::string_view file);

// "train.py:57 forward", "libc10.so c10::alloc_cpu(unsigned long)", "libc10.so+0x1a2b": the file without its folders; long names are
// shortened.
std::string frame_text(const StackFrame& frame);

}  // namespace liveset::trace
