// How predict and `ledger --logical` print.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "viewer/cli/command.h"
#include "viewer/ledger/logical.h"
#include "viewer/report/logical_report.h"

namespace liveset::cli {

// `head`: the fields of the JSON form that come first; `title`: the first line of the table form.
void print_logical(const ledger::LogicalLedger& ledger, const nlohmann::ordered_json& head, const std::string& title, const Context& context);

}  // namespace liveset::cli
