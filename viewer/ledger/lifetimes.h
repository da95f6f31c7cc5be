// Evidence from when and where a block was born and freed, for blocks that no statement names.
//
// Every death is known from the first pass, so a block has to be looked at only once: when what it was born in ends. That is a node
// of a backward (then blocks that outlive it wait for the end of the backward), the recompute of a checkpoint region, or a
// forward, a loss, an optimizer step or a recompute without a region: the time for which a thread keeps that phase.
// What is said here is weaker than statements: Block::state keeps the stronger.
#pragma once
#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "viewer/ledger/open_scopes.h"
#include "viewer/ledger/physical.h"

namespace liveset::ledger {

class Lifetimes {
 public:
  Lifetimes(PhysicalLedger& ledger, const trace::Dictionary& names) : ledger_(ledger), names_(names) {}

  // To be called for every event, before the others.
  void at(std::uint64_t event, std::uint32_t thread, trace::Phase phase) {
    event_ = event;
    if (thread != thread_id_ || thread_ == nullptr) enter(thread);
    if (phase != thread_->phase) change(phase);
  }
  void born(std::uint32_t ordinal);
  void node_begin(std::uint32_t name, std::int64_t number);
  void node_end(std::uint32_t name, std::int64_t number);
  void backward_begin();
  void backward_end();
  void region_begin(std::uint32_t scope);
  bool region_is_forward(std::uint32_t scope);  // inside of a recompute -> whether it repeats none
  void region_end(std::uint32_t scope);
  void finish();

  // Of the thread of the last event: String id of the node that runs, Scope id of the region that recomputes or runs; 0: none.
  std::uint32_t node() const { return thread_->nodes.empty() ? 0 : thread_->nodes.back().name; }
  std::uint32_t region() const {
    const auto* const recompute = thread_->regions.recompute();
    return recompute != nullptr ? recompute->scope : thread_->regions.empty() ? 0 : thread_->regions.back().scope;
  }
  std::uint64_t left_out() const { return rounds_.left_out(); }  // recomputes whose number is not known
  // Of what is made in the phase recompute.
  std::uint32_t incarnation() const {
    const auto* const recompute = thread_->regions.recompute();
    return recompute != nullptr ? recompute->round : 1;
  }

 private:
  static constexpr std::size_t max_backwards = 64;  // beyond them backwards are not told apart

  struct Node {
    std::uint32_t name = 0;
    std::size_t first_birth = 0;  // index into Thread::in_nodes
  };
  struct Thread {
    trace::Phase phase = trace::Phase::other;
    OpenStack<Node> nodes;
    OpenRegions<std::size_t> regions;                              // index into in_recomputes of the first birth
    std::vector<std::uint32_t> in_nodes, in_recomputes, in_phase;  // ordinals that wait for an end
  };
  struct Backward {
    std::uint32_t thread = 0;
    bool runs_nodes = false;               // one has begun
    std::vector<std::uint32_t> survivors;  // of its nodes
  };

  void enter(std::uint32_t thread);
  void change(trace::Phase phase);
  void end_phase(Thread& thread);
  void leave_node(Thread& thread, const Node& node);
  void leave_recompute(Thread& thread, std::size_t first_birth);
  Backward* backward_here();
  void survive(std::uint32_t ordinal);
  void close(Backward& backward);
  bool spans_failure(const Block& block) const;
  Block& block(std::uint32_t ordinal) { return *ledger_.blocks.find(ordinal); }

  PhysicalLedger& ledger_;
  const trace::Dictionary& names_;
  RegionRounds rounds_;
  absl::flat_hash_map<std::uint32_t, std::unique_ptr<Thread>> threads_;
  std::vector<Backward> backwards_;  // open ones
  Thread* thread_ = nullptr;         // of the last event
  std::uint32_t thread_id_ = 0;
  std::uint64_t event_ = 0;
};

}  // namespace liveset::ledger
