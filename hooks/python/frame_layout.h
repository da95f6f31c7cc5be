// Where CPython keeps a thread's frames, by version: of 3.10 to 3.12 as built in, of 3.13 and 3.14 as _PyRuntime's debug offsets say.
//
// Frames are read as plain memory, by the thread whose frames they are: so neither the interpreter's lock is needed (torch gives it
// away before it computes, and most blocks are allocated then) nor a frame object made (which could start the garbage collector in the
// middle of an allocator). What a layout says is believed only after verify_layout() saw it tell the same as the interpreter.
#pragma once
#include <cstdint>

namespace liveset::python {

struct CPython;
struct Object;

struct FrameLayout {
  // Offsets in bytes.
  std::uint16_t thread_interpreter, thread_frame;
  std::int16_t chain_frame;  // >= 0: thread_frame leads to another structure, which holds the frame there
  std::uint16_t frame_code, frame_previous, frame_instruction;
  std::uint16_t frame_owner;  // 0: there are only frames of functions
  std::uint16_t code_name, code_file;
  std::uint16_t code_start;  // 0: frame_instruction holds an index
};

// Functions of CPython that frames need besides those of CPython (cpython.h). All but the first four only read.
struct FrameFunctions {
  Object* (*attribute)(Object* object, const char* name);  // a new reference
  Object* (*current_frame)();                              // borrowed
  const char* (*version)();
  Object* code_type;
  Object* (*this_thread)();  // the calling thread's state, whether or not it holds the lock; null when it never ran Python
  int (*line)(Object* code, int byte);
  std::intptr_t (*text_length)(Object* text);
  std::uint32_t (*character)(Object* text, std::intptr_t index);
};

// A frame's code object and how many code units (of two bytes) into it the running instruction lies; negative before the first.
struct Place {
  std::uint64_t code;
  std::int64_t unit;
};

// Why there is no layout; null when `layout` and `functions` were filled.
const char* find_layout(FrameLayout& layout, FrameFunctions& functions);

// Compares what the layout says with the interpreter's own frame objects, in nested functions, generators, classes and callbacks.
// Needs the lock, in a place where any Python may run. Reads through the kernel, so a wrong layout is no fault.
// `at_exit` is called when the interpreter is about to end, before it takes threads' states down.
bool verify_layout(const CPython& py, const FrameLayout& layout, const FrameFunctions& functions, void (*at_exit)());

// The interpreter's own frame around a class's __init__, which tracebacks leave out.
bool is_hidden(const FrameLayout& layout, const FrameFunctions& functions, std::uint64_t code);

// Reads own memory that is known to be there.
struct DirectReader {
  template <class T>
  bool operator()(std::uint64_t address, T& out) const {
    out = *reinterpret_cast<const T*>(address);
    return true;
  }
};

// The frames of the thread, innermost first, at most `most`. False when something could not be read.
template <class Reader>
bool walk_frames(const FrameLayout& layout, std::uint64_t thread, const Reader& read, Place* places, std::uint32_t most,
                 std::uint32_t& count, bool& cut) {
  constexpr std::uint8_t no_function = 3;  // owners from here on: the interpreter's own entries
  std::uint64_t frame = 0;
  count = 0;
  cut = false;
  if (!read(thread + layout.thread_frame, frame)) return false;
  if (layout.chain_frame >= 0 && frame != 0 && !read(frame + static_cast<std::uint64_t>(layout.chain_frame), frame)) return false;
  for (std::uint32_t steps = 0; frame != 0; ++steps) {
    if (count == most || steps == 4 * most) {
      cut = true;
      return true;
    }
    std::uint8_t owner = 0;
    if (layout.frame_owner != 0 && !read(frame + layout.frame_owner, owner)) return false;
    if (owner < no_function) {
      Place& place = places[count++];
      if (!read(frame + layout.frame_code, place.code)) return false;
      place.code &= ~std::uint64_t{3};  // 3.14 keeps marks there
      if (layout.code_start == 0) {
        std::int32_t index = 0;
        if (!read(frame + layout.frame_instruction, index)) return false;
        place.unit = index;
      } else {
        std::uint64_t instruction = 0;
        if (!read(frame + layout.frame_instruction, instruction)) return false;
        place.unit = static_cast<std::int64_t>(instruction - (place.code + layout.code_start)) >> 1;
      }
    }
    if (!read(frame + layout.frame_previous, frame)) return false;
  }
  return true;
}

}  // namespace liveset::python
