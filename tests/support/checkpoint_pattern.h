// A synthetic stream of training steps whose every layer is a checkpoint region, as the PyTorch hooks say it: each operation of a layer
// gives up one slot in forward, waits for it in the walk, gets it again in the recompute, and uses it in its node of backward. About
// half the events are allocations and frees, fewer than in most jobs: what reads regions and nodes has the more to do.
#pragma once
#include <string>
#include <vector>

#include "profiler/writer/trace_writer.h"
#include "proto/trace.pb.h"

namespace liveset::test {

class CheckpointPattern {
 public:
  static constexpr int layers = 24, operations = 32, temporaries = 2;
  static constexpr std::uint32_t node_names = 8;

  static void define(writer::TraceWriter& writer) {
    writer.define_source(1, "python", "1", "every block of the pattern", "nothing");
    writer.define_string(1, "cuda:0");
    writer.define_heap(1, 1, proto::CUDA, 0, 1);
    writer.define_thread(1, 1, "train");
    writer.define_string(2, "GPT");
    writer.define_string(3, "checkpoint");
    writer.define_string(4, R"({"kind":"non_reentrant","input_dtypes":["float32"],"autocast":null,"early_stop":true,"preserve_rng":true})");
    writer.define_string(5, "recompute");
    writer.define_string(6, R"({"early_stopped":true})");
    for (std::uint32_t name = 0; name < node_names; ++name) {
      writer.define_string(10 + name, "Op" + std::to_string(name) + "Backward0");
      writer.define_string(20 + name, "Op" + std::to_string(name) + "Backward0.self");
    }
    writer.define_scope(1, 0, proto::SCOPE_MODULE, 2);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      writer.define_string(30 + 2 * layer, "checkpoint:" + std::to_string(layer));
      writer.define_string(31 + 2 * layer, "h." + std::to_string(layer));
      writer.define_scope(region(layer), 1, proto::SCOPE_REGION, 30 + 2 * layer);
      writer.define_scope(region(layer) + 1, region(layer), proto::SCOPE_MODULE, 31 + 2 * layer);
    }
  }

  const writer::Event& next() {
    if (position_ == step_.size()) make_step();
    return step_[position_++];
  }

 private:
  static std::uint32_t region(std::uint32_t layer) { return 2 + 2 * layer; }
  static std::uint64_t address(std::uint32_t layer, int operation, int what) {
    return 0x10000000ULL + ((static_cast<std::uint64_t>(layer) * operations + static_cast<std::uint64_t>(operation)) * 8 +
                            static_cast<std::uint64_t>(what)) *
                               4096;
  }
  static std::uint32_t name_of(int operation) { return static_cast<std::uint32_t>(operation) % node_names; }

  writer::Event& add(int kind, std::uint32_t scope) {
    writer::Event& event = step_.emplace_back();
    event.kind = static_cast<std::uint8_t>(kind);
    event.thread = 1;
    event.scope = scope;
    event.phase = static_cast<std::uint8_t>(phase_);
    event.time_ns = time_ns_ += 700;
    return event;
  }
  void alloc(std::uint64_t at, std::uint64_t bytes, std::uint32_t scope) {
    writer::Event& event = add(proto::EVENT_ALLOC, scope);
    event.heap = 1;
    event.address = at;
    event.size = bytes;
  }
  void free(std::uint64_t at, std::uint32_t scope) {
    writer::Event& event = add(proto::EVENT_FREE_REQUESTED, scope);
    event.heap = 1;
    event.address = at;
  }
  void say(int kind, std::uint64_t at, int index, std::uint32_t scope, std::uint32_t name = 0) {
    writer::Event& event = add(kind, scope);
    event.heap = at == 0 ? 0 : 1;
    event.address = at;
    event.size = at == 0 ? 0 : 2048;
    event.name = name;
    event.number = (proto::FLOAT32 + 1) | (index + 1) << 8;
  }
  void attribute(std::uint32_t key, std::uint32_t text, std::uint32_t scope) {
    writer::Event& event = add(proto::EVENT_ATTRIBUTE, scope);
    event.name = key;
    event.text = text;
  }
  void node(int kind, std::uint32_t layer, int operation) {
    writer::Event& event = add(kind, 0);
    event.name = 10 + name_of(operation);
    event.number = static_cast<std::int64_t>((static_cast<std::uint64_t>(steps_) * layers + layer) * operations) + operation;
  }
  void work(std::uint32_t layer, int operation) {
    for (int i = 0; i < temporaries; ++i) {
      alloc(address(layer, operation, 4 + i), 512, region(layer) + 1);
      free(address(layer, operation, 4 + i), region(layer) + 1);
    }
  }

  void make_step() {
    step_.clear();
    position_ = 0;
    phase_ = proto::PHASE_FORWARD;
    add(proto::EVENT_STEP_BEGIN, 0).number = steps_;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      add(proto::EVENT_SCOPE_BEGIN, region(layer));
      attribute(3, 4, region(layer));
      add(proto::EVENT_SCOPE_BEGIN, region(layer) + 1);
      for (int i = 0; i < operations; ++i) {
        work(layer, i);
        alloc(address(layer, i, 0), 2048, region(layer) + 1);
        say(proto::EVENT_VALUE_DROP, address(layer, i, 0), i, region(layer) + 1);
        if (i != 0) free(address(layer, i - 1, 0), region(layer) + 1);
      }
      free(address(layer, operations - 1, 0), region(layer) + 1);
      add(proto::EVENT_SCOPE_END, region(layer) + 1);
      add(proto::EVENT_SCOPE_END, region(layer));
    }
    for (std::uint32_t layer = layers; layer-- != 0;) {
      for (int i = operations; i-- != 0;) {
        node(proto::EVENT_GRAPH_NODE, layer, i);
        say(proto::EVENT_VALUE_USE, 0, i, region(layer), 20 + name_of(i));
      }
    }
    add(proto::EVENT_BACKWARD_BEGIN, 0).number = layers * operations;
    for (std::uint32_t layer = layers; layer-- != 0;) backward(layer);
    phase_ = proto::PHASE_BACKWARD;
    add(proto::EVENT_BACKWARD_END, 0);
    add(proto::EVENT_STEP_END, 0).number = steps_++;
  }

  void backward(std::uint32_t layer) {
    for (int i = operations; i-- != 0;) {
      phase_ = proto::PHASE_BACKWARD;
      node(proto::EVENT_NODE_BEGIN, layer, i);
      if (i == operations - 1) recompute(layer);
      phase_ = proto::PHASE_BACKWARD;
      alloc(address(layer, i, 2), 2048, 0);
      if (i != operations - 1) free(address(layer, i + 1, 2), 0);
      free(address(layer, i, 1), 0);
      node(proto::EVENT_NODE_END, layer, i);
    }
    free(address(layer, 0, 2), 0);
  }

  void recompute(std::uint32_t layer) {
    phase_ = proto::PHASE_RECOMPUTE;
    add(proto::EVENT_SCOPE_BEGIN, region(layer));
    for (int i = 0; i < operations; ++i) {
      work(layer, i);
      alloc(address(layer, i, 1), 2048, region(layer) + 1);
    }
    for (int i = 0; i < operations; ++i) say(proto::EVENT_VALUE_REMAKE, address(layer, i, 1), i, region(layer));
    attribute(5, 6, region(layer));
    add(proto::EVENT_SCOPE_END, region(layer));
  }

  std::vector<writer::Event> step_;
  std::size_t position_ = 0;
  int phase_ = proto::PHASE_FORWARD;
  std::int64_t steps_ = 0;
  std::uint64_t time_ns_ = 0;
};

}  // namespace liveset::test
