// NCCL: communicators. Every rank is alone with its own data, so making one needs no other process; under torchrun each process has its
// own. Memory that a real communicator takes for its channels is not modelled and said to be so.
#include <cstring>

#include "hooks/standin/libraries/library.h"
#include "hooks/standin/libraries/nccl_communicator.h"

using namespace standin;
using namespace standin::nccl;

extern "C" {
// The driver's functions by their exported names, so that whoever records the driver sees NCCL's allocations as NCCL's.
int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes);
int cuMemFree_v2(std::uint64_t address);
}

namespace {

constexpr int unhandled_cuda_error = 1;
constexpr int no_color = -1;

struct Identifier {
  char bytes[128];
};

int make(Communicator** communicator, int ranks, int rank, bool ranks_known = true) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return invalid_argument;
  if (create(communicator) != success) return invalid_argument;
  **communicator = {ranks, rank, liveset_standin_device(), ranks_known};
  liveset_standin_estimate("library_memory", "NCCL communicator");
  return success;
}

int release(Communicator* communicator) {
  std::free(communicator);
  return success;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) { return answer_release(10000, version); }
const char* ncclGetErrorString(int result) { return result == success ? "no error" : "invalid use of the stand-in NCCL"; }
const char* ncclGetLastError(Communicator*) { return ""; }

int ncclGetUniqueId(Identifier* identifier) {
  if (!identifier) return invalid_argument;
  std::memset(identifier, 1, sizeof *identifier);
  return success;
}
int ncclCommGetUniqueId(Communicator*, Identifier* identifier) { return ncclGetUniqueId(identifier); }

int ncclCommInitRank(Communicator** communicator, int ranks, Identifier, int rank) { return make(communicator, ranks, rank); }
int ncclCommInitRankConfig(Communicator** communicator, int ranks, Identifier, int rank, void*) { return make(communicator, ranks, rank); }
int ncclCommInitRankScalable(Communicator** communicator, int ranks, int rank, int, Identifier*, void*) {
  return make(communicator, ranks, rank);
}
int ncclCommInitAll(Communicator** communicators, int devices, const int* list) {
  for (int i = 0; i < devices; i++) {
    if (const int result = make(&communicators[i], devices, i)) return result;
    communicators[i]->device = list ? list[i] : i;
  }
  return success;
}

// PyTorch gives the rank within the new group as key.
int ncclCommSplit(Communicator* parent, int color, int key, Communicator** communicator, void*) {
  if (!parent || !communicator) return invalid_argument;
  *communicator = nullptr;
  if (color == no_color) return success;
  const int rank = key >= 0 && key < parent->ranks ? key : parent->rank;
  return make(communicator, parent->ranks, rank, false);
}
int ncclCommShrink(Communicator* parent, int* excluded, int count, Communicator** communicator, void*, int) {
  if (!parent || !communicator || count < 0) return invalid_argument;
  int rank = parent->rank;
  for (int i = 0; i < count; i++) {
    if (excluded[i] < parent->rank) rank--;
  }
  return make(communicator, parent->ranks - count, rank, parent->ranks_known);
}
int ncclCommGrow(Communicator* parent, int ranks, const Identifier*, int rank, Communicator** communicator, void*) {
  return make(communicator, ranks, parent ? parent->rank : rank);
}

int ncclCommFinalize(Communicator* communicator) { return communicator ? success : invalid_argument; }
int ncclCommDestroy(Communicator* communicator) { return release(communicator); }
int ncclCommAbort(Communicator* communicator) { return release(communicator); }
int ncclCommRevoke(Communicator* communicator, int) { return communicator ? success : invalid_argument; }
int ncclCommSuspend(Communicator* communicator, int) { return communicator ? success : invalid_argument; }
int ncclCommResume(Communicator* communicator) { return communicator ? success : invalid_argument; }

int ncclCommCount(const Communicator* communicator, int* ranks) {
  if (!communicator) return invalid_argument;
  answer(ranks, communicator->ranks);
  return success;
}
int ncclCommUserRank(const Communicator* communicator, int* rank) {
  if (!communicator) return invalid_argument;
  answer(rank, communicator->rank);
  return success;
}
int ncclCommCuDevice(const Communicator* communicator, int* device) {
  if (!communicator) return invalid_argument;
  answer(device, communicator->device);
  return success;
}
int ncclCommGetAsyncError(Communicator* communicator, int* error) {
  if (!communicator) return invalid_argument;
  answer(error, success);
  return success;
}

int ncclMemAlloc(void** address, std::size_t bytes) {
  std::uint64_t device_address = 0;
  if (!address) return invalid_argument;
  if (cuMemAlloc_v2(&device_address, bytes) != success) return unhandled_cuda_error;
  *address = reinterpret_cast<void*>(device_address);
  return success;
}
int ncclMemFree(void* address) {
  return cuMemFree_v2(reinterpret_cast<std::uint64_t>(address)) == success ? success : unhandled_cuda_error;
}

// A registration or window is known by the buffer's address.
int ncclCommRegister(const Communicator* communicator, void* buffer, std::size_t, void** handle) {
  if (!communicator) return invalid_argument;
  answer(handle, buffer);
  return success;
}
int ncclCommDeregister(const Communicator* communicator, void*) { return communicator ? success : invalid_argument; }
int ncclCommWindowRegister(Communicator* communicator, void* buffer, std::size_t, void** window, int) {
  if (!communicator) return invalid_argument;
  answer(window, buffer);
  return success;
}
int ncclCommWindowDeregister(Communicator* communicator, void*) { return communicator ? success : invalid_argument; }
int ncclWinGetUserPtr(Communicator*, void* window, void** buffer) {
  answer(buffer, window);
  return success;
}

}  // extern "C"
