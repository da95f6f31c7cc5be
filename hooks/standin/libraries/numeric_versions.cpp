// Versions of cuRAND, cuSOLVER, cuSPARSELt and nvJitLink, whose other functions have generated bodies. Every library exports the ones of
// its own list; the rest stay hidden.
#include <cstring>

#include "hooks/standin/libraries/library.h"

extern "C" {

int curandGetVersion(int* version) { return standin::answer_release(1000, version); }
int curandGetProperty(int property, int* value) { return standin::answer_property(property, value); }
int cusolverGetVersion(int* version) { return standin::answer_release(1000, version); }
int cusolverGetProperty(int property, int* value) { return standin::answer_property(property, value); }
int cusparseLtGetVersion(const void*, int* version) { return standin::answer_release(1000, version); }
int cusparseLtGetProperty(int property, int* value) { return standin::answer_property(property, value); }
int nvJitLinkVersion(unsigned* major, unsigned* minor) {
  standin::answer(major, static_cast<unsigned>(liveset_standin_release[0]));
  standin::answer(minor, static_cast<unsigned>(liveset_standin_release[1]));
  return standin::success;
}

// Settings of the one algorithm that there is: all 0.
int cusparseLtMatmulAlgGetAttribute(const void*, const void*, int, void* value, std::size_t bytes) {
  if (value) std::memset(value, 0, bytes);
  return standin::success;
}

}  // extern "C"
