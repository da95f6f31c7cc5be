#include "hooks/autograd/graph_walk.h"

#include <sys/mman.h>

#include <cstring>

#include "hooks/core/careful_memory.h"

namespace liveset::autograd {
namespace {

std::uint64_t mixed(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer) * 0x9E3779B97F4A7C15u >> 20; }

// Whether `count` edges from `begin` to `end` lead to these nodes; `stride`: 0 when it is to be found.
bool edges_lead_to(std::uint64_t begin, std::uint64_t end, const std::uint64_t* following, std::uint32_t count, std::uint32_t& stride) {
  constexpr std::uint64_t largest = 32;
  if (end <= begin || (end - begin) % count != 0) return false;
  const std::uint64_t found = (end - begin) / count;
  if (found < 16 || found > largest || found % 8 != 0 || (stride != 0 && stride != found)) return false;
  for (std::uint32_t index = 0; index < count; ++index) {
    std::uint64_t node = 0;
    if (!core::copy_memory(begin + index * found, &node, sizeof node) || node != following[index]) return false;
  }
  stride = static_cast<std::uint32_t>(found);
  return true;
}

}  // namespace

void EdgePlace::learn(std::uint64_t node, const std::uint64_t* following, std::uint32_t count) {
  if (!open() || count == 0) return;
  std::uint64_t words[last_word + 2];
  // A small node may end before the last word, and with it what can be read.
  std::uint32_t readable = 0;
  while (readable < last_word + 2 && core::copy_memory(node + readable * 8, words + readable, 8)) ++readable;
  for (std::uint32_t word = first_word; word <= last_word; ++word) {
    if ((candidates_ >> word & 1) == 0) continue;
    if (word + 1 >= readable || !edges_lead_to(words[word], words[word + 1], following, count, stride_)) candidates_ &= ~(1U << word);
  }
  several_ = several_ || count > 1;
  if (candidates_ == 0) {
    word_ = given_up;
  } else if (++learned_ >= enough && several_ && (candidates_ & (candidates_ - 1)) == 0) {
    word_ = __builtin_ctz(candidates_);
  }
}

bool NodeClasses::add(const NodeClass& added) {
  if (count_ >= most / 2) return false;
  std::uint64_t place = mixed(added.table) % most;
  while (classes_[place].table != nullptr && classes_[place].table != added.table) place = (place + 1) % most;
  if (classes_[place].table == nullptr) ++count_;
  classes_[place] = added;
  return true;
}

const NodeClass* NodeClasses::find(const void* table) const {
  for (std::uint64_t place = mixed(table) % most; classes_[place].table != nullptr; place = (place + 1) % most) {
    if (classes_[place].table == table) return &classes_[place];
  }
  return nullptr;
}

bool Reachable::begin() {
  count_ = 0;
  ++round_;
  return capacity_ != 0 || grow();
}

void Reachable::end() {
  constexpr std::uint64_t most_kept = 1 << 16;
  if (capacity_ <= most_kept) return;
  munmap(nodes_, capacity_ * sizeof(void*));
  munmap(met_, 2 * capacity_ * sizeof(Met));
  capacity_ = 0;
}

bool Reachable::grow() {
  constexpr std::uint64_t first = 512;
  const std::uint64_t capacity = capacity_ == 0 ? first : capacity_ * 2;
  const auto map = [](std::uint64_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
  };
  const std::uint64_t met_bytes = 2 * capacity * sizeof(Met), node_bytes = capacity * sizeof(void*);
  auto* met = static_cast<Met*>(map(met_bytes));
  auto* nodes = static_cast<void* const**>(map(node_bytes));
  if (met == nullptr || nodes == nullptr) {
    if (met != nullptr) munmap(met, met_bytes);
    if (nodes != nullptr) munmap(nodes, node_bytes);
    return false;
  }
  if (capacity_ != 0) {
    std::memcpy(nodes, nodes_, count_ * sizeof(void*));
    munmap(nodes_, capacity_ * sizeof(void*));
    munmap(met_, 2 * capacity_ * sizeof(Met));
  }
  nodes_ = nodes;
  met_ = met;
  capacity_ = capacity;
  const std::uint64_t count = count_;
  for (std::uint64_t index = 0; index < count; ++index) meet(*nodes_[index]);
  return true;
}

// Whether it is new.
bool Reachable::meet(void* node) {
  std::uint64_t place = mixed(node) & (2 * capacity_ - 1);
  while (met_[place].round == round_) {
    if (met_[place].node == node) return false;
    place = (place + 1) & (2 * capacity_ - 1);
  }
  met_[place] = {node, round_};
  return true;
}

bool Reachable::add(void* const* root, const EdgePlace& edges) {
  const auto add_one = [this](void* const* node) {
    if (*node == nullptr || !meet(*node)) return true;
    __builtin_prefetch(*node);
    __builtin_prefetch(static_cast<const char*>(*node) + 64);
    nodes_[count_++] = node;
    return count_ < capacity_ || grow();
  };
  std::uint64_t next = count_;
  if (!add_one(root)) return false;
  for (; next < count_; ++next) {
    std::uint64_t count = 0;
    const char* edge = edges.edges(*nodes_[next], count);
    for (; count != 0; --count, edge += edges.stride()) {
      if (!add_one(reinterpret_cast<void* const*>(edge))) return false;
    }
  }
  return true;
}

}  // namespace liveset::autograd
