#include "viewer/cli/logical_output.h"

#include <iostream>

namespace liveset::cli {

report::TextStyle text_style(const Context& context) {
  report::TextStyle style;
  style.kind = context.format == Format::csv  ? report::TextStyle::Kind::csv
               : context.format == Format::md ? report::TextStyle::Kind::md
                                              : report::TextStyle::Kind::table;
  style.exact_bytes = context.exact_bytes;
  style.columns = context.columns;
  return style;
}

void print_logical(const ledger::LogicalLedger& ledger, const nlohmann::ordered_json& head, const std::string& title, const Context& context) {
  if (context.format == Format::json) return report::write_logical_json(std::cout, ledger, head);
  const report::TextStyle style = text_style(context);
  if (context.format == Format::table) {
    std::cout << title << '\n';
    report::write_logical_summary(std::cout, ledger, style);
    std::cout << '\n';
  }
  report::write_logical_events(std::cout, ledger, style);
}

}  // namespace liveset::cli
