// What predict, compare and `ledger --logical` share.
#pragma once
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "viewer/cli/command.h"
#include "viewer/ledger/logical.h"
#include "viewer/model/predict.h"
#include "viewer/report/logical_report.h"

namespace liveset::cli {

// MODEL and --policy, and what they predict.
struct ModelOptions {
  std::string model, policy = "save-all";
};
// `policy`: the option of --policy, which other ones may exclude.
CLI::Option* add_model_options(CLI::App& command, ModelOptions& options);
struct Predicted {
  model::Policy policy;
  model::Model described;
  model::Prediction prediction;
};
Result<Predicted> predict(const ModelOptions& options);
// "estimate", or nothing.
std::string estimate_label(const model::Model& model);

// Of a command that takes a model file and no trace: an error that says where a trace belongs.
Status refuse_trace(const std::string& path);

// Adds --live to a command that prints a logical ledger, whose table has no room for what it lists: an error.
CLI::Option* add_live_option(CLI::App& command, bool& live);
Status check_live_option(bool live, const Context& context);

// `live`: list the live set at every event however long that is; otherwise up to report::max_live_names names, and stderr says so. `head`:
// the fields of the JSON form that come first; `title`: the first line of the table form, which lists up to `shown` events.
void print_logical(const ledger::LogicalLedger& ledger, const nlohmann::ordered_json& head, const std::string& title, bool live,
                   const Context& context, std::size_t shown = std::numeric_limits<std::size_t>::max());

}  // namespace liveset::cli
