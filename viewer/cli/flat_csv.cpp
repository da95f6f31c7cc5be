#include "viewer/cli/flat_csv.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "viewer/report/text.h"

namespace liveset::cli {

void print_flat(const nlohmann::ordered_json& json) {
  report::Table table({{"figure"}, {"value"}}, report::TableFormat::csv, {});
  const nlohmann::ordered_json flat = json.flatten();
  for (const auto& [path, value] : flat.items()) {
    std::string name = path.substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    table.row({report::Cell::words(name),
               report::Cell::words(value.is_string() ? value.get<std::string>()
                                                     : value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace))});
  }
  std::cout << table.render();
}

}  // namespace liveset::cli
