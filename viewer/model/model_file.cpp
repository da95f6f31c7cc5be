// Reads and validates model files. Everything that libprotobuf accepts is checked again here; messages name line and field.
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <queue>
#include <sstream>
#include <unordered_map>

#include "proto/model.pb.h"
#include "viewer/model/model.h"

namespace liveset::model {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;
using Tree = TextFormat::ParseInfoTree;

constexpr std::uint64_t max_file_bytes = std::uint64_t{64} << 20;
constexpr const char* example = "the smallest model is: chain { length: 6 bytes: 8 cost: 1 }";

// Names from a file may hold anything; a message is one line and must not act on the terminal.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

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

// Where a message stands in the file, for error texts; index -1 is a field that is not repeated. The tree is null for JSON, which keeps no
// lines.
struct Place {
  const Tree* tree = nullptr;
  const google::protobuf::Descriptor* type = nullptr;
  std::string path;  // "graph.layer[2]"

  const FieldDescriptor* field(const char* name) const { return type->FindFieldByName(name); }
  Place inner(const char* name, int index = -1) const {
    Place place;
    place.tree = tree != nullptr ? tree->GetTreeForNested(field(name), index) : nullptr;
    place.type = field(name)->message_type();
    place.path = (path.empty() ? "" : path + ".") + name + (index >= 0 ? "[" + std::to_string(index) + "]" : "");
    return place;
  }
  std::string line(const char* name, int index) const {
    if (tree == nullptr) return "";
    int found = tree->GetLocation(field(name), index).line;
    if (found < 0 && index > 0) found = tree->GetLocation(field(name), 0).line;  // [a, b]: only the list's begin is known
    return found < 0 ? "" : "line " + std::to_string(found + 1) + ": ";
  }
};

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  Result<Model> read(const proto::Model& parsed, const Place& root) {
    Model& model = builder_.model;
    const proto::Conventions& stated = parsed.conventions();
    if (stated.has_count_inputs()) model.conventions.count_inputs = stated.count_inputs();
    if (stated.has_checkpoint_last_segment()) model.conventions.checkpoint_last_segment = stated.checkpoint_last_segment();
    conventions(stated, root.inner("conventions"), model.conventions);
    if (failed_) return std::move(error_);
    switch (parsed.program_case()) {
      case proto::Model::kChain: chain(parsed.chain(), root.inner("chain")); break;
      case proto::Model::kGraph: graph(parsed.graph(), root.inner("graph")); break;
      default: fail("it has neither a chain nor a graph", example); break;
    }
    if (failed_) return std::move(error_);
    model.name = parsed.name();
    Result<Model> finished = builder_.finish();
    if (!finished) {
      Error error = finished.take_error();
      error.file = file_;
      return error;
    }
    return finished;
  }

 private:
  bool fail(const std::string& what, std::string hint = "") {
    if (!failed_) error_ = {ErrorKind::unreadable, file_, {}, one_line("bad model: " + what), std::move(hint)};
    failed_ = true;
    return false;
  }
  bool fail_at(const Place& place, const char* field, int index, const std::string& what, std::string hint = "") {
    const std::string entry = index >= 0 ? "[" + std::to_string(index) + "]" : "";
    return fail(place.line(field, index) + place.path + "." + field + entry + " " + what, std::move(hint));
  }
  bool number(const Place& place, const char* field, int index, std::int64_t value, std::int64_t least, std::uint64_t& out) {
    if (value < least) return fail_at(place, field, index, "is " + std::to_string(value) + ", must be at least " + std::to_string(least));
    out = static_cast<std::uint64_t>(value);
    return true;
  }

  // Unknown enum numbers survive parsing in proto3.
  void conventions(const proto::Conventions& stated, const Place& place, Conventions& out) {
    if (!proto::Conventions::ShortSegment_IsValid(stated.short_segment())) fail_at(place, "short_segment", -1, "must be LAST or FIRST");
    if (!proto::Conventions::Rerun_IsValid(stated.rerun())) fail_at(place, "rerun", -1, "must be WHOLE or STOP_BEFORE_BOUNDARY");
    if (!proto::Conventions::Boundary_IsValid(stated.boundary())) fail_at(place, "boundary", -1, "must be MERGE or PHYSICAL_COPY");
    out.short_segment_first = stated.short_segment() == proto::Conventions::FIRST;
    out.rerun = stated.rerun() == proto::Conventions::WHOLE        ? Conventions::Rerun::whole
                : stated.rerun() == proto::Conventions::EARLY_STOP ? Conventions::Rerun::early_stop
                                                                   : Conventions::Rerun::stop_before_boundary;
    out.physical_copy = stated.boundary() == proto::Conventions::PHYSICAL_COPY;
  }

  // `one` for every entry, or a list of exactly `count` entries.
  template <class List>
  bool sizes(const Place& place, const char* one, bool has_one, std::int64_t value, const char* many, const List& list, std::uint64_t count,
             std::vector<std::uint64_t>& out) {
    if (list.empty()) {
      std::uint64_t size = 1;
      if (has_one && !number(place, one, -1, value, 0, size)) return false;
      out.assign(count, size);
      return true;
    }
    if (has_one) return fail_at(place, many, 0, std::string("and ") + one + " are both given; give one of them");
    if (static_cast<std::uint64_t>(list.size()) != count)
      return fail_at(place, many, 0, "has " + std::to_string(list.size()) + " entries, must have " + std::to_string(count));
    out.resize(count);
    for (int i = 0; i < list.size(); ++i)
      if (!number(place, many, i, list[i], 0, out[static_cast<std::size_t>(i)])) return false;
    return true;
  }

  void chain(const proto::Chain& chain, const Place& place) {
    std::uint64_t length = 0;
    if (!number(place, "length", -1, chain.length(), 1, length)) return;
    if (length > max_layers) {
      fail_at(place, "length", -1, "is " + std::to_string(length) + ", must be at most " + std::to_string(max_layers));
      return;
    }
    std::vector<std::uint64_t> bytes, cost;
    if (!sizes(place, "bytes", chain.has_bytes(), chain.bytes(), "layer_bytes", chain.layer_bytes(), length + 1, bytes)) return;
    if (!sizes(place, "cost", chain.has_cost(), chain.cost(), "layer_cost", chain.layer_cost(), length, cost)) return;
    add_chain(builder_, bytes, cost);
  }

  // Ids of inputs and layers, each once: id -> index, inputs first.
  bool names(const proto::Graph& graph, const Place& place) {
    const auto add = [&](const char* list, int index, const std::string& id) {
      const Place inner = place.inner(list, index);
      if (id.empty()) return fail(inner.line("id", -1) + inner.path + " has no id");
      if (!index_.emplace(id, static_cast<std::uint32_t>(index_.size())).second)
        return fail_at(inner, "id", -1, "'" + id + "' is a duplicate; every input and layer needs an id of its own");
      return true;
    };
    for (int i = 0; i < graph.input_size(); ++i)
      if (!add("input", i, graph.input(i).id())) return false;
    for (int i = 0; i < graph.layer_size(); ++i)
      if (!add("layer", i, graph.layer(i).id())) return false;
    return true;
  }

  bool reads_of(const proto::Graph& graph, const Place& place, std::vector<std::vector<std::uint32_t>>& reads) {
    reads.resize(static_cast<std::size_t>(graph.layer_size()));
    for (int i = 0; i < graph.layer_size(); ++i) {
      const Place inner = place.inner("layer", i);
      if (graph.layer(i).reads().empty())
        return fail(inner.line("id", -1) + inner.path + " '" + graph.layer(i).id() + "' reads nothing", "make it an input");
      for (int r = 0; r < graph.layer(i).reads_size(); ++r) {
        const auto found = index_.find(graph.layer(i).reads(r));
        if (found == index_.end()) return fail_at(inner, "reads", r, "'" + graph.layer(i).reads(r) + "' is no input and no layer");
        reads[static_cast<std::size_t>(i)].push_back(found->second);
      }
    }
    return true;
  }

  // Order in which the layers can run, ties in file order; says the cycle when there is none.
  bool order(const proto::Graph& graph, const Place& place, const std::vector<std::vector<std::uint32_t>>& reads,
             std::vector<std::uint32_t>& out) {
    const auto inputs = static_cast<std::uint32_t>(graph.input_size());
    std::vector<std::uint32_t> waiting(reads.size());
    std::vector<std::vector<std::uint32_t>> readers(reads.size());
    for (std::uint32_t layer = 0; layer < reads.size(); ++layer)
      for (const std::uint32_t read : reads[layer])
        if (read >= inputs) {
          ++waiting[layer];
          readers[read - inputs].push_back(layer);
        }
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
    for (std::uint32_t layer = 0; layer < reads.size(); ++layer)
      if (waiting[layer] == 0) ready.push(layer);
    while (!ready.empty()) {
      const std::uint32_t layer = ready.top();
      ready.pop();
      out.push_back(layer);
      for (const std::uint32_t reader : readers[layer])
        if (--waiting[reader] == 0) ready.push(reader);
    }
    if (out.size() == reads.size()) return true;
    return fail_cycle(graph, place, reads, waiting);
  }

  // Every layer that still waits reads one that still waits: walk back until one comes twice.
  bool fail_cycle(const proto::Graph& graph, const Place& place, const std::vector<std::vector<std::uint32_t>>& reads,
                  const std::vector<std::uint32_t>& waiting) {
    const auto inputs = static_cast<std::uint32_t>(graph.input_size());
    auto layer =
        static_cast<std::uint32_t>(std::find_if(waiting.begin(), waiting.end(), [](std::uint32_t w) { return w != 0; }) - waiting.begin());
    std::vector<std::uint32_t> path;
    while (std::find(path.begin(), path.end(), layer) == path.end()) {
      path.push_back(layer);
      for (const std::uint32_t read : reads[layer])
        if (read >= inputs && waiting[read - inputs] != 0) {
          layer = read - inputs;
          break;
        }
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), layer));
    path.push_back(layer);
    std::string text;
    constexpr std::size_t shown = 8;
    for (std::size_t i = 0; i < path.size() && i < shown; ++i)
      text += (i == 0 ? "" : " reads ") + graph.layer(static_cast<int>(path[i])).id();
    if (path.size() > shown) text += " ... reads " + graph.layer(static_cast<int>(path.back())).id();
    return fail(place.inner("layer", static_cast<int>(layer)).line("id", -1) + place.path + ": the layers form a cycle: " + text,
                "a training step is unrolled: give each repetition ids of its own");
  }

  void graph(const proto::Graph& graph, const Place& place) {
    if (graph.layer().empty()) {
      fail(place.path + " has no layer", example);
      return;
    }
    std::vector<std::vector<std::uint32_t>> reads;
    std::vector<std::uint32_t> sequence;
    if (!names(graph, place) || !reads_of(graph, place, reads) || !order(graph, place, reads, sequence)) return;
    const auto inputs = static_cast<std::uint32_t>(graph.input_size());
    std::vector<std::uint32_t> moved(index_.size());  // index in the file -> value
    for (std::uint32_t i = 0; i < inputs; ++i) moved[i] = i;
    for (std::uint32_t i = 0; i < sequence.size(); ++i) moved[inputs + sequence[i]] = inputs + i;
    for (int i = 0; i < graph.input_size(); ++i) {
      Tensor input;
      input.id = graph.input(i).id();
      input.bytes = 1;
      input.layer = 0;
      if (graph.input(i).has_bytes() && !number(place.inner("input", i), "bytes", -1, graph.input(i).bytes(), 0, input.bytes)) return;
      builder_.model.inputs.push_back(builder_.add_tensor(std::move(input)));
    }
    for (std::uint32_t i = 0; i < sequence.size(); ++i) {
      const proto::Graph::Layer& from = graph.layer(static_cast<int>(sequence[i]));
      const Place inner = place.inner("layer", static_cast<int>(sequence[i]));
      Tensor value;
      value.id = from.id();
      value.bytes = 1;
      value.layer = i + 1;
      std::uint64_t cost = 1;
      if (from.has_bytes() && !number(inner, "bytes", -1, from.bytes(), 0, value.bytes)) return;
      if (from.has_cost() && !number(inner, "cost", -1, from.cost(), 0, cost)) return;
      std::vector<std::uint32_t> moved_reads;
      for (const std::uint32_t read : reads[sequence[i]]) moved_reads.push_back(moved[read]);
      add_layer(builder_, from.id(), std::move(moved_reads), builder_.add_tensor(std::move(value)), cost);
    }
    find_loss(graph, place, moved);
  }

  // Every value but the loss's must be read, else the step has no use for it and nobody can say when it dies.
  void find_loss(const proto::Graph& graph, const Place& place, const std::vector<std::uint32_t>& moved) {
    const Model& model = builder_.model;
    std::vector<bool> read(index_.size());
    for (const Op& op : model.ops)
      for (const std::uint32_t value : model.list(op.reads)) read[value] = true;
    std::uint32_t stated = none;
    if (!graph.loss().empty()) {
      const auto found = index_.find(graph.loss());
      if (found == index_.end() || found->second < static_cast<std::uint32_t>(graph.input_size())) {
        fail_at(place, "loss", -1, "'" + graph.loss() + "' is no layer");
        return;
      }
      stated = moved[found->second];
      read[stated] = true;
    }
    const auto is_input = [&](std::uint32_t value) { return value < model.inputs.size(); };
    std::vector<std::uint32_t> unread;
    for (std::uint32_t value = 0; value < read.size(); ++value)
      if (!read[value]) unread.push_back(value);
    if (stated == none) {
      const auto last = std::find_if(unread.begin(), unread.end(), [&](std::uint32_t value) { return !is_input(value); });
      stated = last == unread.end() ? static_cast<std::uint32_t>(model.tensors.size() - 1) : *last;
      if (last != unread.end()) unread.erase(last);
    }
    add_loss_and_backward(builder_, stated);
    if (!unread.empty())
      fail(place.path + ": '" + model.tensors[unread.front()].id + "' is read by no layer and is not the loss's",
           "remove it, or let a layer read it");
  }

  std::string file_;
  bool failed_ = false;
  Error error_;
  std::unordered_map<std::string, std::uint32_t> index_;
  ModelBuilder builder_;
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
