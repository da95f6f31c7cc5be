// engine_job nodes | sums | buckets | two_models | time TURNS: a job on the fake libtorch_cpu.so.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "hooks/api/liveset.h"
#include "tests/support/fake_torch/fake_torch.h"

using torch::autograd::Node;

namespace torch::autograd {
namespace generated {
struct InnerBackward0 final : Node {
  using Node::Node;
  void apply() override {}
};
struct OuterBackward0 final : Node {
  using Node::Node;
  void apply() override {
    InnerBackward0 inner(5);
    run(inner);
  }
};
struct FailingBackward0 final : Node {
  using Node::Node;
  void apply() override {
    InnerBackward0 inner(6);
    run(inner);
    throw std::runtime_error("the job's own");
  }
};
}  // namespace generated

template <class T>
struct CppNode final : Node {
  using Node::Node;
  void apply() override {}
};
struct Mine {};
}  // namespace torch::autograd

namespace {

using namespace torch::autograd::generated;

liveset_heap heap;
char memory[4096];
std::size_t used = 0;

void allocate(std::size_t bytes) {
  liveset_alloc(heap, memory + used, bytes, 0);
  used += bytes;
}

void nodes() {
  OuterBackward0 outer(9);
  FailingBackward0 failing(8);
  torch::autograd::CppNode<torch::autograd::Mine> other(7);
  run(outer);
  try {
    run(failing);
  } catch (const std::runtime_error& error) {
    std::puts(error.what());
  }
  run(other);
}

struct SummingBackward0 final : Node {
  SummingBackward0(std::uint64_t number, std::size_t bytes, Node* root = nullptr) : Node(number), sum_bytes(bytes), inner_root(root) {}
  void apply() override {
    if (inner_root != nullptr) torch::autograd::begin_with(*inner_root);
    allocate(64);
  }
  void sum_to_shape() override {
    if (sum_bytes == 1) throw std::runtime_error("of no such shape");
    if (sum_bytes != 0) allocate(sum_bytes);
  }
  std::size_t sum_bytes;
  Node* inner_root;
};

// A root, a sum, none, one that fails, and a node after it in which another backward begins.
void sums() {
  heap = liveset_heap_open("cpu/fake", 0, 0);
  SummingBackward0 root(1, 32);
  torch::autograd::begin_with(root);
  std::uint64_t number = 9;
  for (const std::size_t bytes : {128, 0, 1, 0}) {
    SummingBackward0 node(number, bytes, number == 6 ? &root : nullptr);
    --number;
    try {
      run(node);
    } catch (const std::runtime_error& error) {
      std::puts(error.what());
    }
  }
}

// Deeper in the stack than the reducer's frames were.
__attribute__((noinline)) void allocate_further_down(std::size_t bytes) {
  char deep[65536];
  asm volatile("" : : "r"(deep) : "memory");
  allocate(bytes);
}

void two_models() {
  heap = liveset_heap_open("cpu/fake", 0, 0);
  c10d::reduce_for_two_models();
}

__attribute__((noinline)) void buckets() {
  heap = liveset_heap_open("cpu/fake", 0, 0);
  c10d::make_buckets({{1, 2}, {3}}, allocate);
  allocate(16);
  try {
    c10d::make_buckets({{1}, {}}, allocate);
  } catch (const std::invalid_argument& error) {
    std::puts(error.what());
    allocate_further_down(32);
  }
  allocate(48);
}

// The best of many short turns, with pauses in which the collector takes what there is.
void time(long turns) {
  constexpr long count = 2000;
  InnerBackward0 node(1);
  double best = 1e9;
  for (long turn = 0; turn < turns; ++turn) {
    const auto begin = std::chrono::steady_clock::now();
    for (long i = 0; i < count; ++i) run(node);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / static_cast<double>(count));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::printf("%.1f ns a node\n", best);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "nodes") == 0) {
    nodes();
  } else if (argc == 2 && std::strcmp(argv[1], "sums") == 0) {
    sums();
  } else if (argc == 2 && std::strcmp(argv[1], "buckets") == 0) {
    buckets();
  } else if (argc == 2 && std::strcmp(argv[1], "two_models") == 0) {
    two_models();
  } else if (argc == 3 && std::strcmp(argv[1], "time") == 0) {
    time(std::atol(argv[2]));
  } else {
    return 2;
  }
  return 0;
}
