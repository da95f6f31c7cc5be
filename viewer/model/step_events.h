// One recorded step as its events tell it: ops, each a run of allocations and the frees behind it, and what autograd's graph held for
// which node. recorded_step.h makes the model of it.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "viewer/ledger/block_finder.h"
#include "viewer/ledger/open_scopes.h"
#include "viewer/ledger/physical.h"
#include "viewer/model/model.h"
#include "viewer/trace/trace_file.h"

namespace liveset::model {

inline constexpr std::int64_t no_node = -1;
// A heap's device type, of a caching allocator.
inline constexpr std::uint8_t cuda = 1;

struct Draft {
  trace::Phase phase = trace::Phase::other;
  std::uint32_t scope = 0, thread = 0;
  std::uint32_t enters = none;  // the outermost module's scope that was begun since the thread's op before
  std::int64_t enters_at = 0;   // the number that a node made from there on has, at least
  std::int64_t node = no_node;  // sequence number
  std::uint32_t name = 0;       // String id: of the node that runs in backward
  bool after_function = false;  // Op::after_function
  bool no_graph = false;        // Op::no_graph
  std::uint32_t call = 0;       // number of the outermost module's call that it is in; 0: in none
  std::uint64_t time_ns = 0;
  std::vector<std::uint32_t> writes, frees;  // ordinals of blocks
};

// What is known of blocks by the statements about them, up to an event.
class Statements {
 public:
  Statements(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger);

  // Events come in order.
  void visit(const trace::Event& event);
  // The block that the last event speaks of; none: of none.
  std::uint32_t stated() const { return stated_; }
  // Segments of the heap grew.
  bool expands() const { return expands_; }
  // The block is of an allocator that rounds up, and nothing says what was asked for.
  bool is_rounded(std::uint32_t ordinal) const { return rounds_ && !requested_.contains(ordinal); }
  // Bytes that were asked for: the storage's where one was stated, for a caching allocator rounds up and may give more than that. Else the
  // block's.
  std::uint64_t requested(std::uint32_t ordinal) const;

 private:
  const ledger::PhysicalLedger& ledger_;
  ledger::BlockFinder finder_;
  const bool rounds_;
  bool expands_ = false;
  std::uint32_t stated_ = none;                                 // ordinal
  std::unordered_map<std::uint32_t, std::uint64_t> requested_;  // by ordinal
};

class StepEvents {
 public:
  struct Saved {
    std::uint32_t ordinal = 0, slot = 0;  // String id of the slot
  };

  // `statements` has visited what this visits.
  StepEvents(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, const Statements& statements, const ledger::Step& step);

  // Every event of the trace up to the step's end, in order.
  void visit(const trace::Event& event) {
    if (event.index < step_.end_event) visit(event, threads_[event.thread < threads_.size() ? event.thread : 0]);
  }
  // When all have come: nodes that made no block get an op where their number belongs.
  void arrange();

  const std::vector<Draft>& drafts() const { return drafts_; }
  // What the graph held, by node.
  const std::map<std::int64_t, std::vector<Saved>>& saves() const { return saves_; }
  // The graph held a parameter, or what else lives beyond the step at both ends, for the node.
  bool saves_static(std::int64_t node) const { return saves_static_.contains(node); }
  // String id of the first slot that held the block; 0: none did.
  std::uint32_t first_slot(std::uint32_t ordinal) const;
  // The first node that saved the block as its `self`; no_node: none did.
  std::int64_t saved_as_self(std::uint32_t ordinal) const;
  bool is_wrapped_number(std::uint32_t ordinal) const { return wrapped_.contains(ordinal); }
  // The trace says which node made a block.
  bool numbered() const { return numbered_; }
  // Some node ran twice in backward, or ran for a forward of an earlier step.
  bool graphs_cross() const { return graphs_cross_; }

 private:
  // A module's forward that is under way.
  struct Call {
    std::uint32_t scope = 0;
    std::int64_t next_node = no_node;  // when it began
  };
  // What one thread does.
  struct Thread {
    std::int64_t next_node = no_node;   // the number that its next node gets
    std::int64_t first_node = no_node;  // ... when the step began
    std::int64_t walked = no_node;      // the node whose slots the walk states
    bool returned = false;              // the function of the node that runs
    ledger::OpenStack<Call> calls;
    std::uint32_t call = 0;       // as Draft's
    std::uint32_t enters = none;  // as Draft's, for the op to come
    std::int64_t enters_at = 0;
    ledger::OpenStack<std::pair<std::uint32_t, std::int64_t>> nodes;  // of backward: name, number
  };
  struct Scoped {
    std::int64_t number = 0;
    std::uint32_t scope = 0;
  };

  bool in_step(const trace::Event& event) const { return event.index >= step_.first_event && event.index < step_.end_event; }
  bool is_module(std::uint32_t scope) const;
  void visit(const trace::Event& event, Thread& thread);
  void module_begins(const trace::Event& event, Thread& thread);
  void scope_ends(const trace::Event& event, Thread& thread);
  void entered(const trace::Event& event, const Thread& thread, std::uint32_t scope);
  std::int64_t node_at(const trace::Event& event, const Thread& thread, std::uint32_t& name) const;
  void draft(const trace::Event& event, Thread& thread, std::int64_t node, std::uint32_t name);
  void allocated(const trace::Event& event, Thread& thread);
  void freed(const trace::Event& event, Thread& thread);
  void node_runs(const trace::Event& event, Thread& thread);
  void saved(const trace::Event& event, std::int64_t node);
  bool looks_wrapped(const trace::Event& event, const ledger::Block& block) const;
  void join();
  void order_saving_nodes();
  std::uint32_t scope_of(std::int64_t node, std::uint32_t other) const;
  void names_of_nodes();

  const trace::TraceFile& file_;
  const ledger::PhysicalLedger& ledger_;
  const Statements& statements_;
  const ledger::Step& step_;
  std::vector<Thread> threads_;
  std::vector<Draft> drafts_;
  std::vector<Scoped> scopes_;
  std::map<std::int64_t, std::vector<Saved>> saves_;           // by node
  std::set<std::pair<std::int64_t, std::uint32_t>> saved_;     // node, ordinal
  std::unordered_map<std::int64_t, std::uint32_t> names_;      // of nodes: String ids
  std::unordered_map<std::uint32_t, std::uint32_t> slots_;     // by ordinal: String id of the first
  std::unordered_set<std::uint32_t> wrapped_;                  // ordinals
  std::unordered_map<std::uint32_t, std::int64_t> self_node_;  // by ordinal: the first node that saves it as its `self`
  std::unordered_set<std::int64_t> saves_static_;              // nodes
  std::unordered_set<std::int64_t> ran_;                       // nodes, in backward
  std::vector<bool> has_graph_;                                // by number of an outermost call
  std::int64_t first_made_ = no_node;                          // the least number of a node that this step can have made
  bool numbered_ = false, graphs_cross_ = false;
};

}  // namespace liveset::model
