#include "hooks/driver/wrappers.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "hooks/driver/call.h"

namespace liveset::driver {
namespace {

constexpr int no_device = 100;  // the error of the driver and of the runtime where there is no CUDA
// A process has one driver; a second hook of it, or a stub beside the real function, is the second one.
constexpr int places = 2;
constexpr int by_caller = -1;  // exported: the real function is the one that the calling library would have had

constinit std::atomic<void*> given_out[row_count][places] = {};

void take_word(Word* out, Word word) { *out = word; }
template <class Other>
void take_word(Word*, const Other&) {}

template <int row, int place, class... Arguments>
int pass(const void* caller, Arguments... arguments) {
  Call call;
  call.row = row;
  call.caller = caller;
  void* found =
      place == by_caller ? behind_us(row, library_of(caller)) : given_out[row][place < 0 ? 0 : place].load(std::memory_order_relaxed);
  call.real = found;
  const auto real = reinterpret_cast<int (*)(Arguments...)>(found);
  if (real == nullptr) return no_device;
  int position = 0;
  (take_word(&call.words[position++], arguments), ...);
  if (!begin(call)) return real(arguments...);
  const int error = real(arguments...);
  end(call, error);
  return error;
}

template <int row, int place, class Shape>
struct Entrance;
template <int row, int place, class... Arguments>
struct Entrance<row, place, int(Arguments...)> {
  static int enter(Arguments... arguments) { return pass<row, place>(__builtin_return_address(0), arguments...); }
};

}  // namespace
}  // namespace liveset::driver

using liveset::driver::Extent;
using liveset::driver::IpcHandle;
using liveset::driver::Word;

// The exported functions. Each hands on where it was called from, which only it knows.
#define PASS(name, ...) \
  return liveset::driver::pass<liveset::driver::row_##name, liveset::driver::by_caller>(__builtin_return_address(0), __VA_ARGS__)
#define EXPORT_Words(name) \
  int name(Word a, Word b, Word c, Word d, Word e, Word f) { PASS(name, a, b, c, d, e, f); }
#define EXPORT_Launch(name)                                                                          \
  int name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k) { \
    PASS(name, a, b, c, d, e, f, g, h, i, j, k);                                                     \
  }
#define EXPORT_OpenIpc(name) \
  int name(Word a, IpcHandle b, Word c) { PASS(name, a, b, c); }
#define EXPORT_WithExtent(name) \
  int name(Word a, Extent b) { PASS(name, a, b); }
#define EXPORT_ArrayWithExtent(name) \
  int name(Word a, Word b, Extent c, Word d, Word e) { PASS(name, a, b, c, d, e); }
#define EXPORT(name, shape, ...) __attribute__((visibility("default"))) EXPORT_##shape(name)

extern "C" {
LIVESET_DRIVER_CALLS(EXPORT)
}

namespace liveset::driver {
namespace {

void* const exports[row_count] = {
#define LIVESET_EXPORTED(name, ...) reinterpret_cast<void*>(&name),
    LIVESET_DRIVER_CALLS(LIVESET_EXPORTED)
#undef LIVESET_EXPORTED
};

void* const entrances[row_count][places] = {
#define LIVESET_ENTRANCE(name, shape, ...) \
  {reinterpret_cast<void*>(&Entrance<row_##name, 0, shape>::enter), reinterpret_cast<void*>(&Entrance<row_##name, 1, shape>::enter)},
    LIVESET_DRIVER_CALLS(LIVESET_ENTRANCE)
#undef LIVESET_ENTRANCE
};

}  // namespace

bool kernels_wanted() {
  constexpr int unknown = 0, no = 1, yes = 2;
  static constinit std::atomic<int> answer{unknown};
  int known = answer.load(std::memory_order_relaxed);
  if (known == unknown) {
    const char* text = std::getenv("LIVESET_KERNELS");
    known = text != nullptr && std::strcmp(text, "launches") == 0 ? yes : no;
    answer.store(known, std::memory_order_relaxed);
  }
  return known == yes;
}

void* exported(int row) { return exports[row]; }

void* wrap(int row, void* real) {
  if (real == exports[row]) return real;
  for (int place = 0; place < places; ++place) {
    if (real == entrances[row][place]) return real;
  }
  for (int place = 0; place < places; ++place) {
    void* seen = given_out[row][place].load(std::memory_order_acquire);
    if (seen == nullptr && given_out[row][place].compare_exchange_strong(seen, real, std::memory_order_acq_rel)) {
      pin(real);
      seen = real;
    }
    if (seen == real) return entrances[row][place];
  }
  return real;
}

}  // namespace liveset::driver
