#include "hooks/standin/driver/python_stack.h"

#include <dlfcn.h>

#include <cstring>

namespace standin {
namespace {

// The interpreter's functions that every Python since 3.9 has; null members: there is no such interpreter in this process.
struct Python {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;  // since 3.13 public, before that with an underscore
  int (*holds_lock)() = nullptr;
  void* (*own_thread)() = nullptr;
  int (*take_lock)() = nullptr;
  void (*give_lock)(int) = nullptr;
  void* (*frame_of)(void*) = nullptr;
  void* (*back)(void*) = nullptr;
  void* (*code_of)(void*) = nullptr;
  int (*line_of)(void*) = nullptr;
  void* (*attribute)(void*, const char*) = nullptr;
  const char* (*text_of)(void*) = nullptr;
  void (*release)(void*) = nullptr;
  void (*fetch_error)(void**, void**, void**) = nullptr;
  void (*restore_error)(void*, void*, void*) = nullptr;
  bool complete = false;

  Python() {
    complete = find(is_initialized, "Py_IsInitialized") &&
               (find(is_finalizing, "Py_IsFinalizing") || find(is_finalizing, "_Py_IsFinalizing")) &&
               find(holds_lock, "PyGILState_Check") && find(own_thread, "PyGILState_GetThisThreadState") &&
               find(take_lock, "PyGILState_Ensure") && find(give_lock, "PyGILState_Release") && find(frame_of, "PyThreadState_GetFrame") &&
               find(back, "PyFrame_GetBack") && find(code_of, "PyFrame_GetCode") && find(line_of, "PyFrame_GetLineNumber") &&
               find(attribute, "PyObject_GetAttrString") && find(text_of, "PyUnicode_AsUTF8") && find(release, "Py_DecRef") &&
               find(fetch_error, "PyErr_Fetch") && find(restore_error, "PyErr_Restore");
  }

  template <class Function>
  static bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  }
};

// The frame's place; takes over the reference to the frame.
std::string place_of(const Python& python, void* frame) {
  void* code = python.code_of(frame);
  auto text = [&](const char* name) -> std::string {
    void* object = python.attribute(code, name);
    const char* found = object ? python.text_of(object) : nullptr;
    std::string result = found ? found : "?";
    if (object) python.release(object);
    return result;
  };
  auto result = text("co_filename") + ":" + std::to_string(python.line_of(frame)) + " " + text("co_name");
  python.release(code);
  return result;
}

std::vector<std::string> walk(const Python& python) {
  constexpr std::size_t most = 8;
  std::vector<std::string> result;
  void *type = nullptr, *value = nullptr, *traceback = nullptr;
  python.fetch_error(&type, &value, &traceback);
  for (void* frame = python.frame_of(python.own_thread()); frame != nullptr;) {
    if (result.size() < most) result.push_back(place_of(python, frame));
    void* caller = result.size() < most ? python.back(frame) : nullptr;
    python.release(frame);
    frame = caller;
  }
  python.restore_error(type, value, traceback);
  return result;
}

}  // namespace

std::vector<std::string> python_stack(bool may_wait) {
  static const auto* python = new Python;
  if (!python->complete || !python->is_initialized() || python->is_finalizing() || python->own_thread() == nullptr) return {};
  if (python->holds_lock()) return walk(*python);
  if (!may_wait) return {};
  const int state = python->take_lock();
  auto result = walk(*python);
  python->give_lock(state);
  return result;
}

}  // namespace standin
