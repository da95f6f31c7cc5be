// Names of native frames, from the symbol tables of the files on this machine whose build id is the one that the trace states.
#pragma once
#include <chrono>

#include "viewer/trace/records.h"

namespace liveset::trace {

struct Symbols {
  std::uint64_t frames = 0, named = 0;  // native ones
  std::uint64_t files_missing = 0;      // not there, or not the ones that ran
  bool out_of_time = false;
};
// Fills in the functions of native frames, those of the files with the most frames first, until `budget` is used up.
Symbols name_native_frames(Dictionary& dictionary, std::chrono::milliseconds budget);

}  // namespace liveset::trace
