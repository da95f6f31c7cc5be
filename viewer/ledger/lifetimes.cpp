#include "viewer/ledger/lifetimes.h"

#include <algorithm>

namespace liveset::ledger {

using trace::MemoryClass;
using trace::Phase;

namespace {

// Phases in which what dies was held for nothing beyond them. A recompute in a region is the region's.
bool is_closed(Phase phase) {
  return phase == Phase::forward || phase == Phase::loss || phase == Phase::optimizer || phase == Phase::recompute;
}

}  // namespace

void Lifetimes::enter(std::uint32_t thread) {
  std::unique_ptr<Thread>& known = threads_[thread];
  if (known == nullptr) known = std::make_unique<Thread>();
  thread_ = known.get();
  thread_id_ = thread;
}

void Lifetimes::change(Phase phase) {
  end_phase(*thread_);
  thread_->phase = phase;
}

// Which blocks were freed because an allocator had run out of memory, nobody knows.
bool Lifetimes::spans_failure(const Block& block) const {
  const auto failure = std::lower_bound(ledger_.out_of_memory.begin(), ledger_.out_of_memory.end(), block.birth,
                                        [](const OutOfMemory& found, std::uint64_t event) { return found.event < event; });
  return failure != ledger_.out_of_memory.end() && failure->event < block.death;
}

void Lifetimes::end_phase(Thread& thread) {
  for (const std::uint32_t ordinal : thread.in_phase) {
    Block& block = this->block(ordinal);
    const bool is_recompute = thread.phase == Phase::recompute;
    if (block.death < event_) {
      if (!spans_failure(block)) block.state(MemoryClass::temporary, is_recompute ? Evidence::in_recompute : Evidence::in_phase);
    } else if (is_recompute) {
      block.state(MemoryClass::recomputed_activation, Evidence::outlives_recompute);
    }
  }
  thread.in_phase.clear();
}

void Lifetimes::born(std::uint32_t ordinal) {
  Thread& thread = *thread_;
  if (thread.phase == Phase::backward) {
    if (ledger_.nodes == 0) return;
    if (!thread.nodes.empty())
      thread.in_nodes.push_back(ordinal);
    else
      survive(ordinal);
  } else if (thread.phase == Phase::recompute && thread.regions.recompute() != nullptr) {
    thread.in_recomputes.push_back(ordinal);
  } else if (is_closed(thread.phase) && (block(ordinal).freed() || thread.phase == Phase::recompute)) {
    if (block(ordinal).in_step()) thread.in_phase.push_back(ordinal);
  }
}

void Lifetimes::node_begin(std::uint32_t name, std::int64_t number) {
  if (Backward* backward = backward_here(); backward != nullptr) backward->runs_nodes = true;
  thread_->nodes.begin(node_key(name, number), {name, thread_->in_nodes.size()});
}

void Lifetimes::node_end(std::uint32_t name, std::int64_t number) {
  thread_->nodes.end(node_key(name, number), [this](const Node& node) { leave_node(*thread_, node); });
}

void Lifetimes::leave_node(Thread& thread, const Node& node) {
  const bool accumulates = names_.string(node.name).ends_with("AccumulateGrad");
  for (std::size_t i = node.first_birth; i < thread.in_nodes.size(); ++i) {
    Block& block = this->block(thread.in_nodes[i]);
    if (block.death <= event_)
      block.state(MemoryClass::temporary, Evidence::in_node);
    else if (accumulates)
      block.suspect(Evidence::accumulated);
    else
      survive(thread.in_nodes[i]);
  }
  thread.in_nodes.resize(node.first_birth);
}

// A thread of the engine has no backward of its own: it works for the last one that began. Null: none is open.
Lifetimes::Backward* Lifetimes::backward_here() {
  const auto own = std::find_if(backwards_.rbegin(), backwards_.rend(), [&](const Backward& b) { return b.thread == thread_id_; });
  return own != backwards_.rend() ? &*own : backwards_.empty() ? nullptr : &backwards_.back();
}

void Lifetimes::survive(std::uint32_t ordinal) {
  Backward* backward = backward_here();
  if (backward == nullptr) return;
  // The gradients of the roots are made before the first node; the caller may hold them beyond the end.
  if (!backward->runs_nodes) block(ordinal).state(MemoryClass::activation_gradient, Evidence::root_gradient);
  backward->survivors.push_back(ordinal);
}

void Lifetimes::backward_begin() {
  end_phase(*thread_);
  if (backwards_.size() < max_backwards) backwards_.push_back({thread_id_, false, {}});
}

void Lifetimes::backward_end() {
  const auto own = std::find_if(backwards_.rbegin(), backwards_.rend(), [&](const Backward& b) { return b.thread == thread_id_; });
  if (own == backwards_.rend()) return;
  thread_->nodes.clear([this](const Node& node) { leave_node(*thread_, node); });  // of those that raised
  close(*own);
  backwards_.erase(std::next(own).base());
}

void Lifetimes::close(Backward& backward) {
  for (const std::uint32_t ordinal : backward.survivors) {
    Block& block = this->block(ordinal);
    if (block.death <= event_)
      block.state(MemoryClass::activation_gradient, Evidence::between_nodes);
    else
      block.suspect(Evidence::outlives_backward);
  }
}

void Lifetimes::region_begin(std::uint32_t scope) {
  if (auto* const region = thread_->regions.begin(rounds_, thread_id_, scope, thread_->phase); region != nullptr)
    region->kept = thread_->in_recomputes.size();
}

bool Lifetimes::region_is_forward(std::uint32_t scope) {
  const auto* const region = thread_->regions.is_forward(rounds_, scope);
  return region != nullptr && !region->repeats;
}

// What a region made that ran forward inside of a recompute waits for the end of that.
void Lifetimes::region_end(std::uint32_t scope) {
  thread_->regions.end(scope, [this](const OpenRegions<std::size_t>::Region& region) {
    if (region.again()) leave_recompute(*thread_, region.kept);
  });
}

void Lifetimes::leave_recompute(Thread& thread, std::size_t first_birth) {
  for (std::size_t i = first_birth; i < thread.in_recomputes.size(); ++i) {
    Block& block = this->block(thread.in_recomputes[i]);
    if (block.death > event_)
      block.state(MemoryClass::recomputed_activation, Evidence::outlives_recompute);
    else if (!spans_failure(block))
      block.state(MemoryClass::temporary, Evidence::in_recompute);
  }
  thread.in_recomputes.resize(first_birth);
}

// The job was killed, or the recording stopped: what is open ends here.
void Lifetimes::finish() {
  ++event_;
  for (auto& [id, thread] : threads_) {
    thread_ = thread.get();
    thread_id_ = id;
    thread->nodes.clear([&](const Node& node) { leave_node(*thread, node); });
    if (thread->phase != Phase::recompute) end_phase(*thread);
  }
  for (Backward& backward : backwards_) {
    for (const std::uint32_t ordinal : backward.survivors) {
      Block& block = this->block(ordinal);
      if (block.freed())
        block.state(MemoryClass::activation_gradient, Evidence::between_nodes);
      else
        block.suspect(Evidence::unfinished_backward);
    }
  }
}

}  // namespace liveset::ledger
