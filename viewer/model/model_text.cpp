// Writes a model in the general form, a line an op and a tensor.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <string>

#include "proto/model.pb.h"
#include "viewer/model/model.h"

namespace liveset::model {
namespace {

class Writer {
 public:
  explicit Writer(const Model& model) : model_(model) { printer_.SetSingleLineMode(true); }

  std::string write() {
    proto::Model head;
    head.set_name(model_.name);
    head.set_cost_unit(model_.cost_unit);
    head.set_estimate(model_.estimate);
    conventions(*head.mutable_conventions());
    line("", head);
    schedule();
    physical();
    for (const StaticStorage& storage : model_.statics) {
      proto::StaticStorage out;
      out.set_id(storage.id);
      out.set_memory_class(std::string(trace::class_name(storage.memory_class)));
      out.set_bytes(static_cast<std::int64_t>(storage.bytes));
      out.set_from_step(static_cast<std::int64_t>(storage.from_step));
      out.set_rounded(storage.rounded);
      line("static_storage", out);
    }
    if (model_.rotor)
      rotor_chain(*model_.rotor);
    else
      general();
    for (const HandRegion& region : model_.regions) this->region(region);
    for (const Expectation& expectation : model_.expectations) {
      proto::Expectation out;
      out.set_policy(expectation.policy);
      out.set_counter(expectation.counter);
      out.set_value(static_cast<std::int64_t>(expectation.value));
      out.set_tolerance(expectation.tolerance);
      line("expect", out);
    }
    return std::move(text_);
  }

 private:
  void general() {
    text_ += "general {\n";
    indent_ = "  ";
    units();
    for (std::uint32_t tensor = 0; tensor < model_.tensors.size(); ++tensor) this->tensor(tensor);
    for (const Op& op : model_.ops) this->op(op);
    text_ += "}\n";
    indent_ = "";
  }

  // A rotor chain is more than its ops: the planner's sizes.
  void rotor_chain(const plan::RotorChain& chain) {
    proto::RotorChain out;
    const auto copy = [](const std::vector<std::uint64_t>& from, google::protobuf::RepeatedField<std::int64_t>& to) {
      for (const std::uint64_t number : from) to.Add(static_cast<std::int64_t>(number));
    };
    copy(chain.a, *out.mutable_a());
    copy(chain.abar, *out.mutable_abar());
    copy(chain.delta, *out.mutable_delta());
    copy(chain.uf, *out.mutable_uf());
    copy(chain.ub, *out.mutable_ub());
    copy(chain.of, *out.mutable_of());
    copy(chain.ob, *out.mutable_ob());
    line("rotor_chain", out);
  }

  // Modules, or runs of ops; where every forward op is one, nothing need be said.
  void units() {
    proto::Program out;
    for (const std::string& path : model_.containers) out.add_container(path);
    if (!model_.unit_pattern.empty()) out.set_unit(model_.unit_pattern);
    line("", out);
    if (!model_.unit_pattern.empty()) return;
    const bool are_ops = std::all_of(model_.units.begin(), model_.units.end(), [&](const Unit& unit) {
      return unit.end == unit.begin + 1 && unit.name == model_.ops[unit.begin].id;
    });
    const auto forwards =
        static_cast<std::size_t>(std::count_if(model_.ops.begin(), model_.ops.end(), [](const Op& op) { return op.in_layers(); }));
    if (are_ops && model_.units.size() == forwards) return;
    for (const Unit& unit : model_.units) {
      proto::Program::Layer layer;
      layer.set_name(unit.name);
      layer.set_first(model_.ops[unit.begin].id);
      layer.set_last(model_.ops[unit.end - 1].id);
      line("layer", layer);
    }
  }

  // "name { fields }", or the fields alone.
  void line(const char* name, const google::protobuf::Message& message) {
    std::string fields;
    printer_.PrintToString(message, &fields);
    if (fields.empty() && *name == '\0') return;
    text_ += indent_;
    if (*name != '\0') text_ += std::string(name) + " { ";
    text_ += fields;
    if (*name != '\0') text_ += "}";
    text_ += '\n';
  }

  void conventions(proto::Conventions& out) const {
    const Conventions& in = model_.conventions;
    using Out = proto::Conventions;
    out.set_count_inputs(in.count_inputs);
    out.set_checkpoint_last_segment(in.checkpoint_last_segment);
    out.set_short_segment(in.short_segment_first ? Out::FIRST : Out::LAST);
    out.set_rerun(in.rerun == Conventions::Rerun::whole        ? Out::WHOLE
                  : in.rerun == Conventions::Rerun::early_stop ? Out::EARLY_STOP
                                                               : Out::STOP_BEFORE_BOUNDARY);
    out.set_boundary(in.physical_copy ? Out::PHYSICAL_COPY : Out::MERGE);
    out.set_drop(in.drop_at_region_end ? Out::REGION_END : Out::LAST_READ);
    out.set_returns_unknown(in.returns_unknown);
    out.set_regions_doubtful(in.regions_doubtful);
    out.set_release(in.frees_are_listed ? Out::LISTED : Out::LAST_USE);
  }

  void schedule() {
    using Order = Microbatches::Order;
    const Microbatches& in = model_.microbatches;
    if (in.count == 1 && in.stages == 1) return;
    proto::Schedule out;
    out.set_microbatches(static_cast<std::int64_t>(in.count));
    out.set_stages(static_cast<std::int64_t>(in.stages));
    out.set_stage(static_cast<std::int64_t>(in.stage));
    out.set_order(in.order == Order::one_by_one ? "fwd-bwd" : in.order == Order::all_forward ? "all-fwd" : "1f1b");
    line("schedule", out);
  }

  void physical() {
    const Physical& in = model_.physical;
    proto::Physical out;
    if (in.caching_allocator) out.set_allocator("cuda");
    out.set_allocator_settings(in.allocator_settings);
    out.set_heap(in.heap);
    if (in.context != 0) out.set_context(static_cast<std::int64_t>(in.context));
    if (in.communication != 0) out.set_communication(static_cast<std::int64_t>(in.communication));
    if (in.rng_state != 0) out.set_rng_state(static_cast<std::int64_t>(in.rng_state));
    if (out.ByteSizeLong() != 0) line("physical", out);
  }

  void tensor(std::uint32_t index) {
    const Tensor& in = model_.tensors[index];
    proto::Program::Tensor out;
    out.set_id(in.id);
    out.set_bytes(static_cast<std::int64_t>(in.bytes));
    if (in.storage != none) out.set_view_of(model_.tensors[in.storage].id);
    out.set_memory_class(std::string(trace::class_name(in.memory_class)));
    out.set_given(in.given);
    if (in.layer != (in.given ? 0 : -1)) out.set_layer(in.layer);
    out.set_for_backward(in.for_backward);
    out.set_accumulates(in.accumulates);
    out.set_wrapped_number(in.wrapped_number);
    out.set_rounded(in.rounded);
    out.set_no_output(in.no_output);
    line("tensor", out);
  }

  template <class Add>
  void names(Slice slice, Add add) const {
    for (const std::uint32_t tensor : model_.list(slice)) *add() = model_.tensors[tensor].id;
  }

  void op(const Op& in) {
    proto::Program::Op out;
    out.set_id(in.id);
    out.set_name(in.name);
    if (in.module != none) out.set_module(model_.modules[in.module]);
    if (in.phase != trace::Phase::forward) out.set_phase(std::string(trace::phase_name(in.phase)));
    names(in.reads, [&] { return out.add_reads(); });
    names(in.writes, [&] { return out.add_writes(); });
    names(in.saves, [&] { return out.add_saves(); });
    if (model_.conventions.frees_are_listed) names(in.frees, [&] { return out.add_frees(); });
    out.set_cost(static_cast<std::int64_t>(in.cost));
    if (in.workspace != 0) out.set_workspace(static_cast<std::int64_t>(in.workspace));
    if (in.saves.count != 0) out.set_packs(in.packs_before ? proto::Program::Op::BEFORE : proto::Program::Op::AFTER);
    if (in.random) out.set_random("yes");
    out.set_side_effect(in.side_effect);
    out.set_continues(in.continues);
    if (in.enters != none) out.set_enters(model_.modules[in.enters]);
    out.set_no_graph(in.no_graph);
    out.set_saves_static(in.saves_static);
    out.set_after_function(in.after_function);
    if (in.forward != none) out.set_backward_of(model_.ops[in.forward].id);
    line("op", out);
  }

  void region(const HandRegion& in) {
    proto::Region out;
    out.set_id(in.id);
    out.set_mode(in.mode == HandRegion::Mode::recompute ? proto::Region::RECOMPUTE
                 : in.mode == HandRegion::Mode::offload ? proto::Region::OFFLOAD
                                                        : proto::Region::SAVE);
    for (std::uint32_t op = in.begin; op < in.end; ++op) out.add_op(model_.ops[op].id);
    for (const std::string& name : in.save_ops) out.add_save_ops(name);
    for (const std::uint32_t tensor : in.tensors) out.add_tensor(model_.tensors[tensor].id);
    out.set_preserve_rng(in.preserve_rng);
    if (in.early_stop) out.set_early_stop(*in.early_stop);
    out.set_stash(static_cast<std::int64_t>(in.stash));
    line("region", out);
  }

  const Model& model_;
  google::protobuf::TextFormat::Printer printer_;
  std::string text_, indent_;
};

}  // namespace

std::string model_text(const Model& model) { return Writer(model).write(); }

}  // namespace liveset::model
