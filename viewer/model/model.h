// A logical model of a training step as plain data.
//
// A step is a list of ops, in the order in which it runs without checkpointing: forward, loss, backward, optimizer. Every short form
// (chain, graph, mlp, transformer) and every recorded step becomes such a list, so that policies know one thing only. An op makes
// its `writes` in order; when it has run, its `frees` go, in order. Every model here is whole: indices are in range, sums of bytes
// and of costs are below 2^62, `frees` holds every tensor that dies in the step exactly once.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "viewer/plan/rotor.h"
#include "viewer/trace/records.h"
#include "viewer/trace/result.h"

namespace liveset::model {

inline constexpr std::uint32_t none = 0xffffffffU;
inline constexpr std::uint64_t max_layers = 1'000'000;  // their ledger takes half a GiB
inline constexpr std::uint64_t max_total_bytes = std::uint64_t{1} << 62;
inline constexpr std::uint64_t cpu_rng_state = 5056;  // torch.get_rng_state().nbytes

inline bool is_forward(trace::Phase phase) { return phase == trace::Phase::forward || phase == trace::Phase::loss; }

// proto/model.proto says what each means. Defaults: reading C0 of the six-layer chain.
struct Conventions {
  enum class Rerun : std::uint8_t { whole, stop_before_boundary, early_stop };
  bool count_inputs = true;
  bool checkpoint_last_segment = true;
  bool short_segment_first = false;
  bool physical_copy = false;
  bool drop_at_region_end = false;
  bool frees_are_listed = false;
  bool returns_unknown = false;
  bool regions_doubtful = false;
  Rerun rerun = Rerun::whole;
};

struct Tensor {
  std::string id;
  std::uint64_t bytes = 0;
  trace::MemoryClass memory_class = trace::MemoryClass::none;  // none: activation where it is a value, else temporary
  std::uint32_t storage = none;  // the tensor whose storage it shares (never one that shares itself); none: its own
  std::int64_t layer = -1;       // the layer that makes it, from 1; 0: an input; -1: not stated
  bool value = false;            // an id of the logical ledger: given to the step, or saved by an op
  bool for_backward = false;     // made only where a graph is recorded
  bool accumulates = false;      // one for all microbatches
  bool wrapped_number = false;   // a number of the program that torch saves without hooks: no region drops it
  bool given = false;            // one of Model::inputs
  bool no_output = false;        // no caller gets it: a copy that an operator saves of what it overwrites
  bool rounded = false;          // its bytes are its block's, which an allocator rounds up: what was asked for may be less
  bool once = false;             // stays when it is made; an op that runs again does not make it again
  std::uint32_t block = none;    // of a recorded step: the ordinal of its block in the trace
};

// A part of Model::lists.
struct Slice {
  std::uint32_t begin = 0, count = 0;
};

struct Op {
  std::string id;
  std::string name;              // the operator; empty: not known
  std::uint32_t module = none;   // index in Model::modules
  std::uint32_t enters = none;   // ... of the outermost module that is called anew, where the op before lies in a call of it too
  std::uint32_t forward = none;  // of a backward op: the forward op it belongs to
  trace::Phase phase = trace::Phase::forward;
  bool packs_before = false;  // its saves are packed before its kernel runs
  bool random = false, side_effect = false;
  bool continues = false;       // a further part of the op before it
  bool no_graph = false;        // no graph was recorded: no layer has it
  bool saves_static = false;    // the graph holds a parameter for it, which lives anyway
  bool after_function = false;  // of a further part in backward: the node's function has returned, and what it had unpacked is gone
  std::uint64_t cost = 0;       // in Model::cost_unit
  std::uint64_t workspace = 0;  // bytes
  Slice reads, writes, saves, frees;

  // Its backward takes back what the graph holds: what a region has given up is made again before.
  bool is_taken_back() const { return saves.count != 0 || saves_static; }
  // Policies count and name such ops alone.
  bool in_layers() const { return phase == trace::Phase::forward && !no_graph; }
};

struct StaticStorage {
  std::string id;
  std::uint64_t bytes = 0;
  trace::MemoryClass memory_class = trace::MemoryClass::parameter;
  std::uint64_t from_step = 0;
  bool rounded = false;        // as Tensor::rounded
  std::uint32_t block = none;  // as Tensor::block
};

// What a policy counts as a layer: a run of forward ops, [begin, end). In order, without overlap; there may be ops between them.
struct Unit {
  std::string name;
  std::uint32_t begin = 0, end = 0;
};

struct HandRegion {
  enum class Mode : std::uint8_t { recompute, offload, save };
  std::string id;
  std::uint32_t begin = 0, end = 0;  // forward ops
  Mode mode = Mode::recompute;
  std::vector<std::string> save_ops;
  std::vector<std::uint32_t> tensors;  // offload
  bool preserve_rng = true;
  std::optional<bool> early_stop;
  std::uint64_t stash = 0;
  std::uint32_t stated = 0;  // which region of the file it is of
};

struct Microbatches {
  enum class Order : std::uint8_t { one_by_one, all_forward, one_forward_one_backward };
  std::uint64_t count = 1;
  Order order = Order::one_by_one;
  std::uint64_t stages = 1, stage = 0;
  std::vector<std::uint32_t> chunk_ends;  // interleaved 1F1B: where the forward ops of each of the stage's chunks end; empty: one chunk
};

struct Physical {
  bool caching_allocator = false;
  std::string allocator_settings, heap;
  std::uint64_t context = 0, communication = 0, rng_state = 0;
};

struct Expectation {
  std::string policy, counter;
  std::uint64_t value = 0;
  double tolerance = 0;
  std::string policy_place, counter_place;  // in the file, for messages: "line 4: expect[1]", "line 4: expect[1].counter"
};

// What a part of a predicted peak is made of, where a formula says it.
struct Formula {
  std::string formula, source;
};

struct PastPart;

struct Model {
  std::string name;
  Conventions conventions;
  std::vector<Tensor> tensors;
  std::vector<Op>
      ops;  // as the step runs them; of a model with several microbatches: forward ops, then the loss's, backward's, the optimizer's
  std::vector<std::uint32_t> lists;
  std::vector<std::uint32_t> inputs;              // tensors that live when the step begins
  std::vector<std::string> modules;               // paths, as "GPT/bs.0/ln1"
  std::set<std::string, std::less<>> containers;  // paths that modules lie below, and that are no modules which are called
  std::vector<Unit> units;
  std::string unit_pattern;  // the modules that units are; empty: ops
  std::vector<StaticStorage> statics;
  std::vector<HandRegion> regions;
  Microbatches microbatches;
  Physical physical;
  std::vector<Expectation> expectations;
  std::string cost_unit;                                 // "ns"; empty: any, and costs are no times
  std::string estimate;                                  // why what it predicts is an estimate; empty: nothing is assumed
  std::map<std::string, Formula, std::less<>> formulas;  // by what stands behind the '/' of an id, of one tensor; of a static by its id
  std::optional<plan::RotorChain> rotor;                 // the same as a chain of stages, for the planner
  // Of a recorded step: what its job did before. Null: not known, the step is one of many that are alike.
  std::shared_ptr<const std::vector<PastPart>> past;

  bool costs_are_times() const { return cost_unit == "ns"; }
  std::span<const std::uint32_t> list(Slice slice) const { return std::span(lists).subspan(slice.begin, slice.count); }
  // One for all microbatches: a sum, or what a step with listed frees is given.
  bool is_shared(const Tensor& tensor) const { return tensor.accumulates || (conventions.frees_are_listed && tensor.given); }
  std::uint32_t storage_of(std::uint32_t tensor) const { return tensors[tensor].storage == none ? tensor : tensors[tensor].storage; }
};

// An allocation or a free as it was recorded.
struct BlockMove {
  std::uint32_t block = 0;  // ordinal in the trace
  bool alloc = true;
  std::uint64_t bytes = 0;
};
// What a job did from its start up to a recorded step, in parts: what was recorded outside of modelled steps, then such a step. A caching
// allocator keeps what earlier steps left, and they ran under the same policy: so they are models, too.
struct PastPart {
  std::vector<BlockMove> moves;
  std::optional<Model> step;  // without a past of its own
};

// Puts a model together: ops are added in any order of phases that the file has; finish() works out what the rest of Model promises.
class ModelBuilder {
 public:
  Model model;

  std::uint32_t add_tensor(Tensor tensor);
  struct Lists {
    std::vector<std::uint32_t> reads, writes, saves, frees;
  };
  std::uint32_t add_op(Op op, const Lists& lists);
  std::uint32_t module(std::string_view path);

  // Frees by last use where they are not listed; values; classes; units (every forward op where none is given). Says what
  // contradicts itself: a tensor that nothing makes, that is freed twice, read after its end.
  Result<Model> finish();

 private:
  std::unordered_map<std::string, std::uint32_t> modules_;
};

// Stages with their gradients and temporaries. The chain must have passed plan::check().
void add_rotor_chain(ModelBuilder& builder, const plan::RotorChain& chain);

// A layer that makes `value` from `reads` and whose backward reads both; the loss, and the backward of every layer in reverse.
void add_layer(ModelBuilder& builder, const std::string& id, std::vector<std::uint32_t> reads, std::uint32_t value, std::uint64_t cost);
void add_loss_and_backward(ModelBuilder& builder, std::uint32_t loss);

// A chain h0 .. hn. `bytes` has length + 1 entries, `cost` length.
void add_chain(ModelBuilder& builder, const std::vector<std::uint64_t>& bytes, const std::vector<std::uint64_t>& cost);
Result<Model> make_chain(const std::vector<std::uint64_t>& bytes, const std::vector<std::uint64_t>& cost,
                         const Conventions& conventions = {});

// Reads a model file: protobuf text format, or JSON when it begins with '{'. Errors say line (text format) and field.
Result<Model> read_model(const std::string& path);
Result<Model> parse_model(std::string_view text, const std::string& file);
// In text format, a line an op and a tensor: the general form, of a rotor chain that form. parse_model() gives the same model again, but
// for what the format has no field for: Model::formulas and past, Microbatches::chunk_ends, Tensor::once, and the blocks of a recorded
// step. So what a transformer's stage or a recorded step on a device is predicted to take can differ from what its text is.
std::string model_text(const Model& model);

}  // namespace liveset::model
