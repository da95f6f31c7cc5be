// NCCL: collectives, which act as if every rank held this rank's data. Sums of small results are computed, so that counts (of tokens, of
// ranks) come out as they would; larger ones are copied, because their values are not real in a dry run anyway. Sizes are always true.
#include <cmath>
#include <cstring>
#include <vector>

#include "hooks/standin/libraries/library.h"
#include "hooks/standin/libraries/nccl_communicator.h"

using namespace standin;
using namespace standin::nccl;

namespace {

constexpr std::size_t computed_bytes = 4096;

enum DataType { int8 = 0, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16, float8_e4m3, float8_e5m2, data_types };
enum Operation { operation_sum = 0, operation_product = 1 };  // maximum, minimum and mean of equal values are the value

std::size_t element_bytes(int type) {
  constexpr std::size_t bytes[data_types] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < data_types ? bytes[type] : 1;
}

template <class Value>
void reduce_values(std::vector<char>& data, int operation, int ranks) {
  for (std::size_t at = 0; at + sizeof(Value) <= data.size(); at += sizeof(Value)) {
    Value value;
    std::memcpy(&value, &data[at], sizeof value);
    Value result = value;
    for (int i = 1; i < ranks; i++) result = static_cast<Value>(operation == operation_sum ? result + value : result * value);
    std::memcpy(&data[at], &result, sizeof result);
  }
}

bool is_computed(int type, int operation, std::size_t bytes) {
  const bool known_type = type == int32 || type == uint32 || type == int64 || type == uint64 || type == float32 || type == float64;
  return known_type && bytes <= computed_bytes && (operation == operation_sum || operation == operation_product);
}

// `bytes` from one device buffer to another, reduced with as many equal ones as there are ranks.
void reduce(void* to, const void* from, std::size_t bytes, int type, int operation, const Communicator& communicator) {
  if (!is_computed(type, operation, bytes) || !communicator.ranks_known) {
    if (to != from) liveset_standin_copy(to, from, bytes);
    return;
  }
  std::vector<char> data(bytes);
  liveset_standin_copy(data.data(), from, bytes);
  switch (type) {
    case int32: reduce_values<std::int32_t>(data, operation, communicator.ranks); break;
    case uint32: reduce_values<std::uint32_t>(data, operation, communicator.ranks); break;
    case int64: reduce_values<std::int64_t>(data, operation, communicator.ranks); break;
    case uint64: reduce_values<std::uint64_t>(data, operation, communicator.ranks); break;
    case float32: reduce_values<float>(data, operation, communicator.ranks); break;
    default: reduce_values<double>(data, operation, communicator.ranks); break;
  }
  liveset_standin_copy(to, data.data(), bytes);
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (to != from) liveset_standin_copy(to, from, bytes);
}

char* part(void* buffer, int index, std::size_t bytes) { return static_cast<char*>(buffer) + static_cast<std::size_t>(index) * bytes; }
const char* part(const void* buffer, int index, std::size_t bytes) {
  return static_cast<const char*>(buffer) + static_cast<std::size_t>(index) * bytes;
}

// Every rank's part of `to` becomes `from`.
void gather(void* to, const void* from, std::size_t bytes, const Communicator& communicator) {
  const int first = communicator.ranks_known ? 0 : communicator.rank;
  const int end = communicator.ranks_known ? communicator.ranks : communicator.rank + 1;
  for (int i = first; i < end; i++) copy(part(to, i, bytes), from, bytes);
}

// Sends and receives meet at the end of their group. With equal data, what any rank sends to this one is what it sends to itself.
struct Group {
  int depth = 0;
  const void* sent_to_self = nullptr;
  std::size_t sent_bytes = 0;
  struct Receipt {
    void* buffer;
    std::size_t bytes;
  };
  std::vector<Receipt> receipts;

  void finish() {
    for (const Receipt& receipt : receipts) {
      if (sent_to_self && receipt.bytes == sent_bytes) copy(receipt.buffer, sent_to_self, sent_bytes);
    }
    *this = {};
  }
};
thread_local Group group;

}  // namespace

extern "C" {

int ncclGroupStart() {
  group.depth++;
  return success;
}
int ncclGroupEnd() {
  if (group.depth == 0) return invalid_argument;
  if (--group.depth == 0) group.finish();
  return success;
}

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclAllReduce");
  reduce(to, from, count * element_bytes(type), type, operation, *communicator);
  return success;
}

int ncclReduce(const void* from, void* to, std::size_t count, int type, int operation, int root, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclReduce");
  if (root == communicator->rank) reduce(to, from, count * element_bytes(type), type, operation, *communicator);
  return success;
}

int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int operation, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclReduceScatter");
  const std::size_t bytes = count * element_bytes(type);
  reduce(to, part(from, communicator->rank, bytes), bytes, type, operation, *communicator);
  return success;
}

int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclBroadcast");
  if (from) copy(to, from, count * element_bytes(type));
  return success;
}
int ncclBcast(void*, std::size_t, int, int, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclBcast");
  return success;  // in place
}

int ncclAllGather(const void* from, void* to, std::size_t count, int type, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclAllGather");
  gather(to, from, count * element_bytes(type), *communicator);
  return success;
}

int ncclAlltoAll(const void* from, void* to, std::size_t count, int type, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclAlltoAll");
  const std::size_t bytes = count * element_bytes(type);
  gather(to, part(from, communicator->rank, bytes), bytes, *communicator);
  return success;
}

int ncclGather(const void* from, void* to, std::size_t count, int type, int root, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclGather");
  if (root == communicator->rank) gather(to, from, count * element_bytes(type), *communicator);
  return success;
}

int ncclScatter(const void* from, void* to, std::size_t count, int type, int root, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclScatter");
  const std::size_t bytes = count * element_bytes(type);
  if (root == communicator->rank) copy(to, part(from, root, bytes), bytes);
  return success;
}

int ncclSend(const void* from, std::size_t count, int type, int peer, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclSend");
  if (peer == communicator->rank) {
    group.sent_to_self = from;
    group.sent_bytes = count * element_bytes(type);
  }
  return success;
}

int ncclRecv(void* to, std::size_t count, int type, int, Communicator* communicator, void*) {
  if (!communicator) return invalid_argument;
  liveset_standin_estimate("collective", "ncclRecv");
  if (group.depth > 0) group.receipts.push_back({to, count * element_bytes(type)});
  return success;
}

// The factor of such a sum is not applied: with 1/ranks, as PyTorch uses it, the result of equal data is the data.
int ncclRedOpCreatePreMulSum(int* operation, void*, int, int, Communicator* communicator) {
  if (!communicator) return invalid_argument;
  answer(operation, 5);  // the first number that is no built-in operation
  return success;
}
int ncclRedOpDestroy(int, Communicator* communicator) { return communicator ? success : invalid_argument; }

}  // extern "C"
