// What of a step a policy can call by name: its layers, and every module of its tree.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "viewer/model/model.h"

namespace liveset::model {

// A run of forward ops, [begin, end): a layer, or one run of a module with all that is inside of it.
struct NamedRun {
  std::string_view path;     // of the model, which must outlive this
  std::uint32_t number = 1;  // of the path's runs; the second one of "GPT.head" is "GPT.head#2"
  std::uint32_t begin = 0, end = 0;
  bool layer = false;

  std::string name() const;
  std::string numbered() const;  // "GPT.head#1", of the first one too
};

// "GPT.head#2" -> "GPT.head", 2; of a name without a number 0.
std::pair<std::string_view, std::uint32_t> split_number(std::string_view name);

// Modules are the parts of the ops' paths, up to a '.' or '/': "GPT.bs.0.ln1" lies in "GPT.bs.0", "GPT.bs" and "GPT". Paths are followed
// down to 64 parts. Any two runs of modules lie apart or one inside of the other.
class NamedRuns {
 public:
  explicit NamedRuns(const Model& model);

  // Layers first, then modules: parents before children, in the order of the forward.
  const std::vector<NamedRun>& all() const { return runs_; }

  bool is_layer(std::string_view path) const { return layers_.contains(path); }
  // Whether the run's path has others: then its own name has a number, "GPT.head#1".
  bool is_one_of_many(const NamedRun& run) const;

  // What the pattern names (name_pattern.h): every run of the layer or module of exactly this path, or of "GPT.head#2" that one; else all
  // layers that it matches; else all modules that it matches, the outermost of each path. Indices of all(), rising; empty: nothing is
  // called so.
  // `looks` as in name_pattern.h.
  std::vector<std::uint32_t> find(std::string_view pattern, std::uint64_t& looks) const;
  std::vector<std::uint32_t> find(std::string_view pattern) const;

 private:
  using Runs = std::unordered_map<std::string_view, std::vector<std::uint32_t>>;  // a path's, in order

  std::vector<std::uint32_t> exactly(std::string_view name) const;
  void add_modules(const Model& model);

  std::vector<NamedRun> runs_;
  Runs layers_, modules_;
};

}  // namespace liveset::model
