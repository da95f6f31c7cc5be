// What the hooks of a PyTorch job say, in a few events of every kind: steps with microbatches, checkpoint regions and their slots, the
// walk, nodes of backward, reductions, findings and fingerprints; and, as the last step, one without checkpointing, of which a model can
// be made. For fuzzers: what it means is of no matter, that all readers read it is.
#pragma once
#include <string>
#include <vector>

#include "profiler/writer/trace_writer.h"
#include "proto/trace.pb.h"
#include "tests/support/trace_events.h"

namespace liveset::test {

class TorchEvents {
 public:
  // Ids from `first` on are its own.
  TorchEvents(writer::TraceWriter& writer, std::uint32_t first, std::uint64_t time_ns) : writer_(writer), next_(first), time_ns_(time_ns) {
    model_ = scope(proto::SCOPE_MODULE, "GPT", 0);
    region_ = scope(proto::SCOPE_REGION, "checkpoint:0", model_);
    block_ = scope(proto::SCOPE_MODULE, "h", region_);
    inner_ = scope(proto::SCOPE_REGION, "checkpoint:1", block_);
    for (std::int64_t step = 0; step < plain_step; ++step) make_step(step);
    make_plain_step();
  }
  static constexpr std::int64_t plain_step = 3;
  const std::vector<writer::Event>& events() const { return events_; }

 private:
  static constexpr int slots = 3;
  static std::uint64_t place(int what, int slot) {
    return 0x7000000 + 0x10000 * static_cast<std::uint64_t>(what) + 0x1000 * static_cast<std::uint64_t>(slot);
  }

  std::uint32_t string(const std::string& text) {
    writer_.define_string(next_, text);
    return next_++;
  }
  std::uint32_t scope(proto::ScopeKind kind, const std::string& name, std::uint32_t parent) {
    const std::uint32_t text = string(name), id = next_++;
    writer_.define_scope(id, parent, kind, text);
    return id;
  }
  writer::Event& add(int kind, std::int64_t number = 0) {
    writer::Event& made = events_.emplace_back(event(kind, time_ns_ += 100));
    made.number = number;
    made.phase = static_cast<std::uint8_t>(phase_);
    made.scope = in_;
    return made;
  }
  void say(int kind, std::uint64_t address, int slot, std::uint32_t of, const std::string& name = "", int memory_class = 0) {
    writer::Event& made = add(kind, (proto::FLOAT32 + 1) | (slot + 1) << 8);
    made.heap = address == 0 ? 0 : 1;
    made.address = address;
    made.size = 2048;
    made.scope = of;
    made.memory_class = static_cast<std::uint8_t>(memory_class);
    if (!name.empty()) made.name = string(name);
  }
  void make(std::uint64_t address) {
    add(proto::EVENT_SEQUENCE, ++sequence_);
    writer::Event made = allocation(time_ns_ += 100, address, 2048);
    made.phase = static_cast<std::uint8_t>(phase_);
    made.scope = in_;
    events_.push_back(made);
  }
  void free(std::uint64_t address) {
    writer::Event made = release(time_ns_ += 100, address);
    made.phase = static_cast<std::uint8_t>(phase_);
    events_.push_back(made);
  }
  void attribute(const char* key, const std::string& json) {
    writer::Event& made = add(proto::EVENT_ATTRIBUTE);
    made.name = string(key);
    made.text = string(json);
  }
  void begin(std::uint32_t scope) {
    in_ = scope;
    add(proto::EVENT_SCOPE_BEGIN);
  }
  void end(std::uint32_t scope, std::uint32_t outer) {
    in_ = scope;
    add(proto::EVENT_SCOPE_END);
    in_ = outer;
  }
  void node(int kind, int slot) { add(kind, 10 + slot).name = string("MulBackward0"); }

  void forward() {
    phase_ = proto::PHASE_FORWARD;
    begin(model_);
    begin(region_);
    attribute("checkpoint", R"({"kind":"non_reentrant","input_dtypes":["float32"],"input_devices":["cpu"],)"
                            R"("autocast":{"device":"cpu","dtype":"bfloat16"},"early_stop":true,"preserve_rng":true})");
    say(proto::EVENT_STORAGE, 0, -1, region_, "input", proto::CLASS_CHECKPOINT_INPUT);
    begin(block_);
    begin(inner_);
    end(inner_, block_);
    for (int i = 0; i < slots; ++i) {
      make(place(0, i));
      say(proto::EVENT_VALUE_DROP, place(0, i), i, block_);
      if (i != 0) free(place(0, i));  // one lives on
    }
    make(place(1, 0));
    say(proto::EVENT_VALUE_OFFLOAD, place(1, 0), 0, block_, "MulBackward0.other");
    end(block_, region_);
    end(region_, model_);
    end(model_, 0);
    say(proto::EVENT_VALUE_RETAIN, place(1, 0), -1, model_, "AddmmBackward0.mat1", proto::CLASS_ACTIVATION);
    say(proto::EVENT_VALUE_RETAIN, place(1, 0), -1, model_, "ToCopyBackward0.self", proto::CLASS_ACTIVATION);
    say(proto::EVENT_HOLDER, place(1, 0), -1, 0, "a list in train.py");
    for (int i = 0; i < slots; ++i) {
      node(proto::EVENT_GRAPH_NODE, i);
      say(proto::EVENT_VALUE_USE, 0, i, region_, "MulBackward0.self");
    }
  }

  void backward() {
    add(proto::EVENT_BACKWARD_BEGIN, slots);
    for (int i = slots; i-- != 0;) {
      phase_ = proto::PHASE_BACKWARD;
      node(proto::EVENT_NODE_BEGIN, i);
      if (i == slots - 1) {
        phase_ = proto::PHASE_RECOMPUTE;
        begin(region_);
        for (int slot = 0; slot < slots; ++slot) make(place(2, slot));
        for (int slot = 0; slot < slots; ++slot) say(proto::EVENT_VALUE_REMAKE, place(2, slot), slot, region_);
        attribute("recompute", R"({"early_stopped":true})");
        end(region_, 0);
      }
      phase_ = proto::PHASE_BACKWARD;
      node(proto::EVENT_NODE_END, i);
      say(proto::EVENT_STORAGE, place(1, 0), -1, 0, "GPT.h.weight", proto::CLASS_GRADIENT);
      writer::Event& reduce = add(proto::EVENT_COLLECTIVE, i);
      reduce.name = string("all_reduce");
      reduce.heap = 1;
      reduce.address = place(1, 0);
    }
    attribute("liveset.bucket", R"({"bucket": 0, "parameters": ["GPT.h.weight", "GPT.h.bias"]})");
    for (int i = 0; i < slots - 1; ++i) free(place(2, i));
    add(proto::EVENT_BACKWARD_END);
  }

  void make_step(std::int64_t step) {
    add(proto::EVENT_STEP_BEGIN, step);
    add(proto::EVENT_MICROBATCH_BEGIN, 0);
    forward();
    backward();
    phase_ = proto::PHASE_OPTIMIZER;
    add(proto::EVENT_MICROBATCH_END, 0);
    say(proto::EVENT_STORAGE, place(0, 0), -1, 0, "exp_avg", proto::CLASS_OPTIMIZER_STATE);
    attribute("liveset.replay",
              R"({"kind":"value","region":"GPT/checkpoint:0","module":"GPT.h","op":"aten.mul","detail":"1 and 2","more":2})");
    attribute("liveset.replay.coverage", R"({"regions":1,"recomputes":1,"values":3,"value_bytes":6144,"not_observed":["files"]})");
    attribute("liveset.fingerprint", R"({"what":"gradient","name":"GPT.h.weight","step":)" + std::to_string(step) +
                                         R"(,"dtype":"float32","shape":[2,2],"hash":"12","norm":1.5,"samples":[1.0,2.0],"not_finite":0})");
    attribute("liveset.fingerprint.step", R"({"rows":4})");
    phase_ = proto::PHASE_OTHER;
    add(proto::EVENT_STEP_END, step);
  }

  // Blocks, each made for a node that saves it and is through with it in backward.
  void make_plain_step() {
    add(proto::EVENT_STEP_BEGIN, plain_step);
    phase_ = proto::PHASE_FORWARD;
    add(proto::EVENT_SEQUENCE, ++sequence_);
    const std::int64_t first = sequence_;
    begin(model_);
    for (int i = 0; i < slots; ++i) {
      const std::uint32_t layer = i == slots - 1 ? model_ : scope(proto::SCOPE_MODULE, "layer." + std::to_string(i), model_);
      begin(layer);
      make(place(3, i));
      end(layer, model_);
    }
    end(model_, 0);
    const std::uint32_t name = string("LinearBackward0"), slot = string("LinearBackward0.input");
    for (int i = 0; i < slots; ++i) {
      add(proto::EVENT_GRAPH_NODE, first + i).name = name;
      say(proto::EVENT_VALUE_RETAIN, place(3, i), -1, block_, "", proto::CLASS_ACTIVATION);
      events_.back().name = slot;
    }
    add(proto::EVENT_BACKWARD_BEGIN, slots);
    phase_ = proto::PHASE_BACKWARD;
    for (int i = slots; i-- != 0;) {
      add(proto::EVENT_NODE_BEGIN, first + i).name = name;
      if (i % 4 == 2) add(proto::EVENT_NODE_RETURNED);
      make(place(4, i));
      if (i % 2 == 0) {
        add(proto::EVENT_NODE_RETURNED);
        make(place(5, i));
        free(place(5, i));
      }
      free(place(3, i));
      if (i + 1 != slots) free(place(4, i + 1));
      add(proto::EVENT_NODE_END, first + i).name = name;
    }
    // A node of no op of the forward, whose only blocks its function has not made.
    add(proto::EVENT_NODE_BEGIN, first + slots).name = name;
    add(proto::EVENT_NODE_RETURNED);
    make(place(5, 0));
    free(place(5, 0));
    add(proto::EVENT_NODE_END, first + slots).name = name;
    add(proto::EVENT_BACKWARD_END);
    phase_ = proto::PHASE_OTHER;
    add(proto::EVENT_STEP_END, plain_step);
  }

  writer::TraceWriter& writer_;
  std::vector<writer::Event> events_;
  std::uint32_t next_, model_ = 0, region_ = 0, block_ = 0, inner_ = 0, in_ = 0;
  int phase_ = proto::PHASE_OTHER;
  std::int64_t sequence_ = 0;
  std::uint64_t time_ns_ = 0;
};

}  // namespace liveset::test
