#include "viewer/cli/logical_output.h"

#include <filesystem>
#include <iostream>

#include "viewer/cli/traces.h"
#include "viewer/import/importer.h"

namespace liveset::cli {

CLI::Option* add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("MODEL", options.model, "model file (proto/MODEL.md tells its format)")->required()->option_text(" ");
  return command.add_option("--policy", options.policy, "save-all (default), full, segment:K, ...: see below")->option_text("POLICY");
}

CLI::Option* add_live_option(CLI::App& command, bool& live) {
  return command.add_flag("--live", live,
                          "csv, md and json: list what lives at every event even where that is more than " +
                              std::to_string(report::max_live_names) + " names in all");
}

Status check_live_option(bool live, const Context& context) {
  if (!live || context.format != Format::table) return Done{};
  return Error{ErrorKind::usage, "", {}, "--live is for csv, md and json", "the table lists at every event what a line has room for"};
}

Status refuse_trace(const std::string& path) {
  const std::string hint = "a trace goes to whatif; `liveset model TRACE -o m.textproto` makes a model file of it";
  std::error_code code;
  if (!is_model_file(path)) {
    const Result<trace::TraceFile> file = open_shown(path);
    if (file) {
      if (Status status = refuse_snapshot(*file); !status) return status;
      return Error{ErrorKind::usage, path, {}, "is a trace, and a model file is wanted", hint};
    }
    if (imports::importer_of(beginning_of(path)) != nullptr) return file.error();
  }
  if (std::filesystem::path(path).extension() == ".liveset" && !std::filesystem::exists(path, code))
    return Error{ErrorKind::unreadable, path, {}, "no such file", hint};
  return Done{};
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

void print_logical(const ledger::LogicalLedger& ledger, const nlohmann::ordered_json& head, const std::string& title, bool live,
                   const Context& context, std::size_t shown) {
  const std::uint64_t names = live || context.format == Format::table ? 0 : report::live_names(ledger);
  const bool listed = names <= report::max_live_names;
  if (!listed)
    std::cerr << "liveset: live sets are left out, they would be " << names << " names (" << ledger.events.size()
              << " events); --live lists them\n";
  if (context.format == Format::json) return report::write_logical_json(std::cout, ledger, head, listed);
  if (context.format == Format::table) {
    std::cout << report::printable(title, style_of(context)) << '\n';
    report::write_logical_summary(std::cout, ledger, style_of(context));
    std::cout << '\n';
  }
  report::write_logical_events(std::cout, ledger, table_format(context), style_of(context), listed, shown);
}

}  // namespace liveset::cli
