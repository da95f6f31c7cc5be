// Random model files in the general form: forward ops that read, make and save, their backward, statics, dims, views, hand-made regions,
// microbatches, every convention. What they say is consistent, so each must be read and predicted; and policies of every form for one.
#pragma once
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "viewer/model/policy.h"

namespace liveset::test {

class RandomModel {
 public:
  explicit RandomModel(std::uint64_t seed) : random_(seed) {}

  std::string text() {
    tensors_.clear();
    ops_.clear();
    listed_ = chance(3);
    region_end_ = chance(listed_ ? 2 : 6);
    reads_known_ = !region_end_ || chance(2);
    short_backward_ = !listed_ && chance(2);
    modules_ = chance(2);
    forward();
    backward();
    if (listed_) list_frees();
    return head() + program() + regions();
  }

 private:
  struct Tensor {
    std::string id, fields;
    bool given = false, accumulates = false, backward_only = false;
  };
  struct Op {
    std::string id, phase, fields;
    std::vector<std::size_t> reads, writes, saves, frees;
    std::size_t backward_of = none;
  };
  static constexpr std::size_t none = ~std::size_t{0};

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool chance(std::uint64_t of) { return below(of) == 0; }
  static std::string quoted(const std::string& text) { return "'" + text + "'"; }
  std::string number(const char* plain, const char* expression) {
    if (chance(4))
      return std::string(" ") + expression + ": " + quoted(std::to_string(below(5)) + "*N + ceil(M, " + std::to_string(1 + below(9)) + ")");
    return std::string(" ") + plain + ": " + std::to_string(chance(9) ? 0 : below(chance(5) ? 3'000'000 : 3000));
  }

  std::size_t tensor(const std::string& id, const std::string& more = "") {
    Tensor made;
    made.id = id;
    made.fields = number("bytes", "size") + more;
    tensors_.push_back(std::move(made));
    return tensors_.size() - 1;
  }

  void forward() {
    std::vector<std::size_t> pool;
    for (std::uint64_t i = 0; i <= below(2); ++i) {
      pool.push_back(tensor("x" + std::to_string(i)));
      tensors_.back().given = true;
    }
    const std::uint64_t count = 1 + below(8);
    for (std::uint64_t i = 0; i < count; ++i) {
      Op op;
      op.id = "f" + std::to_string(i);
      op.fields = number("cost", "work") + (chance(3) ? number("workspace", "workspace_size") : "");
      if (!chance(4)) op.fields += " name: " + quoted(std::vector<std::string>{"AddmmBackward0", "MulBackward0", "aten.gelu"}[below(3)]);
      if (modules_ && !chance(6)) op.fields += " module: " + quoted("Net.b." + std::to_string(i / 2) + (chance(2) ? ".ln" : ""));
      if (chance(5)) op.fields += " random: 'philox'";
      if (i > 0 && chance(6)) op.fields += " continues: true";
      if (reads_known_)
        for (std::uint64_t r = below(3); r > 0 || op.reads.empty(); r -= r > 0)
          op.reads.push_back(pool[chance(2) ? pool.size() - 1 : below(pool.size())]);
      std::vector<std::size_t> made;
      for (std::uint64_t w = 0; w <= below(3); ++w) {
        const std::string id = "t" + std::to_string(i) + "." + std::to_string(w);
        const bool view = chance(8);
        made.push_back(tensor(id, view ? " view_of: " + quoted(tensors_[pool[below(pool.size())]].id) : ""));
        op.writes.push_back(made.back());
        if (view) op.writes.pop_back();
        if (view && !reads_known_) made.pop_back();
        if (view) continue;
        const bool saved = chance(2);
        if (saved) op.saves.push_back(made.back());
        if (saved && chance(4)) {
          tensors_[made.back()].fields += " for_backward: true";
          made.pop_back();
        } else if (saved && chance(9)) {
          tensors_[made.back()].fields += " wrapped_number: true";
        }
      }
      // What an op makes it packs after it has run.
      if (chance(3)) op.fields += op.saves.empty() && chance(2) ? " packs: BEFORE" : " packs: AFTER";
      for (const std::size_t read : op.reads)
        if (chance(2)) op.saves.push_back(read);
      pool.insert(pool.end(), made.begin(), made.end());
      ops_.push_back(std::move(op));
    }
    forwards_ = ops_.size();
    Op loss;
    loss.id = "loss";
    loss.phase = "loss";
    if (reads_known_ || chance(2)) loss.reads.push_back(pool.back());
    if (chance(2)) loss.writes.push_back(tensor("l"));
    if (!loss.reads.empty() || !loss.writes.empty()) ops_.push_back(std::move(loss));
  }

  void backward() {
    std::size_t gradient = none;
    std::vector<std::size_t> kept;
    for (std::size_t i = forwards_; i-- > 0;) {
      if (ops_[i].saves.empty() && chance(2)) continue;
      const std::string number_text = std::to_string(i);
      Op op;
      op.id = "b" + number_text;
      op.phase = "backward";
      op.backward_of = i;
      op.fields = (chance(2) ? number("cost", "work") : "") + (chance(4) ? number("workspace", "workspace_size") : "");
      if (!short_backward_ && reads_known_) op.reads = ops_[i].saves;
      if (gradient != none && (reads_known_ || chance(3))) op.reads.push_back(gradient);
      if (chance(2)) {
        gradient = tensor("g" + number_text, " memory_class: 'activation_gradient'");
        op.writes.push_back(gradient);
      }
      if (chance(3)) {
        kept.push_back(tensor("dw" + number_text, " accumulates: true memory_class: 'gradient'"));
        tensors_.back().accumulates = true;
        op.writes.push_back(kept.back());
      }
      ops_.push_back(std::move(op));
    }
    if (!chance(3)) return;
    Op optimizer;
    optimizer.id = "adam";
    optimizer.phase = "optimizer";
    optimizer.reads = kept;
    optimizer.fields = number("workspace", "workspace_size");
    ops_.push_back(std::move(optimizer));
  }

  // Each at its last use or later, or never: then the program holds on to it.
  void list_frees() {
    std::vector<std::size_t> last(tensors_.size(), none);
    for (std::size_t op = 0; op < ops_.size(); ++op) {
      for (const auto* list : {&ops_[op].reads, &ops_[op].writes})
        for (const std::size_t tensor : *list) last[tensor] = std::max(op, last[tensor] == none ? 0 : last[tensor]);
      if (ops_[op].backward_of != none)
        for (const std::size_t tensor : ops_[ops_[op].backward_of].saves) last[tensor] = op;
    }
    // What a view is used for, its storage is.
    for (std::size_t tensor = tensors_.size(); tensor-- > 0;) {
      const std::size_t storage = storage_of(tensor);
      if (storage == tensor || last[tensor] == none) continue;
      last[storage] = last[storage] == none ? last[tensor] : std::max(last[storage], last[tensor]);
    }
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      if (last[tensor] == none || storage_of(tensor) != tensor || tensors_[tensor].given || tensors_[tensor].accumulates || chance(8))
        continue;
      const std::size_t at = std::min<std::size_t>(ops_.size() - 1, last[tensor] + (chance(3) ? below(4) : 0));
      ops_[at].frees.push_back(tensor);
    }
  }
  std::size_t storage_of(std::size_t tensor) const {
    const std::size_t at = tensors_[tensor].fields.find("view_of: '");
    if (at == std::string::npos) return tensor;
    const std::size_t begin = at + 10;
    const std::string id = tensors_[tensor].fields.substr(begin, tensors_[tensor].fields.find('\'', begin) - begin);
    for (std::size_t other = 0; other < tensor; ++other)
      if (tensors_[other].id == id) return storage_of(other);
    return tensor;
  }

  std::string head() {
    std::string text =
        "name: 'random'\ndim { name: 'N' value: " + std::to_string(1 + below(500)) + " }\ndim { name: 'M' expression: '2*N + 7' }\n";
    text += "conventions {";
    if (chance(3)) text += " count_inputs: false";
    if (chance(3)) text += " checkpoint_last_segment: false";
    if (chance(3)) text += " short_segment: FIRST";
    text += std::vector<std::string>{"", " rerun: STOP_BEFORE_BOUNDARY", " rerun: EARLY_STOP"}[below(3)];
    if (chance(3)) text += " boundary: PHYSICAL_COPY";
    if (region_end_) text += " drop: REGION_END";
    if (listed_) text += " release: LISTED";
    text += " }\n";
    for (std::uint64_t i = below(3); i > 0; --i)
      text += "static_storage { id: 'w" + std::to_string(i) + "'" + number("bytes", "size") + " from_step: " + std::to_string(below(3)) +
              " }\n";
    if (chance(3)) {
      const std::uint64_t stages = 1 + below(4);
      text += "schedule { microbatches: " + std::to_string(1 + below(4)) + " stages: " + std::to_string(stages) +
              " stage: " + std::to_string(below(stages)) + std::vector<std::string>{"", " order: 'all-fwd'", " order: '1f1b'"}[below(3)] +
              " }\n";
    }
    if (chance(2)) text += "physical { allocator: 'cuda' context: 5000 rng_state: " + std::to_string(below(3) * 16) + " }\n";
    return text;
  }

  std::string program() {
    std::string text = "general {\n";
    for (const Tensor& tensor : tensors_)
      text += "  tensor { id: " + quoted(tensor.id) + tensor.fields + (tensor.given ? " given: true" : "") +
              (tensor.accumulates ? "" : "") + " }\n";
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      if (short_backward_ && op.backward_of != none) continue;
      text += "  op { id: " + quoted(op.id) + (op.phase.empty() ? "" : " phase: " + quoted(op.phase)) + op.fields + lists(op);
      if (op.backward_of != none) text += " backward_of: " + quoted(ops_[op.backward_of].id);
      for (const Op& other : ops_)
        if (short_backward_ && other.backward_of == i) text += " backward {" + other.fields + lists(other) + " }";
      text += " }\n";
    }
    if (modules_ && chance(2)) {
      const bool any = std::any_of(ops_.begin(), ops_.end(), [](const Op& op) { return op.fields.find("module:") != std::string::npos; });
      if (any) text += "  unit: 'Net.b.*'\n";
    }
    return text + "}\n";
  }
  std::string lists(const Op& op) const {
    std::string text;
    const auto add = [&](const char* field, const std::vector<std::size_t>& list) {
      if (list.empty()) return;
      text += std::string(" ") + field + ": [";
      for (std::size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "" : ", ") + quoted(tensors_[list[i]].id);
      text += "]";
    };
    add("reads", op.reads);
    add("writes", op.writes);
    add("saves", op.saves);
    add("frees", op.frees);
    return text;
  }

  std::string regions() {
    std::string text;
    for (std::size_t op = below(4); op < forwards_ && chance(2); op += 1) {
      text += "region { op: [";
      const std::size_t end = std::min<std::size_t>(forwards_, op + 1 + below(3));
      for (std::size_t i = op; i < end; ++i) text += (i == op ? "" : ", ") + quoted("f" + std::to_string(i));
      text += "]" + std::vector<std::string>{"", " early_stop: true", " early_stop: false"}[below(3)] + (chance(3) ? " mode: SAVE" : "") +
              (chance(3) ? " preserve_rng: false" : "") + " }\n";
      op = end;
    }
    std::vector<std::size_t> saved;
    for (const Op& op : ops_)
      for (const std::size_t tensor : op.saves)
        if (tensors_[tensor].fields.find("view_of") == std::string::npos) saved.push_back(tensor);
    if (!saved.empty() && chance(3))
      text += "region { mode: OFFLOAD tensor: " + quoted(tensors_[saved[below(saved.size())]].id) + " stash: " + std::to_string(below(3)) +
              " }\n";
    return text;
  }

  std::mt19937_64 random_;
  bool listed_ = false, region_end_ = false, reads_known_ = true, short_backward_ = false, modules_ = false;
  std::vector<Tensor> tensors_;
  std::vector<Op> ops_;
  std::size_t forwards_ = 0;
};

// Policies of every form that there is, with arguments that mean something for this model where that can be.
inline std::vector<std::string> policies_of_every_form(const model::Model& model, std::mt19937_64& random) {
  const std::uint64_t layers = model.units.size();
  std::uint64_t bytes = 0;
  for (const model::Tensor& tensor : model.tensors) bytes += tensor.bytes;
  const auto some = [&](std::uint64_t most) { return std::to_string(most == 0 ? 0 : random() % most); };
  std::string lengths;
  for (std::uint64_t left = layers; left > 0;) {
    const std::uint64_t length = 1 + random() % left;
    lengths += (lengths.empty() ? "" : ",") + std::to_string(length);
    left -= length;
  }
  std::string moves;  // everything is kept
  for (std::uint64_t layer = 1; layer <= layers; ++layer) moves += (moves.empty() ? "f" : ",f") + std::to_string(layer);
  for (std::uint64_t layer = layers; layer > 0; --layer) moves += ",b" + std::to_string(layer);
  std::string unit = layers == 0 ? "none" : model.units[random() % layers].name, operation = "none";
  if (!model.ops.empty()) operation = model.ops[random() % model.ops.size()].name;
  const auto plain = [](std::string text) { return text.empty() || text.find(',') != std::string::npos ? std::string("none") : text; };
  return {"save-all",
          "segment:1",
          "segment:2",
          "segment:" + std::to_string(1 + random() % (layers + 1)),
          "segments:" + (lengths.empty() ? "1" : lengths),
          "sqrt",
          "greedy:" + some(bytes),
          "full",
          "over:0",
          "over:" + some(bytes / 4),
          "under:" + some(20),
          "regions:" + plain(std::move(unit)),
          "selective:" + plain(std::move(operation)),
          "offload:1",
          "offload:1," + std::to_string(random() % 4),
          "offload:" + some(bytes / 4),
          "revolve:1",
          "revolve:" + std::to_string(1 + random() % (layers + 1)),
          "rotor:" + some(2 * bytes + 1),
          "rotor:" + std::to_string(bytes),
          "moves:" + (moves.empty() ? "f1" : moves),
          "by-hand"};
}

// The words of policy_forms() that none of these begins with: a new form is to be tried too.
inline std::string forms_left_out(const std::vector<std::string>& policies) {
  std::string left_out;
  const std::string forms(model::policy_forms());
  for (std::size_t begin = 0; begin < forms.size();) {
    const std::size_t end = std::min(forms.find(", ", begin), forms.size());
    const std::string form = forms.substr(begin, end - begin), word = form.substr(0, form.find_first_of(":["));
    const bool tried = std::any_of(policies.begin(), policies.end(),
                                   [&](const std::string& policy) { return policy.substr(0, policy.find(':')) == word; });
    if (!tried) left_out += " " + word;
    begin = end + 2;
  }
  return left_out;
}

}  // namespace liveset::test
