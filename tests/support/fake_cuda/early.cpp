// A library whose constructor uses CUDA, which may be before the preload's own has run; and, as a program, its user.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {
int cudaMalloc(std::uint64_t* out, std::uint64_t bytes);
int take_memory(std::uint64_t* out, std::uint64_t bytes);
}

#ifdef FAKE_EARLY_LIBRARY
namespace {

struct Early {
  Early() {
    std::uint64_t address = 0;
    if (dlsym(RTLD_DEFAULT, "cudaMalloc") == nullptr || dlsym(RTLD_DEFAULT, "strlen") == nullptr) std::abort();
    if (cudaMalloc(&address, 1) != 0) std::abort();
  }
} early;

}  // namespace

int take_memory(std::uint64_t* out, std::uint64_t bytes) { return cudaMalloc(out, bytes); }
#else
int main() {
  std::uint64_t address = 0;
  const int error = take_memory(&address, 100);
  std::printf("%llx\n", static_cast<unsigned long long>(address));
  return error;
}
#endif
