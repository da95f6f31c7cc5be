#include "hooks/standin/model/modules.h"

#include <algorithm>

#include "hooks/standin/model/images.h"

namespace standin {

Error Modules::load(const void* image, bool in_memory, Module** module) {
  if (image == nullptr || module == nullptr) return invalid_value;
  auto loaded = std::make_unique<Module>();
  if (in_memory) loaded->names = kernels_in(image);
  *module = loaded.get();
  std::lock_guard lock(mutex_);
  modules_[*module] = std::move(loaded);
  return success;
}

Error Modules::unload(Module* module) {
  std::lock_guard lock(mutex_);
  auto found = modules_.find(module);
  if (found == modules_.end()) return invalid_handle;
  for (const auto& [name, function] : module->functions) functions_.erase(function.get());
  for (const auto& [name, variable] : module->variables) memory_.free_uncounted(variable.address, variable.bytes);
  modules_.erase(found);
  return success;
}

Error Modules::function(Module* module, const char* name, Function** function) {
  if (name == nullptr || function == nullptr) return invalid_value;
  std::lock_guard lock(mutex_);
  if (modules_.count(module) == 0) return invalid_handle;
  if (module->names && module->names->count(name) == 0) return not_found;
  auto& known = module->functions[name];
  if (!known) {
    known = std::make_unique<Function>();
    known->name = name;
    known->module = module;
    const auto& facts = multiprocessor_of(configuration_.capability);
    // Threads, registers, PTX and binary version, dynamic shared bytes, preferred split.
    known->attributes[0] = 1024;
    known->attributes[4] = 32;
    known->attributes[5] = known->attributes[6] = configuration_.capability;
    known->attributes[8] = std::min(facts.shared_bytes_per_block, 48 * 1024);
    known->attributes[9] = -1;
    functions_.insert(known.get());
  }
  *function = known.get();
  return success;
}

bool Modules::is_function(const Function* function) const {
  std::lock_guard lock(mutex_);
  return functions_.count(function) > 0;
}

bool Modules::is_module(const Module* module) const {
  std::lock_guard lock(mutex_);
  return modules_.count(module) > 0;
}

std::vector<Function*> Modules::functions_of(Module* module) const {
  std::lock_guard lock(mutex_);
  std::vector<Function*> result;
  if (modules_.count(module) == 0) return result;
  for (const auto& [name, function] : module->functions) result.push_back(function.get());
  return result;
}

Error Modules::variable(Module* module, const char* name, std::size_t bytes_if_new, Variable* variable) {
  if (name == nullptr) return invalid_value;
  std::lock_guard lock(mutex_);
  if (modules_.count(module) == 0) return invalid_handle;
  auto& known = module->variables[name];
  if (known.address == 0) {
    if (bytes_if_new == 0) {
      module->variables.erase(name);
      return not_found;
    }
    if (auto error = memory_.allocate_uncounted(0, bytes_if_new, Kind::device, &known.address); error != success) {
      module->variables.erase(name);
      return error;
    }
    known.bytes = bytes_if_new;
  }
  *variable = known;
  return success;
}

}  // namespace standin
