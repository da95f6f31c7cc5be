// A TinyTrace that speaks as the PyTorch shim does: steps, checkpoint regions with their slots, the walk, the nodes of backward.
#pragma once
#include <string>

#include "tests/support/tiny_trace.h"

namespace liveset::test {

class TorchTrace : public TinyTrace {
 public:
  static constexpr int float32 = 6, bfloat16 = 15;
  static constexpr std::int64_t facts(int dtype, std::int64_t index = -1) { return (dtype + 1) | (index + 1) << 8; }

  TorchTrace() {
    source("python");
    cpu = heap("cpu");
  }
  std::uint32_t module(const std::string& name, std::uint32_t parent = 0) { return scope(proto::SCOPE_MODULE, name, parent); }
  std::uint32_t region(const std::string& name, std::uint32_t parent = 0) { return scope(proto::SCOPE_REGION, name, parent); }
  std::uint64_t make(std::uint64_t address, std::uint64_t bytes, std::uint32_t in = 0) {
    writer::Event made = allocation(0, address, bytes, cpu);
    made.scope = in;
    return add(made);
  }
  std::uint64_t free(std::uint64_t address) { return TinyTrace::free(cpu, address); }
  std::uint64_t say(int kind, std::uint64_t address, std::int64_t number, std::uint32_t of = 0, const std::string& name = "",
                    int memory_class = proto::CLASS_ACTIVATION, std::uint64_t bytes = 0) {
    writer::Event made = event(kind, 0);
    made.heap = address == 0 ? 0 : cpu;
    made.address = address;
    made.size = bytes;
    made.number = number;
    made.scope = of;
    made.memory_class = static_cast<std::uint8_t>(memory_class);
    if (!name.empty()) made.name = string(name);
    return add(made);
  }
  std::uint64_t drop(std::int64_t index, std::uint64_t address, std::uint32_t saved_in) {
    return say(proto::EVENT_VALUE_DROP, address, facts(float32, index), saved_in, "", proto::CLASS_NONE);
  }
  std::uint64_t use(std::int64_t index, std::uint32_t region, const std::string& slot) {
    return say(proto::EVENT_VALUE_USE, 0, facts(float32, index), region, slot, proto::CLASS_NONE);
  }
  std::uint64_t remake(std::int64_t index, std::uint64_t address, std::uint32_t region, const std::string& slot = "") {
    return say(proto::EVENT_VALUE_REMAKE, address, index < 0 ? facts(float32) : facts(float32, index), region, slot, proto::CLASS_NONE);
  }
  std::uint64_t keep(std::uint64_t address, const std::string& slot, int dtype = float32, std::uint64_t bytes = 0) {
    return say(proto::EVENT_VALUE_RETAIN, address, facts(dtype), 0, slot, proto::CLASS_ACTIVATION, bytes);
  }
  std::uint64_t node(int kind, const std::string& name, std::int64_t number) {
    writer::Event made = event(kind, 0);
    made.name = string(name);
    made.number = number;
    return add(made);
  }
  std::uint64_t graph_node(const std::string& name, std::int64_t number) { return node(proto::EVENT_GRAPH_NODE, name, number); }
  std::uint64_t node_begin(const std::string& name, std::int64_t number) { return node(proto::EVENT_NODE_BEGIN, name, number); }
  std::uint64_t node_end(const std::string& name, std::int64_t number) { return node(proto::EVENT_NODE_END, name, number); }
  std::uint64_t begin_again(std::uint32_t region) {
    phase = proto::PHASE_RECOMPUTE;
    return begin(region);
  }
  std::uint64_t end_again(std::uint32_t region, const std::string& outcome = "") {
    if (!outcome.empty()) attribute("recompute", outcome);
    const std::uint64_t event = end(region);
    phase = proto::PHASE_BACKWARD;
    return event;
  }
  std::uint32_t cpu = 0;
};

}  // namespace liveset::test
