// Copies of boxes, as streams and nodes of graphs have them.
#pragma once
#include "hooks/standin/driver/state.h"

namespace standin {

// A copy with its places worked out. An array's contents could be read by textures alone, which no stand-in has: a copy to or from one
// does nothing.
struct BoxCopy {
  Memory* memory = nullptr;  // null: nothing to do
  Address from = 0, to = 0;
  std::size_t from_pitch = 0, to_pitch = 0, from_plane = 0, to_plane = 0;
  std::size_t width = 0, height = 0, depth = 0;

  void operator()() const;
};

// Counts a copy to the host as a read of the device.
Error plan(Machine& all, const Copy3D& box, BoxCopy* copy);

}  // namespace standin
