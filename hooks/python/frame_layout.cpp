#include "hooks/python/frame_layout.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "hooks/core/careful_memory.h"
#include "hooks/core/stacks.h"
#include "hooks/python/cpython.h"

namespace liveset::python {
namespace {

using core::CarefulReader;

constexpr FrameLayout layout_3_10{16, 24, -1, 32, 24, 96, 0, 112, 104, 0};
constexpr FrameLayout layout_3_11{16, 56, 8, 32, 48, 56, 69, 120, 112, 184};
constexpr FrameLayout layout_3_12{16, 56, 0, 0, 8, 56, 70, 120, 112, 192};

// Positions in _Py_DebugOffsets, as words. A version that moved them fails the verification.
struct OffsetWords {
  int interpreter, current_frame, previous, executable, instruction, owner, file, name, start;
};
constexpr OffsetWords words_3_13{22, 23, 29, 30, 31, 33, 35, 36, 43};
constexpr OffsetWords words_3_14{25, 26, 32, 33, 34, 36, 40, 41, 48};

const char* from_debug_offsets(const OffsetWords& words, FrameLayout& layout) {
  const auto* offsets = static_cast<const std::uint64_t*>(symbol("_PyRuntime"));
  if (offsets == nullptr || std::memcmp(offsets, "xdebugpy", 8) != 0) return "this Python does not say where its frames are";
  if (offsets[2] != 0) return "this Python has no global lock";
  for (int word : {words.interpreter, words.current_frame, words.previous, words.executable, words.instruction, words.owner, words.file,
                   words.name, words.start}) {
    if (offsets[word] > 4096) return "this Python keeps its frames in places that are not known";
  }
  const auto at = [offsets](int word) { return static_cast<std::uint16_t>(offsets[word]); };
  layout = {at(words.interpreter), at(words.current_frame), -1,
            at(words.executable),  at(words.previous),      at(words.instruction),
            at(words.owner),       at(words.name),          at(words.file),
            at(words.start)};
  return nullptr;
}

bool text_is(const FrameFunctions& functions, Object* text, const char* expected) {
  const auto length = static_cast<std::intptr_t>(std::strlen(expected));
  if (text == nullptr || functions.text_length(text) != length) return false;
  for (std::intptr_t i = 0; i < length; ++i) {
    if (functions.character(text, i) != static_cast<unsigned char>(expected[i])) return false;
  }
  return true;
}

// What is being verified; the function below has no other way to know.
const CPython* python = nullptr;
const FrameLayout* verified_layout = nullptr;
const FrameFunctions* verified_functions = nullptr;
void (*call_at_exit)() = nullptr;

// An object's attribute, without a reference that lasts: what a frame has lives as long as the frame.
class Attribute {
 public:
  Attribute(Object* object, const char* name) : object_(verified_functions->attribute(object, name)) {}
  ~Attribute() {
    if (object_ != nullptr) python->decrease(object_);
  }
  Attribute(const Attribute&) = delete;
  Attribute& operator=(const Attribute&) = delete;
  Object* get() const { return object_; }
  bool is(std::uint64_t address) const { return object_ != nullptr && reinterpret_cast<std::uint64_t>(object_) == address; }
  long long number() const { return object_ != nullptr ? python->integer(object_) : -4711; }

 private:
  Object* object_;
};

bool same_frame(Object* frame, const Place& place) {
  const Attribute code(frame, "f_code"), instruction(frame, "f_lasti"), line(frame, "f_lineno");
  const Attribute name(code.get(), "co_name"), file(code.get(), "co_filename");
  std::uint64_t name_here = 0, file_here = 0, type = 0;
  constexpr std::uint64_t object_type = 8;  // behind the count of references, since Python 2
  const CarefulReader read;
  return code.is(place.code) && read(place.code + object_type, type) &&
         type == reinterpret_cast<std::uint64_t>(verified_functions->code_type) && instruction.number() == place.unit * 2 &&
         read(place.code + verified_layout->code_name, name_here) && read(place.code + verified_layout->code_file, file_here) &&
         name.is(name_here) && file.is(file_here) &&
         line.number() == verified_functions->line(code.get(), static_cast<int>(place.unit * 2));
}

// check() -> 1 when the frames that call it are those that the interpreter says.
Object* check(Object*, Object* const*, std::intptr_t) {
  static Place places[core::StackCache::most_frames];  // under the lock
  std::uint32_t count = 0, at = 0;
  bool cut = false;
  const auto thread = reinterpret_cast<std::uint64_t>(verified_functions->this_thread());
  std::uint64_t interpreter = 0;
  bool same = thread != 0 && CarefulReader()(thread + verified_layout->thread_interpreter, interpreter) &&
              interpreter == reinterpret_cast<std::uint64_t>(python->main_interpreter()) &&
              walk_frames(*verified_layout, thread, CarefulReader(), places, core::StackCache::most_frames, count, cut) && count != 0;
  Object* frame = same ? verified_functions->current_frame() : nullptr;
  if (frame != nullptr) python->increase(frame);
  while (same && frame != nullptr && frame != python->none && at < count) {
    same = same_frame(frame, places[at]);
    // Not the first: by then name and file are known to be where they are said to be.
    if (!same && at != 0 && at + 1 < count && is_hidden(*verified_layout, *verified_functions, places[at].code)) {
      same = same_frame(frame, places[++at]);
    }
    ++at;
    Object* back = verified_functions->attribute(frame, "f_back");
    python->decrease(frame);
    frame = back;
  }
  const bool ended = frame == python->none;
  if (frame != nullptr) python->decrease(frame);
  if (python->error() != nullptr) {
    python->clear_error();
    same = false;
  }
  return python->new_integer(same && at == count && (ended || cut) ? 1 : 0);
}

Object* ending(Object*, Object* const*, std::intptr_t) {
  call_at_exit();
  python->increase(python->none);
  return python->none;
}

constexpr const char* script = R"py(
def verify(check):
    class Made:
        def __init__(self):
            self.answer = check()
    def generator():
        yield check()
        yield [check() for _ in range(1)][0]
        yield from (check() for _ in range(2))
    def deep(n):
        return check() if n == 0 else deep(n - 1)
    def caught():
        try:
            raise ValueError
        except ValueError:
            return check()
    answers = [check(), (lambda: check())(), deep(5), deep(200), caught(), *generator(), *map(lambda _: check(), "abc")]
    answers += [Made().answer for _ in range(40)]
    sorted((1, 2), key=lambda _: answers.append(check()) or 0)
    found = {"check": check}
    exec(compile("\n\nanswer = check()", "a \"file\"\nof \u20ac", "exec"), found)
    return all(answers) and found["answer"] and len(answers) > 50
result = 0
if verify(check):
    import atexit
    atexit.register(ending)
    result = 1
)py";

}  // namespace

const char* find_layout(FrameLayout& layout, FrameFunctions& functions) {
  if (!find(functions.attribute, "PyObject_GetAttrString") || !find(functions.current_frame, "PyEval_GetFrame") ||
      !find(functions.version, "Py_GetVersion") || !find(functions.code_type, "PyCode_Type") ||
      !find(functions.this_thread, "PyGILState_GetThisThreadState") || !find(functions.line, "PyCode_Addr2Line") ||
      !find(functions.text_length, "PyUnicode_GetLength") || !find(functions.character, "PyUnicode_ReadChar")) {
    return "this Python lacks functions that frames need";
  }
  const char* version = functions.version();
  if (std::strstr(version, "free-threading") != nullptr) return "this Python has no global lock";
  char* end = nullptr;
  if (std::strtol(version, &end, 10) != 3 || *end != '.') return "this Python's version is not known";
  const long minor = std::strtol(end + 1, &end, 10);
  // CPython's GH-99729: until 3.11.2 callbacks could run above a frame whose code was being freed.
  if (minor == 11 && (std::strncmp(end, ".0", 2) == 0 || std::strncmp(end, ".1 ", 3) == 0 || std::strncmp(end, ".1+", 3) == 0)) {
    return "this Python shows frames while it takes them down (3.11.2 no longer does)";
  }
  switch (minor) {
    case 10: layout = layout_3_10; return nullptr;
    case 11: layout = layout_3_11; return nullptr;
    case 12: layout = layout_3_12; return nullptr;
    case 13: return from_debug_offsets(words_3_13, layout);
    case 14: return from_debug_offsets(words_3_14, layout);
    default: return "the frames of this version of Python are not known";
  }
}

bool is_hidden(const FrameLayout& layout, const FrameFunctions& functions, std::uint64_t code) {
  Object *name = nullptr, *file = nullptr;
  const DirectReader read;
  read(code + layout.code_name, name);
  read(code + layout.code_file, file);
  return text_is(functions, name, "__init__") && (text_is(functions, file, "") || text_is(functions, file, "__init__"));
}

bool verify_layout(const CPython& py, const FrameLayout& layout, const FrameFunctions& functions, void (*at_exit)()) {
  static MethodDefinition method{"check", check, method_fastcall, nullptr};
  static MethodDefinition ending_method{"ending", ending, method_fastcall, nullptr};
  if (py.main_interpreter == nullptr) return false;
  python = &py;
  verified_layout = &layout;
  verified_functions = &functions;
  call_at_exit = at_exit;
  bool verified = false;
  Object* globals = py.new_dict();
  Object* function = py.new_function(&method, nullptr, nullptr);
  Object* exit_function = py.new_function(&ending_method, nullptr, nullptr);
  Object* code = py.compile(script, "<liveset>", file_input);
  if (globals != nullptr && function != nullptr && exit_function != nullptr && code != nullptr &&
      py.dict_set(globals, "__builtins__", py.builtins()) == 0 && py.dict_set(globals, "check", function) == 0 &&
      py.dict_set(globals, "ending", exit_function) == 0) {
    Object* nothing = py.evaluate(code, globals, globals);
    if (nothing != nullptr) py.decrease(nothing);
    Object* result = py.error() == nullptr ? py.dict_get(globals, "result") : nullptr;
    verified = result != nullptr && py.integer(result) == 1;
  }
  for (Object* object : {globals, function, exit_function, code}) {
    if (object != nullptr) py.decrease(object);
  }
  if (py.error() != nullptr) py.clear_error();
  return verified;
}

}  // namespace liveset::python
