#include "tests/unit/standin/libraries/fake_driver.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "hooks/standin/interface.h"

namespace {
std::map<std::string, int> estimates;
}

std::map<std::string, int> take_estimates() { return std::exchange(estimates, {}); }

extern "C" {

// Of the library under test, as hooks/standin/generate.py makes them.
extern const int liveset_standin_family = 13;
extern const int liveset_standin_release[4] = {9, 24, 3, 0};

void liveset_standin_estimate(const char* what, const char* detail) { estimates[std::string(what) + ": " + detail]++; }
std::int64_t liveset_standin_number(const char*, std::int64_t absent) { return absent; }
int liveset_standin_device() { return 0; }
void liveset_standin_copy(void* to, const void* from, std::size_t bytes) { std::memmove(to, from, bytes); }

int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
  *address = reinterpret_cast<std::uint64_t>(std::malloc(bytes));
  return 0;
}
int cuMemFree_v2(std::uint64_t address) {
  std::free(reinterpret_cast<void*>(address));
  return 0;
}

}  // extern "C"
