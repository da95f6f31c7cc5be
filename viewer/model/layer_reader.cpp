// Reads chains and graphs: layers that each make one value.
#include "viewer/model/layer_reader.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

namespace liveset::model {
namespace {

constexpr const char* example = "the smallest model is: chain { length: 6 bytes: 8 cost: 1 }";

class LayerReader {
 public:
  LayerReader(const Dims& dims, FileErrors& errors, ModelBuilder& builder) : dims_(dims), errors_(errors), builder_(builder) {}

  void chain(const proto::Chain& chain, const Place& place) {
    std::uint64_t length = 0;
    if (!number(place, "length", -1, chain.length(), 1, length)) return;
    if (length > max_layers) {
      fail_at(place, "length", -1, "is " + std::to_string(length) + ", must be at most " + std::to_string(max_layers));
      return;
    }
    std::vector<std::uint64_t> bytes, cost;
    if (!sizes(place, "bytes", chain.has_bytes(), chain.bytes(), "size", chain.size(), "layer_bytes", chain.layer_bytes(), length + 1,
               bytes))
      return;
    if (!sizes(place, "cost", chain.has_cost(), chain.cost(), "work", chain.work(), "layer_cost", chain.layer_cost(), length, cost)) return;
    add_chain(builder_, bytes, cost);
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
      const proto::Graph::Input& from = graph.input(i);
      if (!size(place.inner("input", i), "bytes", from.has_bytes(), from.bytes(), "size", from.size(), dims_, input.bytes)) return;
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
      if (!size(inner, "bytes", from.has_bytes(), from.bytes(), "size", from.size(), dims_, value.bytes)) return;
      if (!size(inner, "cost", from.has_cost(), from.cost(), "work", from.work(), dims_, cost)) return;
      std::vector<std::uint32_t> moved_reads;
      for (const std::uint32_t read : reads[sequence[i]]) moved_reads.push_back(moved[read]);
      add_layer(builder_, from.id(), std::move(moved_reads), builder_.add_tensor(std::move(value)), cost);
    }
    find_loss(graph, place, moved);
  }

 private:
  bool fail(const std::string& what, std::string hint = "") { return errors_.fail(what, std::move(hint)); }
  bool fail_at(const Place& place, const char* field, int index, const std::string& what, std::string hint = "") {
    return errors_.fail_at(place, field, index, what, std::move(hint));
  }
  bool number(const Place& place, const char* field, int index, std::int64_t value, std::int64_t least, std::uint64_t& out) {
    return errors_.number(place, field, index, value, least, out);
  }
  template <class... Rest>
  bool size(Rest&&... rest) {
    return errors_.size(std::forward<Rest>(rest)...);
  }

  // `one` for every entry, or a list of exactly `count` entries.
  template <class List>
  bool sizes(const Place& place, const char* one, bool has_one, std::int64_t value, const char* expression, const std::string& text,
             const char* many, const List& list, std::uint64_t count, std::vector<std::uint64_t>& out) {
    if (list.empty()) {
      std::uint64_t each = 1;
      if (!size(place, one, has_one, value, expression, text, dims_, each)) return false;
      out.assign(count, each);
      return true;
    }
    if (has_one || !text.empty())
      return fail_at(place, many, 0, std::string("and ") + (has_one ? one : expression) + " are both given; give one of them");
    if (static_cast<std::uint64_t>(list.size()) != count)
      return fail_at(place, many, 0, "has " + std::to_string(list.size()) + " entries, must have " + std::to_string(count));
    out.resize(count);
    for (int i = 0; i < list.size(); ++i)
      if (!number(place, many, i, list[i], 0, out[static_cast<std::size_t>(i)])) return false;
    return true;
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
    std::vector<bool> is_on_path(waiting.size());
    while (!is_on_path[layer]) {
      is_on_path[layer] = true;
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

  const Dims& dims_;
  FileErrors& errors_;
  ModelBuilder& builder_;
  std::unordered_map<std::string, std::uint32_t> index_;
};

template <class List>
bool copy_list(const Place& place, const char* field, const List& stated, std::size_t entries, FileErrors& errors,
               std::vector<std::uint64_t>& out) {
  if (static_cast<std::size_t>(stated.size()) != entries)
    return errors.fail_at(place, field, -1, "has " + std::to_string(stated.size()) + " entries, must have " + std::to_string(entries));
  out.resize(entries);
  for (int i = 0; i < stated.size(); ++i)
    if (!errors.number(place, field, i, stated[i], 0, out[static_cast<std::size_t>(i)])) return false;
  return true;
}

}  // namespace

void read_rotor_chain(const proto::RotorChain& stated, const Place& place, FileErrors& errors, ModelBuilder& builder) {
  plan::RotorChain chain;
  const auto stages = static_cast<std::size_t>(stated.abar_size());
  if (stages == 0) {
    errors.fail(place.path + " has no stage", "abar, uf, ub, of and ob have an entry a stage, a and delta one more");
    return;
  }
  if (!copy_list(place, "a", stated.a(), stages + 1, errors, chain.a) ||
      !copy_list(place, "abar", stated.abar(), stages, errors, chain.abar) ||
      !copy_list(place, "delta", stated.delta(), stages + 1, errors, chain.delta) ||
      !copy_list(place, "uf", stated.uf(), stages, errors, chain.uf) || !copy_list(place, "ub", stated.ub(), stages, errors, chain.ub) ||
      !copy_list(place, "of", stated.of(), stages, errors, chain.of) || !copy_list(place, "ob", stated.ob(), stages, errors, chain.ob))
    return;
  if (const Status status = plan::check(chain); !status) {
    errors.fail(place.path + ": " + status.error().what, status.error().hint);
    return;
  }
  add_rotor_chain(builder, chain);
}

void read_chain(const proto::Chain& chain, const Place& place, const Dims& dims, FileErrors& errors, ModelBuilder& builder) {
  LayerReader(dims, errors, builder).chain(chain, place);
}
void read_graph(const proto::Graph& graph, const Place& place, const Dims& dims, FileErrors& errors, ModelBuilder& builder) {
  LayerReader(dims, errors, builder).graph(graph, place);
}

}  // namespace liveset::model
