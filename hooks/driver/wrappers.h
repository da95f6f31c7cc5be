// The functions that stand before those of calls.h, and the ways in which they come between: by being exported, and by being given
// out where somebody looks a function up.
#pragma once
#include "hooks/driver/calls.h"

namespace liveset::driver {

// Kernel launches are looked at only when they are asked for (LIVESET_KERNELS=launches).
bool kernels_wanted();
inline bool is_launch(Meaning meaning) {
  return meaning == Meaning::launch || meaning == Meaning::launch_config || meaning == Meaning::unload;
}
inline bool is_wanted(int row) { return !is_launch(rows[row].meaning) || kernels_wanted(); }

// Our exported function of that name.
void* exported(int row);
// What to give out instead of `real`. `real` itself when it is one of ours already, or when two other functions of that name were seen:
// then its calls are not.
void* wrap(int row, void* real);

}  // namespace liveset::driver
