// A fake libtorch_cpu.so: the functions that hooks/autograd stands before, called through its own table of symbols as torch does,
// around nodes that keep what they are told in places of this library's choosing.
#include "tests/support/fake_torch/fake_torch.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

namespace torch::autograd {

struct GraphTask {};
struct InputBuffer {};
struct ReadyQueue {};

struct Engine {
  void evaluate_function(std::shared_ptr<GraphTask>& task, Node* node, InputBuffer& inputs, const std::shared_ptr<ReadyQueue>& queue);
};

Node::~Node() = default;

void Engine::evaluate_function(std::shared_ptr<GraphTask>&, Node* node, InputBuffer&, const std::shared_ptr<ReadyQueue>&) { node->apply(); }

void run(Node& node) {
  Engine engine;
  auto task = std::make_shared<GraphTask>();
  InputBuffer inputs;
  const auto queue = std::make_shared<ReadyQueue>();
  engine.evaluate_function(task, &node, inputs, queue);
}

}  // namespace torch::autograd

namespace c10d {

class Reducer {
 public:
  void initialize_buckets(std::vector<std::vector<std::size_t>> indices);
  struct Bucket {
    void* gradients = nullptr;
  };
  void all_reduce_bucket(Bucket& bucket);
  void (*allocate)(std::size_t bytes) = nullptr;
};

void Reducer::initialize_buckets(std::vector<std::vector<std::size_t>> indices) {
  for (const auto& bucket : indices) {
    if (bucket.empty()) throw std::invalid_argument("an empty bucket");
    allocate(bucket.size() * 64);
  }
}

void Reducer::all_reduce_bucket(Bucket&) {}

void make_buckets(std::vector<std::vector<std::size_t>> indices, void (*allocate)(std::size_t bytes)) {
  Reducer reducer;
  reducer.allocate = allocate;
  reducer.initialize_buckets(std::move(indices));
  Reducer::Bucket bucket;
  reducer.all_reduce_bucket(bucket);
  reducer.all_reduce_bucket(bucket);
}

void reduce_for_two_models() {
  Reducer first, second;
  Reducer::Bucket bucket;
  first.all_reduce_bucket(bucket);
  second.all_reduce_bucket(bucket);
  first.all_reduce_bucket(bucket);
}

}  // namespace c10d
