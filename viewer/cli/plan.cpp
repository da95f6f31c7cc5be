// `liveset plan MODEL --budget BYTES`: the policy that fits, and how far another one is from it.
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>

#include "profiler/launch/byte_size.h"
#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"
#include "viewer/report/plan_report.h"

namespace liveset::cli {
namespace {

struct Options {
  std::string model, budget;
  std::vector<std::string> policies;
  bool sweep = false;
};

Result<std::optional<std::uint64_t>> parse_budget(const std::string& text) {
  if (text.empty()) return std::optional<std::uint64_t>();
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error == std::errc() && end == text.data() + text.size()) return std::optional<std::uint64_t>(bytes);
  if (const std::optional<std::int64_t> size = launch::parse_byte_size(text)) return std::optional<std::uint64_t>(*size);
  return Error{ErrorKind::usage, "", {}, "--budget '" + text + "' is no size", "give 80GiB, 24 GB or a number of bytes"};
}

Status run(const Options& options, Context& context) {
  Result<std::optional<std::uint64_t>> budget = parse_budget(options.budget);
  if (!budget) return budget.take_error();
  std::vector<model::Policy> policies;
  for (const std::string& text : options.policies) {
    Result<model::Policy> policy = model::parse_policy(text);
    if (!policy) return policy.take_error();
    policies.push_back(std::move(*policy));
  }
  const Result<model::Model> model = model::read_model(options.model);
  if (!model) return model.error();
  model::SearchOptions wanted;
  wanted.budget = *budget;
  Result<model::SearchResult> result = model::search(*model, wanted);
  if (!result) return result.take_error();
  report::PlanReport report;
  report.model = options.model;
  report.estimate = model->estimate;
  report.layers = model->units.size();
  report.budget = *budget;
  report.result = std::move(*result);
  for (const model::Policy& policy : policies) {
    const Result<model::Prediction> prediction = model::predict(*model, policy);
    if (!prediction) return prediction.error();
    report.given.push_back({policy.text, prediction->memory.peak_bytes, prediction->extra_cost, prediction->forward_cost, {}});
  }
  if (context.format == Format::json)
    print_json(report::plan_json(report));
  else if (context.format == Format::table)
    std::cout << report::plan_text(report, options.sweep, style_of(context));
  else
    std::cout << report::plan_table(report, table_format(context), style_of(context));
  if (report.budget && !report.result.best) context.status = exit_difference;
  return Done{};
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("plan", "the checkpointing policy that fits a budget of bytes, and the whole frontier");
  command->footer(
      "The peak is that of requested bytes, statics included; the extra cost is what runs again, in the model's unit (nanoseconds of a "
      "recorded "
      "step).\n"
      "frontier: bytes against extra cost; nothing that was tried beats a line in both. Rotor chains are optimal among persistent "
      "schedules; "
      "chains of up to 12 layers are searched exactly; of other models the best that was found is listed.\n"
      "With --policy, also how far these are from the frontier: bytes above the smallest plan that is as fast, cost above the fastest that "
      "is as "
      "small. Rules of thumb are policies too: over:10MB, under:5ms, segment:5.\n"
      "  liveset plan m.textproto --budget 24GiB\n"
      "  liveset plan m.textproto --sweep --policy sqrt --policy over:10MB\n"
      "The exit status is 1 when nothing fits.\n");
  const auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "model file (proto/MODEL.md tells its format)")->required()->option_text(" ");
  command->add_option("--budget", options->budget, "bytes that the peak may have: 24GiB, 80 GB, 1000")->option_text("BYTES");
  command->add_flag("--sweep", options->sweep, "list the whole frontier (default without --budget)");
  command->add_option("--policy", options->policies, "set this policy beside the frontier; may be given several times")
      ->option_text("POLICY")
      ->allow_extra_args(false);
  add_output_options(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
