// The graph of a backward, walked without an object of Python's for each node and slot: in a training step, where a node's memory
// was last touched long ago, that is most of what a walk costs.
//
// Two things are learned from what Python says of nodes, as their places differ between versions of torch: where a node has its
// edges, and where a node of a class has its slots. What is not known yet, or is anything but a plain tensor that was saved as it is
// (packed by a hook, freed, written in Python), is left to Python.
#pragma once
#include <cstdint>

namespace liveset::autograd {

// The C++ node of a PyObject that torch made of it, and where in that object its smart pointer stands.
inline void** node_in(void* object) { return static_cast<void**>(object) + 2; }

class EdgePlace {
 public:
  // `node` has edges to `following`, in this order and to nothing else. It is read in a way that cannot fault.
  void learn(std::uint64_t node, const std::uint64_t* following, std::uint32_t count);
  bool known() const { return word_ > 0; }
  bool open() const { return word_ == 0; }
  // Smart pointers to the nodes that follow: `count` of them, `stride` bytes apart. Only while known.
  const char* edges(const void* node, std::uint64_t& count) const {
    const auto* words = static_cast<const std::uint64_t*>(node);
    count = (words[word_ + 1] - words[word_]) / stride_;
    return reinterpret_cast<const char*>(words[word_]);
  }
  std::uint32_t stride() const { return stride_; }

 private:
  static constexpr std::uint32_t first_word = 1, last_word = 20, enough = 8;
  static constexpr std::int32_t given_up = -1;

  std::int32_t word_ = 0;  // only under Python's lock, as all here
  std::uint32_t stride_ = 0;
  std::uint32_t candidates_ = ((1U << (last_word + 1)) - 1) & ~((1U << first_word) - 1);
  std::uint32_t learned_ = 0;
  bool several_ = false;  // edges of one node were among what was learned
};

// What all nodes of a C++ class have in common.
struct NodeClass {
  static constexpr std::uint32_t most_slots = 8;

  const void* table = nullptr;  // of its virtual functions; null: no class
  std::uint32_t name = 0;       // ids of strings
  std::uint32_t slots = 0;
  std::uint32_t slot_names[most_slots] = {};
  std::uint16_t slot_offsets[most_slots] = {};  // bytes from the node to its torch::autograd::SavedVariable
};

class NodeClasses {
 public:
  // Whether there was room.
  bool add(const NodeClass& added);
  const NodeClass* find(const void* table) const;

 private:
  static constexpr std::uint32_t most = 512;  // a power of 2; half of it is used

  NodeClass classes_[most];
  std::uint32_t count_ = 0;
};

// The nodes below some roots, each once.
class Reachable {
 public:
  // Walks from there, over nodes that were not met since begin(). `node`: where a smart pointer to it stands. False: no memory left.
  bool add(void* const* node, const EdgePlace& edges);
  bool begin();
  void end();  // the nodes are no longer asked for
  std::uint64_t count() const { return count_; }
  void* const* operator[](std::uint64_t index) const { return nodes_[index]; }
  // Puts one of them in the place of another before it.
  void keep(std::uint64_t place, std::uint64_t index) { nodes_[place] = nodes_[index]; }

 private:
  struct Met {
    void* node;
    std::uint64_t round;
  };
  bool grow();
  bool meet(void* node);

  // Kept from walk to walk.
  void* const** nodes_ = nullptr;
  Met* met_ = nullptr;
  std::uint64_t capacity_ = 0, count_ = 0, round_ = 0;
};

}  // namespace liveset::autograd
