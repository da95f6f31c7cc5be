#include "hooks/python/install.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#include "hooks/core/old_symbols.h"
#include "hooks/core/recorder.h"
#include "hooks/python/cpython.h"
#include "hooks/python/frames.h"
#include "hooks/python/native.h"

namespace liveset::python {

namespace {

bool shim_wanted = true;

// torch may report its first block while it is still being imported; then the interpreter is asked again after more
// blocks, at growing distance, so that a process that never has a whole torch is not called back all the time.
std::uint32_t events = 0;
std::uint32_t next_ask = 0;
bool asked = false;

// Runs in the main thread with the GIL. `directory` and `native` are its globals; it leaves its answer in `result`:
// "wait" when torch is not whole yet, "" when the shim is installed, otherwise why it is not.
constexpr const char* bootstrap = R"(
def load(directory, native):
    import sys
    torch = sys.modules.get("torch")
    spec = getattr(torch, "__spec__", None)
    if spec is None or getattr(spec, "_initializing", False):
        return "wait"
    from importlib import util
    name = "_liveset_shim"
    spec = util.spec_from_file_location(name, directory + "/__init__.py", submodule_search_locations=[directory])
    shim = util.module_from_spec(spec)
    sys.modules[name] = shim
    try:
        spec.loader.exec_module(shim)
        shim.install(torch, native)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return ""
try:
    result = load(directory, native)
except Exception as error:
    result = f"the Python hooks were not installed: {type(error).__name__}: {error}"
)";

// The shim lies in a folder beside this library: DIR/liveset/python/liveset_shim in a build folder and where the
// library is installed as lib/, DIR/python/liveset_shim where it is installed as lib/liveset/.
bool find_shim(char* path, std::size_t capacity) {
  Dl_info self;
  static const char anchor = 0;
  if (dladdr(&anchor, &self) == 0 || self.dli_fname == nullptr) return false;
  const char* slash = std::strrchr(self.dli_fname, '/');
  const std::size_t length = slash == nullptr ? 0 : static_cast<std::size_t>(slash - self.dli_fname) + 1;
  for (const char* folder : {"liveset/python/liveset_shim", "python/liveset_shim"}) {
    if (length + std::strlen(folder) + sizeof "/__init__.py" > capacity) return false;
    std::memcpy(path, self.dli_fname, length);
    std::strcpy(path + length, folder);
    const std::size_t end = std::strlen(path);
    std::strcpy(path + end, "/__init__.py");
    const bool exists = access(path, R_OK) == 0;
    path[end] = '\0';
    if (exists) return true;
  }
  return false;
}

void declare_without_shim(const char* why) { core::declare_source("python", "", "nothing", why); }

void run_bootstrap(const CPython& py) {
  char directory[4096];
  const bool found = find_shim(directory, sizeof directory);
  find_frames(py, found ? directory : "");
  if (!found) {
    __atomic_store_n(&shim_wanted, false, __ATOMIC_RELAXED);
    declare_without_shim("the Python hooks' files are missing beside the preloaded library");
    return;
  }
  Object* globals = py.new_dict();
  Object* native = make_native(py);
  Object* path = py.new_string(directory);
  Object* code = py.compile(bootstrap, "<liveset>", file_input);
  if (globals != nullptr && native != nullptr && path != nullptr && code != nullptr &&
      py.dict_set(globals, "__builtins__", py.builtins()) == 0 && py.dict_set(globals, "directory", path) == 0 &&
      py.dict_set(globals, "native", native) == 0) {
    Object* nothing = py.evaluate(code, globals, globals);
    if (nothing != nullptr) py.decrease(nothing);
    Object* result = py.error() == nullptr ? py.dict_get(globals, "result") : nullptr;
    const char* text = result != nullptr ? py.string_text(result, nullptr) : "the Python hooks were interrupted while they were installed";
    if (text == nullptr || std::strcmp(text, "wait") != 0) __atomic_store_n(&shim_wanted, false, __ATOMIC_RELAXED);
    if (text != nullptr && text[0] != '\0' && std::strcmp(text, "wait") != 0) declare_without_shim(text);
  }
  for (Object* object : {globals, native, path, code}) {
    if (object != nullptr) py.decrease(object);
  }
}

// Pending calls run when no exception is set; one that we left behind would be raised in the job, so none is left.
int pending_call(void*) {
  const CPython& py = *cpython();
  const bool main = py.this_interpreter == nullptr || py.main_interpreter == nullptr || py.this_interpreter() == py.main_interpreter();
  if (core::recording() && main) {
    run_bootstrap(py);
    if (py.error() != nullptr) py.clear_error();
  }
  __atomic_store_n(&asked, false, __ATOMIC_RELEASE);
  return 0;
}

}  // namespace

bool ask_interpreter() {
  if (!__atomic_load_n(&shim_wanted, __ATOMIC_RELAXED)) return false;
  const std::uint32_t event = __atomic_fetch_add(&events, 1, __ATOMIC_RELAXED);
  if (event < __atomic_load_n(&next_ask, __ATOMIC_RELAXED)) return true;
  if (__atomic_exchange_n(&asked, true, __ATOMIC_ACQUIRE)) return true;
  __atomic_store_n(&next_ask, event + event / 2 + 1, __ATOMIC_RELAXED);
  const CPython* py = cpython();
  if (py == nullptr) {
    __atomic_store_n(&shim_wanted, false, __ATOMIC_RELAXED);
    return false;
  }
  if (py->is_initialized() == 0 || py->add_pending_call(pending_call, nullptr) != 0) {
    __atomic_store_n(&asked, false, __ATOMIC_RELEASE);
  }
  return true;
}

std::uint32_t reports_so_far() { return __atomic_load_n(&events, __ATOMIC_RELAXED); }

void say_exiting() {
  say_frames_exiting();
  if (reports_so_far() == 0 || !__atomic_load_n(&shim_wanted, __ATOMIC_RELAXED)) return;
  declare_without_shim("the Python hooks were not installed: the main thread ran no Python code after torch's first block");
}

}  // namespace liveset::python
