// Another preload that hooks dlsym, as tools that share a GPU do. It counts what it is asked for, and says so at the end.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace {

int asked = 0;

struct AtEnd {
  ~AtEnd() { std::printf("other hook: %d\n", asked); }
} at_end;

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) {
  using Dlsym = void* (*)(void*, const char*);
  static const auto real = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", OLDEST_DLSYM));
  asked += std::strcmp(name, "cuGetProcAddress_v2") == 0;
  return real(handle, name);
}
