// A communicator of the stand-in NCCL, shared by nccl.cpp (life of communicators) and nccl_collectives.cpp.
#pragma once
#include <cstddef>

namespace standin::nccl {

constexpr int invalid_argument = 4;

struct Communicator {
  int ranks;
  int rank;
  int device;
  // A split's number of members is known to the other ranks' colours only. Then `ranks` is the parent's, and a collective fills no more
  // than this rank's part of a result.
  bool ranks_known;
};

}  // namespace standin::nccl
