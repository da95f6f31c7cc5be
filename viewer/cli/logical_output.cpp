#include "viewer/cli/logical_output.h"

#include <iostream>

#include "viewer/cli/traces.h"

namespace liveset::cli {

void print_logical(const ledger::LogicalLedger& ledger, const nlohmann::ordered_json& head, const std::string& title, const Context& context) {
  if (context.format == Format::json) return report::write_logical_json(std::cout, ledger, head);
  if (context.format == Format::table) {
    std::cout << report::printable(title, style_of(context)) << '\n';
    report::write_logical_summary(std::cout, ledger, style_of(context));
    std::cout << '\n';
  }
  report::write_logical_events(std::cout, ledger, table_format(context), style_of(context));
}

}  // namespace liveset::cli
