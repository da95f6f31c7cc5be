// Reads and validates model files. Everything that libprotobuf accepts is checked again here; messages name line and field.
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "proto/model.pb.h"
#include "viewer/allocator/settings.h"
#include "viewer/model/file_place.h"
#include "viewer/model/layer_reader.h"
#include "viewer/model/mlp_reader.h"
#include "viewer/model/model.h"
#include "viewer/model/policy.h"
#include "viewer/model/program_reader.h"
#include "viewer/model/transformer_reader.h"

namespace liveset::model {
namespace {

using google::protobuf::TextFormat;
using Tree = Place::Tree;

constexpr std::uint64_t max_file_bytes = std::uint64_t{64} << 20;
constexpr const char* example = "the smallest model is: chain { length: 6 bytes: 8 cost: 1 }";

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int, const std::string& message) override {
    if (line_ == -2) {
      line_ = line;
      message_ = message;
    }
  }
  bool any() const { return line_ != -2; }
  std::string text() const { return (line_ >= 0 ? "line " + std::to_string(line_ + 1) + ": " : std::string()) + message_; }

 private:
  int line_ = -2;
  std::string message_;
};

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file), errors_(file) {}

  Result<Model> read(const proto::Model& parsed, const Place& root) {
    Model& model = builder_.model;
    model.name = parsed.name();
    model.cost_unit = parsed.cost_unit();
    if (!model.cost_unit.empty() && !model.costs_are_times())
      errors_.fail_at(root, "cost_unit", -1, "'" + model.cost_unit + "' is not ns", "leave it out where costs are no nanoseconds");
    dims(parsed, root);
    conventions(parsed.conventions(), root.inner("conventions"), model.conventions);
    microbatches(parsed.schedule(), root.inner("schedule"));
    if (builder_.model.conventions.frees_are_listed && parsed.program_case() != proto::Model::kGeneral)
      errors_.fail_at(root.inner("conventions"), "release", -1, "is LISTED, and only ops of the general form list what they free");
    if (errors_.failed()) return errors_.take();
    switch (parsed.program_case()) {
      case proto::Model::kChain: read_chain(parsed.chain(), root.inner("chain"), dims_, errors_, builder_); break;
      case proto::Model::kGraph: read_graph(parsed.graph(), root.inner("graph"), dims_, errors_, builder_); break;
      case proto::Model::kGeneral: read_program(parsed.general(), root.inner("general"), dims_, errors_, builder_); break;
      case proto::Model::kRotorChain: read_rotor_chain(parsed.rotor_chain(), root.inner("rotor_chain"), errors_, builder_); break;
      case proto::Model::kMlp: mlp(parsed, root); break;
      case proto::Model::PROGRAM_NOT_SET:
        errors_.fail("it describes no step: no chain, graph, general, mlp, transformer or rotor_chain", example);
        break;
      case proto::Model::kTransformer:
        read_transformer(parsed.transformer(), root.inner("transformer"), parsed.schedule(), root.inner("schedule"), errors_, builder_);
        break;
    }
    if (!errors_.failed()) statics(parsed, root);
    if (!errors_.failed()) physical(parsed.physical(), root.inner("physical"));
    if (!errors_.failed() && parsed.has_mlp()) mlp_physical(parsed);
    if (!parsed.estimate().empty()) model.estimate += (model.estimate.empty() ? "" : "; ") + parsed.estimate();
    if (!errors_.failed()) expectations(parsed, root);
    if (errors_.failed()) return errors_.take();
    Result<Model> finished = builder_.finish();
    if (!finished) {
      Error error = finished.take_error();
      error.file = file_;
      error.what = one_line(error.what);
      return error;
    }
    read_regions(parsed, root, errors_, *finished);
    if (errors_.failed()) return errors_.take();
    return finished;
  }

 private:
  void dims(const proto::Model& parsed, const Place& root) {
    for (int i = 0; i < parsed.dim_size() && !errors_.failed(); ++i) {
      const proto::Dim& dim = parsed.dim(i);
      const Place place = root.inner("dim", i);
      if (!is_dim_name(dim.name())) {
        errors_.fail_at(place, "name", -1, "'" + dim.name() + "' is no name: letters, digits and _, not ceil, min or max");
        return;
      }
      if (!dim.has_value() && dim.expression().empty()) {
        errors_.fail(place.line("name", -1) + place.path + " '" + dim.name() + "' has no value", "give value: or expression:");
        return;
      }
      std::uint64_t value = 0;
      if (!errors_.size(place, "value", dim.has_value(), dim.value(), "expression", dim.expression(), dims_, value)) return;
      if (!dims_.emplace(dim.name(), static_cast<std::int64_t>(value)).second)
        errors_.fail_at(place, "name", -1, "'" + dim.name() + "' is a duplicate");
    }
  }

  // Unknown enum numbers survive parsing in proto3.
  void conventions(const proto::Conventions& stated, const Place& place, Conventions& out) {
    using Stated = proto::Conventions;
    if (!Stated::ShortSegment_IsValid(stated.short_segment())) errors_.fail_at(place, "short_segment", -1, "must be LAST or FIRST");
    if (!Stated::Rerun_IsValid(stated.rerun())) errors_.fail_at(place, "rerun", -1, "must be WHOLE, STOP_BEFORE_BOUNDARY or EARLY_STOP");
    if (!Stated::Boundary_IsValid(stated.boundary())) errors_.fail_at(place, "boundary", -1, "must be MERGE or PHYSICAL_COPY");
    if (!Stated::Drop_IsValid(stated.drop())) errors_.fail_at(place, "drop", -1, "must be LAST_READ or REGION_END");
    if (!Stated::Release_IsValid(stated.release())) errors_.fail_at(place, "release", -1, "must be LAST_USE or LISTED");
    if (stated.has_count_inputs()) out.count_inputs = stated.count_inputs();
    if (stated.has_checkpoint_last_segment()) out.checkpoint_last_segment = stated.checkpoint_last_segment();
    out.short_segment_first = stated.short_segment() == Stated::FIRST;
    out.rerun = stated.rerun() == Stated::WHOLE        ? Conventions::Rerun::whole
                : stated.rerun() == Stated::EARLY_STOP ? Conventions::Rerun::early_stop
                                                       : Conventions::Rerun::stop_before_boundary;
    out.physical_copy = stated.boundary() == Stated::PHYSICAL_COPY;
    out.drop_at_region_end = stated.drop() == Stated::REGION_END;
    out.frees_are_listed = stated.release() == Stated::LISTED;
    out.returns_unknown = stated.returns_unknown();
    out.regions_doubtful = stated.regions_doubtful();
  }

  void microbatches(const proto::Schedule& stated, const Place& place) {
    using Order = Microbatches::Order;
    Microbatches& out = builder_.model.microbatches;
    if (stated.has_microbatches()) errors_.number(place, "microbatches", -1, stated.microbatches(), 1, out.count);
    if (stated.has_stages()) errors_.number(place, "stages", -1, stated.stages(), 1, out.stages);
    if (stated.has_stage()) errors_.number(place, "stage", -1, stated.stage(), 0, out.stage);
    if (out.count > max_layers) errors_.fail_at(place, "microbatches", -1, "is above " + std::to_string(max_layers));
    if (out.stage >= out.stages) errors_.fail_at(place, "stage", -1, "must be below stages");
    const std::string& order = stated.order();
    if (order == "all-fwd")
      out.order = Order::all_forward;
    else if (order == "1f1b")
      out.order = Order::one_forward_one_backward;
    else if (!order.empty() && order != "fwd-bwd")
      errors_.fail_at(place, "order", -1, "'" + order + "' is none of fwd-bwd, all-fwd, 1f1b");
  }

  // Of PyTorch's step; where nothing else is said its regions are torch.utils.checkpoint's.
  void mlp(const proto::Model& parsed, const Place& root) {
    if (builder_.model.microbatches.count > 1) {
      errors_.fail_at(root.inner("schedule"), "microbatches", -1,
                      "is " + std::to_string(parsed.schedule().microbatches()) + ", and an mlp is one batch",
                      "write the step in the general form");
      return;
    }
    if (!parsed.has_conventions()) {
      builder_.model.conventions.rerun = Conventions::Rerun::early_stop;
      builder_.model.conventions.physical_copy = true;
    }
    read_mlp(parsed.mlp(), root.inner("mlp"), errors_, builder_);
  }

  void statics(const proto::Model& parsed, const Place& root) {
    std::set<std::string> ids;  // those of a short form are its own
    for (const StaticStorage& storage : builder_.model.statics) ids.insert(storage.id);
    for (int i = 0; i < parsed.static_storage_size() && !errors_.failed(); ++i) {
      const proto::StaticStorage& stated = parsed.static_storage(i);
      const Place place = root.inner("static_storage", i);
      StaticStorage storage;
      storage.id = stated.id();
      storage.rounded = stated.rounded();
      if (storage.id.empty()) errors_.fail(place.line("id", -1) + place.path + " has no id");
      if (!ids.insert(storage.id).second) errors_.fail_at(place, "id", -1, "'" + storage.id + "' is a duplicate");
      if (!stated.memory_class().empty()) read_class(stated.memory_class(), place, "memory_class", errors_, storage.memory_class);
      errors_.size(place, "bytes", stated.has_bytes(), stated.bytes(), "size", stated.size(), dims_, storage.bytes);
      errors_.number(place, "from_step", -1, stated.from_step(), 0, storage.from_step);
      builder_.model.statics.push_back(std::move(storage));
    }
  }

  void physical(const proto::Physical& stated, const Place& place) {
    Physical& out = builder_.model.physical;
    if (stated.allocator() == "cuda")
      out.caching_allocator = true;
    else if (!stated.allocator().empty() && stated.allocator() != "none")
      errors_.fail_at(place, "allocator", -1, "'" + stated.allocator() + "' is none of none, cuda");
    out.allocator_settings = stated.allocator_settings();
    if (const Result<allocator::Settings> settings = allocator::parse_settings(out.allocator_settings); !settings)
      errors_.fail_at(place, "allocator_settings", -1, settings.error().what);
    out.heap = stated.heap();
    if (stated.has_context()) errors_.number(place, "context", -1, stated.context(), 0, out.context);
    if (stated.has_communication()) errors_.number(place, "communication", -1, stated.communication(), 0, out.communication);
    if (stated.has_rng_state()) errors_.number(place, "rng_state", -1, stated.rng_state(), 0, out.rng_state);
    if (out.context > max_total_bytes || out.communication > max_total_bytes || out.rng_state > (std::uint64_t{1} << 30))
      errors_.fail(place.path + " has sizes above 2^62, or a random state above 1 GiB");
  }

  // A region keeps the state of the CPU's generator.
  void mlp_physical(const proto::Model& parsed) {
    Physical& out = builder_.model.physical;
    std::string& estimate = builder_.model.estimate;
    if (parsed.mlp().element_bytes() == 2)
      estimate = "copies that matrix products in 16 bits make depend on the processor and are left out";
    if (out.caching_allocator) {
      estimate = "the blocks are those of the step on the CPU; a device's kernels have workspaces of their own";
      return;
    }
    if (!parsed.physical().has_rng_state()) out.rng_state = cpu_rng_state;
    if (out.heap.empty()) out.heap = "cpu";
  }

  void expectations(const proto::Model& parsed, const Place& root) {
    for (int i = 0; i < parsed.expect_size() && !errors_.failed(); ++i) {
      const proto::Expectation& stated = parsed.expect(i);
      const Place place = root.inner("expect", i);
      Expectation expectation;
      expectation.policy = stated.policy().empty() ? "save-all" : stated.policy();
      if (const Result<Policy> policy = parse_policy(expectation.policy); !policy)
        errors_.fail(place.line("policy", -1) + place.path + ": " + policy.error().what);
      constexpr std::array counters{"peak_ids", "peak_bytes", "requested", "allocated", "active", "reserved", "forward_cost"};
      expectation.counter = stated.counter();
      if (std::find(counters.begin(), counters.end(), stated.counter()) == counters.end())
        errors_.fail_at(place, "counter", -1,
                        "'" + stated.counter() + "' is none of peak_ids, peak_bytes, requested, allocated, active, reserved, forward_cost");
      expectation.policy_place = place.line(stated.policy().empty() ? "counter" : "policy", -1) + place.path;
      expectation.counter_place = place.line("counter", -1) + place.path + ".counter";
      errors_.number(place, "value", -1, stated.value(), 0, expectation.value);
      expectation.tolerance = stated.tolerance();
      if (!(expectation.tolerance >= 0 && expectation.tolerance <= 1))
        errors_.fail_at(place, "tolerance", -1, "must be a share between 0 and 1");
      builder_.model.expectations.push_back(std::move(expectation));
    }
  }

  std::string file_;
  FileErrors errors_;
  ModelBuilder builder_;
  Dims dims_;
};

Error unreadable(const std::string& file, std::string what, std::string hint = "") {
  return {ErrorKind::unreadable, file, {}, std::move(what), std::move(hint)};
}

bool looks_binary(std::string_view text) { return text.substr(0, 4096).find('\0') != std::string_view::npos; }

}  // namespace

Result<Model> parse_model(std::string_view text, const std::string& file) {
  const google::protobuf::LogSilencer silence;  // its messages go to stderr, ours say more
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return unreadable(file, "bad model: the file is empty", example);
  if (looks_binary(text))
    return unreadable(file, "bad model: this is a binary file",
                      "a model is text; a trace belongs to summary, peak, ledger or before the model in compare");
  proto::Model parsed;
  Place root;
  root.type = proto::Model::descriptor();
  if (text[first] == '{') {
    const auto status = google::protobuf::util::JsonStringToMessage(google::protobuf::StringPiece(text.data(), text.size()), &parsed);
    if (!status.ok()) {
      return unreadable(file, one_line("bad model: " + std::string(status.message())), "JSON names are those of proto/model.proto");
    }
    return Reader(file).read(parsed, root);
  }
  FirstError errors;
  Tree tree;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&tree);
  parser.SetRecursionLimit(16);
  if (!parser.ParseFromString(std::string(text), &parsed) || errors.any())
    return unreadable(file, one_line("bad model: " + errors.text()), example);
  root.tree = &tree;
  return Reader(file).read(parsed, root);
}

Result<Model> read_model(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0)
    return unreadable(path, std::strerror(errno), "give a model file, as samples/tanh_chain/chain.textproto");
  if (S_ISDIR(info.st_mode)) return unreadable(path, "is a directory", "give a model file, as samples/tanh_chain/chain.textproto");
  if (!S_ISREG(info.st_mode)) return unreadable(path, "is not a regular file", "copy what it gives to a file first");
  if (static_cast<std::uint64_t>(info.st_size) > max_file_bytes)
    return unreadable(path, "is larger than 64 MiB, the limit for a model file");
  std::ifstream stream(path, std::ios::binary);
  std::stringstream content;
  // It may grow meanwhile: stop reading above the limit.
  std::string buffer(1U << 16, '\0');
  std::uint64_t total = 0;
  while (stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || stream.gcount() > 0) {
    total += static_cast<std::uint64_t>(stream.gcount());
    if (total > max_file_bytes) return unreadable(path, "is larger than 64 MiB, the limit for a model file");
    content.write(buffer.data(), stream.gcount());
  }
  if (!stream.eof()) return unreadable(path, std::string("cannot be read: ") + std::strerror(errno));
  return parse_model(content.str(), path);
}

}  // namespace liveset::model
