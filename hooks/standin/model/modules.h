// Modules (libraries are the same thing here), their functions (kernels too) and global variables. Where an image's names cannot be
// read (images.h), any name that is asked for exists. Thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "hooks/standin/model/memory.h"

namespace standin {

struct Module;

struct Function {
  std::string name;
  Module* module = nullptr;
  // What hooks/standin/driver/launch.cpp knows of it, once somebody asked for it.
  bool is_known = false;
  bool spins = false;                  // its first argument is a number of clock cycles that it takes
  const char* chooses_size = nullptr;  // the operation whose result's size the kernel's values decide, null: none
  void* host_twin = nullptr;
  std::array<int, 16> attributes{};  // by the driver's numbers
};

struct Variable {
  Address address = 0;
  std::size_t bytes = 0;
};

struct Module {
  std::optional<std::set<std::string>> names;  // of the kernels there are
  std::unordered_map<std::string, std::unique_ptr<Function>> functions;
  std::unordered_map<std::string, Variable> variables;
};

class Modules {
 public:
  Modules(Memory& memory, const Configuration& configuration) : memory_(memory), configuration_(configuration) {}

  // A file's image is not looked into: `image` is then only a mark.
  Error load(const void* image, bool in_memory, Module** module);
  Error unload(Module* module);
  Error function(Module* module, const char* name, Function** function);
  bool is_function(const Function* function) const;
  bool is_module(const Module* module) const;
  std::vector<Function*> functions_of(Module* module) const;
  // A variable has a size only once somebody said it (the runtime does when a program registers one); its memory is part of
  // the module, so it counts against no device.
  Error variable(Module* module, const char* name, std::size_t bytes_if_new, Variable* variable);

 private:
  Memory& memory_;
  const Configuration& configuration_;
  mutable std::mutex mutex_;
  std::unordered_map<const Module*, std::unique_ptr<Module>> modules_;
  std::unordered_set<const Function*> functions_;
};

}  // namespace standin
