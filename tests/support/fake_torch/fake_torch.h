// What the fake libtorch_cpu.so (libtorch_cpu.cpp beside this file) shows to its jobs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace torch::autograd {

struct Node;
struct Edge {
  Node* node;
};

struct Node {
  explicit Node(std::uint64_t number) : sequence_number(number), edges{{this}} {}
  virtual ~Node();
  virtual void apply() = 0;
  virtual void sum_to_shape() {}
  std::uint64_t other = 7;
  std::uint64_t sequence_number;
  std::vector<Edge> edges;  // in torch they lead to other nodes
};

// As the engine runs a node, and as it begins with one.
void run(Node& node);
void begin_with(Node& node);

}  // namespace torch::autograd

namespace c10 {

struct TensorImpl {
  virtual ~TensorImpl();
  std::uint64_t data = 0;   // where its first element is
  std::int64_t offset = 0;  // of that in the storage, in elements
  std::int64_t storage_bytes = 0;
  std::int32_t dtype = 6, device_type = 0, device_index = -1;
  void* object = nullptr;  // of Python
};
struct OtherImpl : TensorImpl {
  ~OtherImpl() override;
};

}  // namespace c10

namespace c10d {

// Makes buckets and reduces two of them.
void make_buckets(std::vector<std::vector<std::size_t>> indices, void (*allocate)(std::size_t bytes));

// Two models that live at once: one reduces a bucket, the other one, and the first its second.
void reduce_for_two_models();

}  // namespace c10d
