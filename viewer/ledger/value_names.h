// How values are called: the module, the slot, which of the name in its step, and which recompute made it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "viewer/ledger/lineage.h"
#include "viewer/ledger/path_names.h"

namespace liveset::ledger {

// "GPT.block/AddmmBackward0.mat1"
inline std::string value_name(std::string module, std::string_view slot) {
  if (!module.empty()) module += "/";
  return module.append(slot.empty() ? std::string_view("value") : slot);
}
inline std::string numbered_name(std::string name, std::uint32_t number) {
  return number <= 1 ? name : name + "#" + std::to_string(number);
}
// Of "GPT.bs.0/BmmBackward0.self#2": the name without the number.
inline std::string_view without_number(std::string_view name) {
  const std::size_t sign = name.rfind('#');
  const bool is_numbered = sign != name.npos && sign + 1 < name.size() && name.find_first_not_of("0123456789", sign + 1) == name.npos;
  return is_numbered ? name.substr(0, sign) : name;
}
inline std::string incarnation_name(std::string name, std::uint32_t incarnation) {
  return incarnation == 0 ? name : name + "@" + std::to_string(incarnation);
}

// Names of originals repeat in a step (a module that is called twice, a node of each type), and are numbered in the order in which
// originals were made.
class OriginalNames {
 public:
  struct Name {
    std::string_view base;     // without a number
    std::uint32_t number = 0;  // from 1; 0: there is no original
    std::string text() const { return numbered_name(std::string(base), number); }
  };

  OriginalNames(const trace::Dictionary& dictionary, PathNames& paths, const Lineage& lineage)
      : dictionary_(dictionary), paths_(paths), lineage_(lineage) {}

  // Of a step all values or none must be among these.
  void number(const std::vector<std::uint32_t>& values);
  // What the original of a value is called that was among them.
  Name of(const RemadeValue& value);

 private:
  std::string_view base(const RemadeValue& value);

  const trace::Dictionary& dictionary_;
  PathNames& paths_;
  const Lineage& lineage_;
  std::unordered_map<std::uint64_t, std::string_view> bases_;  // by scope and slot
  std::unordered_map<std::uint32_t, Name> originals_;          // by block
};

}  // namespace liveset::ledger
