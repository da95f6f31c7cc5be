// A fake libtorch_cpu.so: the functions that hooks/autograd stands before, called through its own table of symbols as torch does,
// around nodes that keep what they are told in places of this library's choosing.
#include "tests/support/fake_torch/fake_torch.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace at {
struct Tensor {};
}  // namespace at

namespace torch::autograd {

struct GraphTask {};
struct InputBuffer {};
struct ReadyQueue {};

struct Engine {
  void evaluate_function(std::shared_ptr<GraphTask>& task, Node* node, InputBuffer& inputs, const std::shared_ptr<ReadyQueue>& queue);
};

Node::~Node() = default;

void validate_outputs(const std::vector<Edge>& edges, std::vector<at::Tensor>& gradients,
                      const std::function<std::string(const std::string&)>& message);

void Engine::evaluate_function(std::shared_ptr<GraphTask>&, Node* node, InputBuffer&, const std::shared_ptr<ReadyQueue>&) {
  node->apply();
  std::vector<at::Tensor> gradients;
  validate_outputs(node->edges, gradients, [](const std::string& message) { return message; });
}

void validate_outputs(const std::vector<Edge>& edges, std::vector<at::Tensor>&, const std::function<std::string(const std::string&)>&) {
  edges.front().node->sum_to_shape();
}

void begin_with(Node& node) {
  std::vector<at::Tensor> gradients;
  validate_outputs({{&node}}, gradients, [](const std::string& message) { return message; });
}

void run(Node& node) {
  Engine engine;
  auto task = std::make_shared<GraphTask>();
  InputBuffer inputs;
  const auto queue = std::make_shared<ReadyQueue>();
  engine.evaluate_function(task, &node, inputs, queue);
}

}  // namespace torch::autograd

namespace c10 {
TensorImpl::~TensorImpl() = default;
OtherImpl::~OtherImpl() = default;
}  // namespace c10

// torch's C interface; a tensor is one pointer to its implementation.
namespace {
std::int32_t give(c10::TensorImpl* const* tensor, auto c10::TensorImpl::*what, auto* out) {
  *out = static_cast<std::remove_pointer_t<decltype(out)>>((*tensor)->*what);
  return 0;
}
}  // namespace
extern "C" {
std::int32_t torch_get_const_data_ptr(c10::TensorImpl** tensor, std::uint64_t* out) { return give(tensor, &c10::TensorImpl::data, out); }
std::int32_t aoti_torch_get_storage_offset(c10::TensorImpl** tensor, std::int64_t* out) {
  return give(tensor, &c10::TensorImpl::offset, out);
}
std::int32_t aoti_torch_get_storage_size(c10::TensorImpl** tensor, std::int64_t* out) {
  return give(tensor, &c10::TensorImpl::storage_bytes, out);
}
std::int32_t aoti_torch_get_dtype(c10::TensorImpl** tensor, std::int32_t* out) { return give(tensor, &c10::TensorImpl::dtype, out); }
std::int32_t aoti_torch_get_device_type(c10::TensorImpl** tensor, std::int32_t* out) {
  return give(tensor, &c10::TensorImpl::device_type, out);
}
std::int32_t aoti_torch_get_device_index(c10::TensorImpl** tensor, std::int32_t* out) {
  return give(tensor, &c10::TensorImpl::device_index, out);
}
}

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
