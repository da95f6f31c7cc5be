#include "hooks/python/frames.h"

#include <cstring>
#include <ctime>

#include "hooks/core/careful_memory.h"
#include "hooks/core/native_stack.h"
#include "hooks/core/process.h"
#include "hooks/core/recorder.h"
#include "hooks/core/stacks.h"
#include "hooks/python/cpython.h"
#include "hooks/python/frame_layout.h"
#include "hooks/python/frame_table.h"

namespace liveset::python {
namespace {

using core::StackCache;

FrameLayout layout;
FrameFunctions functions;
std::uint64_t main_interpreter = 0;
bool ready = false;  // the layout was verified
bool decided = false;
char own_files[4096];  // what the paths of our own files begin with
constinit FrameTable table;
void (*deallocate_code)(Object* code) = nullptr;

// Why there is no stack. The texts are in every trace's dictionary once.
struct Reason {
  const char* text;
  std::uint32_t stack = 0;
};
Reason not_yet{"before the Python hooks came in"};
Reason no_layout{"this Python's frames are not known"};
Reason no_thread{"thread without the interpreter"};
Reason other_interpreter{"another interpreter of the process"};
Reason no_python{"no Python code ran"};
Reason ending{"the interpreter was ending"};
Reason interrupted{"in a signal handler"};
Reason cut_off{"deeper than 128 frames"};

std::uint32_t stack_of(Reason& reason) { return core::intern_reason(reason.stack, reason.text); }

void forget_and_deallocate(Object* code) {
  // No frame runs it any more, not even when callbacks of its weak references run.
  if (core::process.flag() == core::flag_on) table.forget(reinterpret_cast<std::uint64_t>(code));
  deallocate_code(code);
}

// ---- From a place to a frame of the dictionary

// A text of Python as UTF-8, cut after `capacity` bytes. Reads only.
std::uint32_t copy_text(Object* text, char* out, std::uint32_t capacity) {
  const std::intptr_t length = text != nullptr ? functions.text_length(text) : 0;
  std::uint32_t used = 0;
  for (std::intptr_t i = 0; i < length && used + 4 <= capacity; ++i) {
    const std::uint32_t c = functions.character(text, i);
    if (c < 0x80) {
      out[used++] = static_cast<char>(c);
    } else if (c < 0x800) {
      out[used++] = static_cast<char>(0xc0 | c >> 6);
      out[used++] = static_cast<char>(0x80 | (c & 0x3f));
    } else if (c >= 0xdc80 && c <= 0xdcff) {  // a byte of a file name that is no UTF-8
      out[used++] = static_cast<char>(c);
    } else if (c < 0x10000) {
      out[used++] = static_cast<char>(0xe0 | c >> 12);
      out[used++] = static_cast<char>(0x80 | (c >> 6 & 0x3f));
      out[used++] = static_cast<char>(0x80 | (c & 0x3f));
    } else {
      out[used++] = static_cast<char>(0xf0 | c >> 18);
      out[used++] = static_cast<char>(0x80 | (c >> 12 & 0x3f));
      out[used++] = static_cast<char>(0x80 | (c >> 6 & 0x3f));
      out[used++] = static_cast<char>(0x80 | (c & 0x3f));
    }
  }
  return used;
}

bool is_own(const char* file, std::uint32_t length) {
  const std::size_t own = std::strlen(own_files);
  return (own != 0 && length > own && std::memcmp(file, own_files, own) == 0) || (length == 9 && std::memcmp(file, "<liveset>", 9) == 0);
}

// Works a place out anew; the calling thread's frame holds the code object. 0: the dictionary is full.
std::uint32_t resolve(const Place& place) {
  char text[2048];
  const DirectReader read;
  Object *name = nullptr, *file = nullptr;
  read(place.code + layout.code_name, name);
  read(place.code + layout.code_file, file);
  std::uint32_t length = copy_text(file, text, sizeof text);
  if (is_own(text, length) || is_hidden(layout, functions, place.code)) return FrameTable::no_frame;
  const std::uint32_t file_name = core::intern_string(text, length);
  length = copy_text(name, text, sizeof text);
  const std::uint32_t function = core::intern_string(text, length);
  const int unit = place.unit < 0 || place.unit > 0x3fffffff ? -1 : static_cast<int>(place.unit);
  const int line = functions.line(reinterpret_cast<Object*>(place.code), unit * 2);
  if (file_name == 0 || function == 0) return 0;
  return core::intern_frame(function, file_name, line > 0 ? static_cast<std::uint32_t>(line) : 0);
}

// `remembered`: the table knows the place, so what is known of it may be kept until its generation changes.
std::uint32_t frame_of(const Place& place, bool* remembered) {
  *remembered = FrameTable::can_hold(place.code, place.unit);
  if (!*remembered) return resolve(place);
  std::uint32_t frame = table.find(place.code, place.unit);
  if (frame != FrameTable::unknown) return frame;
  frame = resolve(place);
  *remembered = frame != 0 && table.learn(place.code, place.unit, frame);
  return frame;
}

// ---- From frames to a stack

// Names a place while its code object lives; 0: it has no such name.
std::uint64_t name_of(const Place& place) {
  if (place.code >> 47 != 0 || place.unit < 0 || place.unit >> 21 != 0) return 0;
  return place.code >> 4 << 21 | static_cast<std::uint64_t>(place.unit);
}

// How many of the outermost places are those of the last stack.
std::uint32_t known_callers(StackCache& cache, std::uint64_t generation, std::uint32_t root, const Place* places, std::uint32_t count) {
  if (cache.generation != generation || cache.root != root) {
    cache.generation = generation;
    cache.root = root;
    cache.count = 0;
  }
  std::uint32_t known = 0;
  const std::uint32_t most = count < cache.count ? count : cache.count;
  while (known < most && cache.place[known] != 0 && cache.place[known] == name_of(places[count - 1 - known])) ++known;
  return known;
}

std::uint32_t intern(StackCache* cache, std::uint64_t generation, std::uint32_t root, const Place* places, std::uint32_t count) {
  std::uint32_t known = cache != nullptr ? known_callers(*cache, generation, root, places, count) : 0;
  std::uint32_t stack = known != 0 ? cache->stack[known - 1] : root;
  for (; known < count; ++known) {
    bool remembered = false;
    const Place& place = places[count - 1 - known];
    const std::uint32_t frame = frame_of(place, &remembered);
    if (frame != FrameTable::no_frame && (frame == 0 || (stack = core::intern_stack(stack, frame)) == 0)) break;
    if (cache == nullptr) continue;
    cache->place[known] = remembered ? name_of(place) : 0;
    cache->stack[known] = stack;
  }
  if (cache != nullptr) cache->count = known;
  if (known < count) return 0;
  return stack != 0 ? stack : stack_of(no_python);
}

// An interpreter that ends frees the states of threads that still run (daemons), under their feet. Before that it calls end_walks(): from
// then on only its own thread reads frames, and those who are at it are waited for. 0: everybody may.
std::uint64_t only_thread = 0;
std::atomic<std::uint32_t> uncached{0};  // threads that read frames and have no cache yet

// Around everything that reads frames. nested: a signal handler came in between.
struct Busy {
  Busy() : cache(core::own_stack_cache()), nested(cache != nullptr && cache->busy) {
    if (cache == nullptr) {
      uncached.fetch_add(1, std::memory_order_seq_cst);
    } else if (!nested) {
      __atomic_store_n(&cache->busy, true, __ATOMIC_RELAXED);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Busy() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (cache == nullptr) {
      uncached.fetch_sub(1, std::memory_order_release);
    } else if (!nested) {
      __atomic_store_n(&cache->busy, false, __ATOMIC_RELEASE);
    }
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  StackCache* const cache;
  const bool nested;
};

void end_walks() {
  if (core::process.flag() != core::flag_on) return;
  __atomic_store_n(&only_thread, reinterpret_cast<std::uint64_t>(functions.this_thread()), __ATOMIC_SEQ_CST);
  // Readers have no fence between their mark and their look at only_thread: the first pause is longer than any processor keeps a store
  // to itself.
  const timespec pause{0, 1'000'000};
  for (int pauses = 0; pauses < 100; ++pauses) {
    nanosleep(&pause, nullptr);
    if (uncached.load(std::memory_order_acquire) == 0 && core::busy_stack_caches() == 0) return;
  }
}

std::uint32_t python_stack() {
  if (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) return stack_of(__atomic_load_n(&decided, __ATOMIC_ACQUIRE) ? no_layout : not_yet);
  const auto thread = reinterpret_cast<std::uint64_t>(functions.this_thread());
  if (thread == 0) return stack_of(no_thread);

  Busy busy;
  if (busy.nested) return stack_of(interrupted);
  const std::uint64_t only = __atomic_load_n(&only_thread, __ATOMIC_ACQUIRE);
  if (only != 0 && only != thread) return stack_of(ending);
  std::uint64_t interpreter = 0;
  const DirectReader read;
  read(thread + layout.thread_interpreter, interpreter);
  if (interpreter != main_interpreter) return stack_of(other_interpreter);
  const std::uint64_t generation = table.generation();
  Place places[StackCache::most_frames];
  std::uint32_t count = 0;
  bool cut = false;
  walk_frames(layout, thread, read, places, StackCache::most_frames, count, cut);
  const std::uint32_t root = cut ? stack_of(cut_off) : 0;
  return count != 0 ? intern(busy.cache, generation, root, places, count) : stack_of(no_python);
}

// Native frames in the middle of which Python ran stand below it: down to the interpreter's own.
std::uint32_t both_stacks() {
  const std::uint32_t python = python_stack();
  return python != 0 ? core::native_stack(python, reinterpret_cast<std::uint64_t>(functions.version)) : 0;
}

std::uint32_t native_stack() { return core::native_stack(0, 0); }

void declare(const char* version, const char* covers, const char* cannot_see) {
  core::declare_source("stacks", version, covers, cannot_see);
}

}  // namespace

void start_frames() {
  if (core::process.native_stacks) {
    core::stack_source = core::process.python_stacks ? both_stacks : native_stack;
  } else if (core::process.python_stacks) {
    core::stack_source = python_stack;
  }
}

void find_frames(const CPython& py, const char* own_folder) {
  if (core::stack_source == nullptr || decided) return;
  if (!core::process.python_stacks) {
    declare("", "the native stack of each block at its allocation and at its free, 64 frames deep",
            "Python's frames; names of functions that their files do not hold");
    __atomic_store_n(&decided, true, __ATOMIC_RELEASE);
    return;
  }
  if (std::strlen(own_folder) < sizeof own_files - 1) {
    std::strcpy(own_files, own_folder);
    if (own_files[0] != '\0') std::strcat(own_files, "/");
  }
  const char* why = find_layout(layout, functions);
  const char* version = functions.version != nullptr ? functions.version() : "";
  char short_version[32] = "CPython ";
  for (std::size_t at = std::strlen(short_version); at + 1 < sizeof short_version && *version > ' ';) short_version[at++] = *version++;
  if (why == nullptr && !core::can_copy_memory())
    why = "process_vm_readv is forbidden here, so nobody can verify where this Python keeps its frames";
  if (why == nullptr && !verify_layout(py, layout, functions, end_walks))
    why = "this Python's frames do not lie where its version keeps them";
  // PyTypeObject: two counts and a type, tp_name, two sizes, tp_dealloc; so since Python 2.
  const auto type = reinterpret_cast<char*>(functions.code_type);
  if (why == nullptr && std::strcmp(*reinterpret_cast<const char**>(type + 24), "code") != 0) why = "this Python's code type is not known";
  if (why == nullptr) {
    main_interpreter = reinterpret_cast<std::uint64_t>(py.main_interpreter());
    auto* slot = reinterpret_cast<void (**)(Object*)>(type + 48);
    deallocate_code = *slot;
    __atomic_store_n(slot, &forget_and_deallocate, __ATOMIC_RELEASE);
    const bool native = core::process.native_stacks;
    declare(short_version,
            native ? "the Python stack of each block at its allocation and at its free, 128 frames deep, and the native frames below it"
                   : "the Python stack of each block at its allocation and at its free, 128 frames deep",
            native ? "threads that run no Python have native frames only; what came before the Python hooks"
                   : "native frames; threads that run no Python (autograd's own of a device); what came before the Python hooks");
    __atomic_store_n(&ready, true, __ATOMIC_RELEASE);
  } else {
    declare(short_version, "nothing", why);
  }
  __atomic_store_n(&decided, true, __ATOMIC_RELEASE);
}

void say_frames_exiting() {
  if (core::stack_source == nullptr || decided || core::process.flag() != core::flag_on) return;
  declare("", "nothing", "the main thread ran no Python code after the first block");
}

}  // namespace liveset::python
