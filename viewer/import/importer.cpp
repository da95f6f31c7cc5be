#include "viewer/import/importer.h"

#include <algorithm>
#include <array>

namespace liveset::imports {
namespace {

constexpr std::array<Importer, 2> known = {{
    {"torch-snapshot", "a memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot)", looks_like_snapshot, import_snapshot},
    {"dtr-log", "an operator log of DTR's prototype (uwsampl/dtr-prototype)", looks_like_dtr_log, import_dtr_log},
}};

}  // namespace

std::span<const Importer> importers() { return known; }

const Importer* importer_of(std::string_view beginning) {
  const auto found = std::find_if(known.begin(), known.end(), [&](const Importer& each) { return each.recognises(beginning); });
  return found == known.end() ? nullptr : &*found;
}

const Importer* importer_named(std::string_view name) {
  const auto found = std::find_if(known.begin(), known.end(), [&](const Importer& each) { return name == each.name; });
  return found == known.end() ? nullptr : &*found;
}

}  // namespace liveset::imports
