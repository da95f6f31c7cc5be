// cuFFT: plans are numbers. Work areas are answered as 0 by the generated bodies, an assumption.
#include <atomic>

#include "hooks/standin/libraries/library.h"

using standin::success;

namespace {

int new_plan(int* plan) {
  static std::atomic<int> plans{0};
  if (!plan) return 4;  // invalid value
  *plan = ++plans;
  return success;
}

}  // namespace

extern "C" {

int cufftGetVersion(int* version) { return standin::answer_release(1000, version); }
int cufftGetProperty(int property, int* value) { return standin::answer_property(property, value); }
int cufftCreate(int* plan) { return new_plan(plan); }
int cufftPlan1d(int* plan, int, int, int) { return new_plan(plan); }
int cufftPlan2d(int* plan, int, int, int) { return new_plan(plan); }
int cufftPlan3d(int* plan, int, int, int, int) { return new_plan(plan); }
int cufftPlanMany(int* plan, int, int*, int*, int, int, int*, int, int, int, int) { return new_plan(plan); }
int cufftDestroy(int) { return success; }

}  // extern "C"
