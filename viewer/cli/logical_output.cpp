#include "viewer/cli/logical_output.h"

#include <iostream>

#include "viewer/cli/traces.h"

namespace liveset::cli {

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("MODEL", options.model, "model file (proto/MODEL.md tells its format)")->required()->option_text(" ");
  command.add_option("--policy", options.policy, "save-all (default), segment:K or segments:N,N,...")->option_text("POLICY");
}

Result<Predicted> predict(const ModelOptions& options) {
  Result<model::Policy> policy = model::parse_policy(options.policy);
  if (!policy) return policy.take_error();
  Result<model::Model> model = model::read_model(options.model);
  if (!model) return model.take_error();
  Result<model::Prediction> prediction = model::predict(*model, *policy);
  if (!prediction) return prediction.take_error();
  return Predicted{std::move(*policy), std::move(*model), std::move(*prediction)};
}

std::string estimate_label(const model::Model& model) { return model.estimate.empty() ? "" : "estimate"; }

void print_logical(const ledger::LogicalLedger& ledger, const nlohmann::ordered_json& head, const std::string& title,
                   const Context& context) {
  if (context.format == Format::json) return report::write_logical_json(std::cout, ledger, head);
  if (context.format == Format::table) {
    std::cout << report::printable(title, style_of(context)) << '\n';
    report::write_logical_summary(std::cout, ledger, style_of(context));
    std::cout << '\n';
  }
  report::write_logical_events(std::cout, ledger, table_format(context), style_of(context));
}

}  // namespace liveset::cli
