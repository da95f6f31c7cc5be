#include "hooks/autograd/torch_function.h"

#include <dlfcn.h>

#include <cerrno>

#include "hooks/core/old_symbols.h"

namespace liveset::autograd {
namespace {

void* function_in(const char* library, const char* name) {
  void* handle = library != nullptr ? dlopen(library, RTLD_NOLOAD | RTLD_LAZY) : nullptr;
  if (handle == nullptr) return nullptr;
  void* found = dlsym(handle, name);
  dlclose(handle);
  return found;
}

}  // namespace

// RTLD_NEXT does not find libraries that Python loaded with RTLD_LOCAL.
void* torch_function(const char* name, const void* caller) {
  const int error = errno;
  void* found = function_in("libtorch_cpu.so", name);
  Dl_info library;
  if (found == nullptr && caller != nullptr && dladdr(caller, &library) != 0) found = function_in(library.dli_fname, name);
  errno = error;
  return found;
}

}  // namespace liveset::autograd
