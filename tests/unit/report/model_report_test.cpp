// What is said of a predicted step's memory: peaks, composition, the curve, and where a peak is an upper bound.
#include "viewer/report/model_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "viewer/compare/model_side.h"
#include "viewer/report/gap_report.h"
#include "viewer/report/plan_report.h"
#include "viewer/report/whatif_report.h"

namespace liveset::report {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using trace::Phase;

model::Model model_of(const std::string& text) {
  Result<model::Model> model = model::parse_model(text, "m.textproto");
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

model::Outcome outcome_of(const model::Model& model, const std::string& policy) {
  Result<model::Outcome> outcome = model::outcome(model, *model::parse_policy(policy));
  EXPECT_TRUE(outcome) << outcome.error().message();
  return std::move(*outcome);
}

// As a step that was recorded: nobody says what reads what, so a (100) and b (100) are taken to go once they were saved, and the region
// holds the scratch t (300) and c (10), with x (10): 320. A real one may still hold a by then. The re-run stops when b is packed: x, c, a
// and b, 220. Without checkpointing all live at once: 520.
std::string recorded(int scratch) {
  return "conventions { rerun: EARLY_STOP drop: REGION_END release: LISTED }\n"
         "general {\n"
         "  tensor { id: 'x' bytes: 10 given: true } tensor { id: 'a' bytes: 100 } tensor { id: 'b' bytes: 100 }\n"
         "  tensor { id: 't' bytes: " +
         std::to_string(scratch) +
         " } tensor { id: 'c' bytes: 10 }\n"
         "  op { id: 'f1' writes: 'a' saves: 'a' backward { frees: ['a', 'c'] } }\n"
         "  op { id: 'f2' writes: 'b' saves: 'b' backward { frees: 'b' } }\n"
         "  op { id: 'f3' writes: ['t', 'c'] frees: 't' backward {} }\n"
         "  op { id: 'loss' phase: 'loss' }\n"
         "}\n"
         "region { id: 'block' op: ['f1', 'f2', 'f3'] }\n";
}

TEST(EstimatedPeak, ForwardOfARegionThatDecidesThePeak) {
  const model::Model model = model_of(recorded(300));
  const model::Outcome outcome = outcome_of(model, "by-hand");
  EXPECT_EQ(outcome.counters.requested.bytes, 320U);
  EXPECT_EQ(outcome.counters.requested.phase, Phase::forward);
  const ordered_json json = outcome_json(outcome, model::CounterKind::requested, true);
  EXPECT_EQ(json.at("peak").at("estimate"), true);
  EXPECT_EQ(json.at("counters").at("requested").at("estimate"), true);
  EXPECT_EQ(json.at("phases").at("forward"), ordered_json({{"peak_bytes", 320}, {"estimate", true}}));
  EXPECT_EQ(json.at("phases").at("recompute"), ordered_json({{"peak_bytes", 220}, {"estimate", false}}));
  EXPECT_THAT(memory_text(outcome, {}), HasSubstr("requested  forward, an estimate\n"));
  EXPECT_THAT(memory_text(outcome, {}), HasSubstr("\n  an estimate: the step without regions does not tell all"));

  WhatIfReport report;
  report.step.model = model;
  report.outcomes = {outcome_of(model, "save-all"), outcome};
  EXPECT_THAT(whatif_text(report, {}), HasSubstr("forward, an estimate"));
  EXPECT_THAT(whatif_text(report, {}), HasSubstr("note: an estimate: the step without regions does not tell all"));
  EXPECT_THAT(whatif_table(report, TableFormat::csv, {}),
              HasSubstr("policy,requested,peak in,extra_ns,extra_percent_of_forward,estimate,to_host_bytes,to_device_bytes\n"
                        "save-all,520,forward,0,0.0000,,0,0\nby-hand,320,forward,2,66.6667,yes,0,0\n"));
  const ordered_json whatif = whatif_json(report);
  EXPECT_EQ(whatif.at("peak").at("estimate"), false) << "of save-all";
  // Three ops of a cost of 1; the region's re-run takes two of them.
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(whatif.at("policies")[i].at("forward_time_ns"), 3) << "one forward, whatever runs again";
  EXPECT_EQ(whatif.at("policies")[1].at("extra_time_ns"), 2);
  EXPECT_EQ(outcome_json(outcome, model::CounterKind::requested, false).at("forward_cost"), 5) << "a model's has the re-runs in it";
}

// x 10, a 100 and the scratch live at once whatever is checkpointed, so the lower bound is the scratch's 300 and c: the plan's 320 is one
// of a region's forward.
TEST(EstimatedPeak, OfAPlan) {
  PlanReport report;
  const model::Model model = model_of(recorded(300));
  model::SearchOptions options;
  options.budget = 330;
  options.given = {*model::parse_policy("save-all"), *model::parse_policy("by-hand")};
  Result<model::SearchResult> found = model::search(model, options);
  ASSERT_TRUE(found) << found.error().message();
  report.budget = options.budget;
  report.result = std::move(*found);
  ASSERT_TRUE(report.result.best);
  EXPECT_TRUE(report.result.best->peak_is_estimate);
  EXPECT_FALSE(report.result.given[0].candidate.peak_is_estimate);
  EXPECT_TRUE(report.result.given[1].candidate.peak_is_estimate);
  EXPECT_FALSE(report.result.least_is_exact);
  const ordered_json json = plan_json(report);
  EXPECT_EQ(json.at("peak"), ordered_json({{"bytes", 320}, {"estimate", true}}));
  EXPECT_EQ(json.at("policies").at(0).at("peak"), ordered_json({{"bytes", 520}, {"estimate", false}}));
  EXPECT_THAT(plan_text(report, false, {}), HasSubstr("peak          320 B of 330 B, an estimate\n"));
  EXPECT_THAT(plan_text(report, true, {}), HasSubstr("\n  320 B, an estimate "));
  EXPECT_THAT(plan_text(report, true, {}), HasSubstr("\nan estimate: the step without regions does not tell all"));
  EXPECT_THAT(plan_table(report, TableFormat::csv, {}),
              AllOf(HasSubstr("peak,extra_cost,of forward,estimate,found by,policy,list\n320,2,66.6667,yes,"), HasSubstr(",budget\n"),
                    HasSubstr(",frontier\n"), HasSubstr("\n520,0,0.0000,,,save-all,policy\n")));
  report.times = true;
  EXPECT_THAT(plan_table(report, TableFormat::csv, {}), HasSubstr("peak,extra_ns,"));
  EXPECT_THAT(plan_table(report, TableFormat::md, {}), HasSubstr("| 2 ns |"));
  report.times = false;
  report.budget = 100;
  report.result.best.reset();
  EXPECT_THAT(plan_text(report, false, {}), HasSubstr("infeasible, least found is 320 B, an estimate\n"));
}

// w, x and y live at once in g whatever runs again: 1,541 is the least of all schedules. Where an allocator rounded one of them less was
// asked for, and how much less is not known; z has gone by then.
TEST(RoundedPeak, OfAPlan) {
  const auto report_of = [](const std::string& w, const std::string& x, const std::string& z) {
    const model::Model model = model_of("static_storage { id: 'w' bytes: 512 " + w + " } general { tensor { id: 'z' bytes: 512 " + z +
                                        " } tensor { id: 'x' bytes: 1024 " + x +
                                        " } tensor { id: 'y' bytes: 5 } op { id: 'e' writes: 'z' } op { id: 'f' writes: 'x' }"
                                        " op { id: 'g' reads: 'x' writes: 'y' } op { id: 'l' phase: 'loss' reads: 'y' } }");
    model::SearchOptions options;
    options.budget = 100;
    options.given = {*model::parse_policy("save-all")};
    Result<model::SearchResult> found = model::search(model, options);
    EXPECT_TRUE(found) << found.error().message();
    PlanReport report;
    report.budget = options.budget;
    report.result = std::move(*found);
    EXPECT_EQ(plan_json(report).at("policies")[0].at("peak").at("estimate"),
              outcome_json(outcome_of(model, "save-all"), model::CounterKind::requested, false).at("peak").at("estimate"));
    return report;
  };
  const std::string mark = "rounded: true", note = "\nrequested is an estimate: of blocks that nothing is stated of";
  Style wide;
  wide.columns = 400;
  for (const PlanReport& report : {report_of(mark, "", ""), report_of("", mark, "")}) {
    const ordered_json json = plan_json(report);
    EXPECT_EQ(json.at("frontier")[0].at("peak"), ordered_json({{"bytes", 1541}, {"estimate", true}}));
    EXPECT_EQ(json.at("least_budget_exact"), false);
    EXPECT_EQ(json.at("least_budget_of"), nullptr);
    EXPECT_EQ(json.at("lower_bound"), 1541);
    EXPECT_EQ(json.at("lower_bound_estimate"), true);
    EXPECT_THAT(plan_table(report, TableFormat::csv, {}), HasSubstr("\n1541,0,0.0000,yes,,save-all,policy\n"));
    const std::string text = plan_text(report, true, wide);
    EXPECT_THAT(text, AllOf(HasSubstr("infeasible, least found is 1.50 KiB\n"), HasSubstr(": no schedule is predicted to need less\n")));
    EXPECT_EQ(text.find(note), text.rfind(note)) << "once";
    EXPECT_THAT(text, AllOf(HasSubstr(note), Not(HasSubstr("an estimate\n")))) << "no row has a word of it";
    EXPECT_THAT(plan_text(report, false, wide), HasSubstr(note));
  }
  for (const PlanReport& report : {report_of("", "", ""), report_of("", "", mark)}) {
    const ordered_json json = plan_json(report);
    EXPECT_EQ(json.at("frontier")[0].at("peak"), ordered_json({{"bytes", 1541}, {"estimate", false}}));
    EXPECT_EQ(json.at("least_budget_of"), "all schedules");
    EXPECT_EQ(json.at("lower_bound_estimate"), false);
    EXPECT_THAT(plan_table(report, TableFormat::csv, {}), HasSubstr("\n1541,0,0.0000,,,save-all,policy\n"));
    EXPECT_THAT(plan_text(report, true, wide), AllOf(HasSubstr("infeasible, least is 1.50 KiB (of all schedules)\n"),
                                                     HasSubstr(": no schedule needs less\n"), Not(HasSubstr(note))));
  }
}

// A line of the frontier is for people: numbers that follow each other are one range, and of hundreds the first are shown. Tables for
// machines have every name.
TEST(PlanText, PoliciesOfManyRegionsAreShort) {
  const auto policy = [](std::size_t step) {
    std::string text = "regions:";
    for (std::size_t layer = 0; layer < 200; layer += step) text += (layer == 0 ? "GPT.bs." : ",GPT.bs.") + std::to_string(layer);
    return text;
  };
  PlanReport report;
  report.result.frontier = {{policy(1), 100, false, false, 7, 20, {}}, {policy(2), 150, false, false, 5, 20, {}}};
  const std::string text = plan_text(report, true, {});
  EXPECT_THAT(text, HasSubstr("regions:GPT.bs.0..199\n"));
  EXPECT_THAT(text, HasSubstr("regions:GPT.bs.0,GPT.bs.2,GPT.bs.4,"));
  EXPECT_THAT(text, HasSubstr(" others: --format json\n"));
  EXPECT_THAT(text, Not(HasSubstr("GPT.bs.198")));
  EXPECT_THAT(plan_table(report, TableFormat::csv, {}), AllOf(HasSubstr(policy(1)), HasSubstr(policy(2))));
  EXPECT_EQ(plan_json(report).at("frontier")[0].at("policy"), policy(1));
}

// What a file says of itself goes to the terminal as text, and never as a command to it.
TEST(EstimatedPeak, WhatAFileAssumesIsPrintedAsText) {
  PlanReport report;
  report.estimate = model_of("estimate: 'red \033[31m'\nchain { length: 2 }").estimate;
  EXPECT_THAT(plan_text(report, false, {}), AllOf(HasSubstr("estimate      red "), Not(HasSubstr("\033"))));
}

// Where the file says why its figures are estimates, each of them is one.
TEST(EstimatedPeak, EveryFigureOfAModelOfEstimates) {
  const model::Model model = model_of("estimate: 'by formula'\n" + recorded(300));
  const ordered_json json = outcome_json(outcome_of(model, "save-all"), model::CounterKind::requested, true);
  EXPECT_EQ(json.at("peak").at("estimate"), true);
  EXPECT_EQ(json.at("counters").at("requested").at("estimate"), true);
  EXPECT_EQ(json.at("phases").at("forward").at("estimate"), true);
  const Result<model::Prediction> prediction = model::predict(model, *model::parse_policy("save-all"));
  std::ostringstream csv, curve;
  write_curve(csv, model, *prediction, TableFormat::csv, {});
  EXPECT_THAT(csv.str(), HasSubstr("\n1,forward,0,,f1,a,100,110,yes,"));
  write_curve_json(curve, model, *prediction, {});
  EXPECT_EQ(ordered_json::parse(curve.str()).at("curve")[0].at("estimate"), true);
  GapReport gap;
  gap.found.predicted.is_model = true;
  gap.predicted = {"estimate", "save-all"};
  EXPECT_EQ(gap_json(gap).at("predicted").at("peak").at("estimate"), true);
  EXPECT_EQ(prediction_json(gap).at("estimate"), true);
  PlanReport plan;
  plan.estimate = model.estimate;
  plan.result.frontier = {{"save-all", 100, false, false, 0, 20, {}}};
  EXPECT_EQ(plan_json(plan).at("frontier")[0].at("peak").at("estimate"), true);
  EXPECT_THAT(plan_table(plan, TableFormat::csv, {}), HasSubstr("\n100,0,0.0000,yes,"));
}

TEST(EstimatedPeak, NoneWithoutARegionOrWhereAnotherMomentIsAsHigh) {
  EXPECT_EQ(outcome_json(outcome_of(model_of(recorded(300)), "save-all"), model::CounterKind::requested, true).at("peak").at("estimate"),
            false);
  // With scratch of 200 the forward has 220, and the re-run just that.
  const model::Outcome outcome = outcome_of(model_of(recorded(200)), "by-hand");
  EXPECT_EQ(outcome.counters.requested.bytes, 220U);
  const ordered_json json = outcome_json(outcome, model::CounterKind::requested, true);
  EXPECT_EQ(json.at("peak").at("estimate"), false);
  EXPECT_EQ(json.at("phases").at("forward").at("estimate"), true);
  EXPECT_THAT(memory_text(outcome, {}), Not(HasSubstr("estimate")));
  // Where it is known what reads what, nothing is an estimate.
  const model::Outcome known = outcome_of(model_of("chain { length: 4 bytes: 1 }"), "segment:4");
  EXPECT_EQ(outcome_json(known, model::CounterKind::requested, false).at("peak").at("estimate"), false);
}

TEST(EstimatedPeak, IsSaidBesideAMeasurement) {
  const model::Model model = model_of(recorded(300));
  const auto report_of = [&](const std::string& policy) {
    compare::ModelOptions options;
    options.file = "m.textproto";
    options.counter = "requested";
    Result<compare::ModelSide> side = compare::ModelSide::make(model, *model::parse_policy(policy), options);
    EXPECT_TRUE(side) << side.error().message();
    GapReport report;
    report.found.predicted = std::move(side->side);
    report.predicted.policy = policy;
    return report;
  };
  EXPECT_THAT(gap_text(report_of("by-hand"), {}), HasSubstr("PREDICTED   about 320 B requested"));
  EXPECT_EQ(gap_json(report_of("by-hand")).at("predicted").at("peak").at("estimate"), true);
  EXPECT_EQ(prediction_json(report_of("by-hand")).at("estimate"), true) << "in a summary";
  EXPECT_THAT(prediction_text(report_of("by-hand"), {}), HasSubstr("about 320 B"));
  EXPECT_THAT(gap_text(report_of("save-all"), {}), HasSubstr("PREDICTED   520 B requested"));
  EXPECT_EQ(gap_json(report_of("save-all")).at("predicted").at("peak").at("estimate"), false);
  EXPECT_FALSE(gap_json(report_of("save-all")).at("measured").at("peak").contains("estimate"));
}

// Of the first step Adam's moments, 1,000 bytes, come when the optimizer begins, whichever op makes them. A late step has them all along:
// there the optimizer's peak is an estimate because what the region holds is.
TEST(EstimatedPeak, SaysWhyInPagesAndInTables) {
  const auto texts_of = [](std::uint64_t step, const std::string& doubt) {
    const model::Model model = model_of("conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP " + doubt +
                                        " } static_storage { id: 'm' memory_class: 'optimizer_state' bytes: 1000 from_step: 1 }"
                                        " general { tensor { id: 'a' bytes: 10 } op { id: 'f' module: 'M' writes: 'a' saves: 'a' }"
                                        " op { id: 'loss' phase: 'loss' } op { id: 'b' phase: 'backward' backward_of: 'f' frees: 'a' }"
                                        " op { id: 'step' phase: 'optimizer' workspace: 100 } } region { module: 'M' }");
    compare::ModelOptions options;
    options.counter = "requested";
    options.step = step;
    Result<compare::ModelSide> side = compare::ModelSide::make(model, *model::parse_policy("by-hand"), options);
    EXPECT_TRUE(side) << side.error().message();
    GapReport report;
    report.found.predicted = std::move(side->side);
    EXPECT_EQ(report.found.predicted.peak.place.phase, Phase::optimizer);
    EXPECT_EQ(*report.found.predicted.peak.bytes, 1100U);
    return std::pair(gap_text(report, {false, false, false, 400}), gap_markdown(report, {}));
  };
  const auto both = [](const auto& matcher) { return testing::Pair(matcher, matcher); };
  const char* const of_states = "an estimate: all that the optimizer makes in this step is counted from its start on";
  const char* const of_regions = "an estimate: the step without regions does not tell all that a region holds, nor when all of it goes";
  EXPECT_THAT(texts_of(0, ""), both(AllOf(HasSubstr(of_states), Not(HasSubstr(of_regions)))));
  EXPECT_THAT(texts_of(9, "regions_doubtful: true"), both(AllOf(HasSubstr(of_regions), Not(HasSubstr(of_states)))));
  EXPECT_THAT(texts_of(9, ""), both(Not(HasSubstr("an estimate"))));
}

// Layers of 100 and of 10 bytes.
TEST(Thresholds, ThatNoLayerPassesSaySo) {
  const model::Model model = model_of("chain { length: 2 layer_bytes: [1, 100, 10] }");
  const auto text_of = [&](const std::string& policy) { return memory_text(outcome_of(model, policy), {}); };
  for (const char* const policy : {"over:100", "under:1"}) {
    EXPECT_THAT(text_of(policy), HasSubstr(std::string("\n  ") + policy + " names no layer: nothing runs again, as under save-all\n"));
    EXPECT_EQ(outcome_of(model, policy).extra_cost, 0U);
  }
  for (const char* const policy : {"over:99", "under:2", "save-all", "full"}) EXPECT_THAT(text_of(policy), Not(HasSubstr("no layer")));

  WhatIfReport whatif;
  whatif.step.model = model;
  whatif.outcomes = {outcome_of(model, "over:99"), outcome_of(model, "over:100")};
  EXPECT_THAT(whatif_text(whatif, {}), AllOf(HasSubstr("note: over:100 names no layer: "), Not(HasSubstr("over:99 names"))));

  PlanReport plan;
  model::SearchOptions options;
  options.given = {*model::parse_policy("over:99"), *model::parse_policy("over:100")};
  Result<model::SearchResult> found = model::search(model, options);
  ASSERT_TRUE(found) << found.error().message();
  plan.result = std::move(*found);
  EXPECT_THAT(plan_text(plan, false, {}), AllOf(HasSubstr("\n  over:100 names no layer: "), Not(HasSubstr("over:99 names")),
                                                HasSubstr("\n  over:10MB names no layer: ")));
}

// A table that is handed on says what the figures are, as the page does.
TEST(GapMarkdown, SaysWhatIsEstimatedWhatItMeansAndWhatIsMissing) {
  GapReport report;
  report.found.measured.counter = report.found.predicted.counter = "requested";
  report.found.measured.file = "a.liveset";
  report.found.measured.peak.bytes = 300;
  report.found.predicted.peak.bytes = 320;
  report.found.predicted.peak_is_estimate = true;
  report.found.predicted.file = "m.textproto";
  report.found.predicted.is_model = true;
  report.found.gap.difference = -20;
  report.found.verdict = compare::Verdict::no_values;
  report.found.measured.warnings = {"events are missing"};
  report.found.measured.peak_warnings = {"too many blocks"};
  report.measured.label = "exact";
  report.predicted = {"estimate", "full"};
  const std::string text = gap_markdown(report, {});
  EXPECT_THAT(text, HasSubstr("measured: 300 B requested (exact); predicted: about 320 B requested (estimate)\n\n"));
  EXPECT_THAT(text, HasSubstr("- predicted: an estimate: the step without regions does not tell all"));
  EXPECT_THAT(text, HasSubstr("- verdict: neither side tells of values"));
  EXPECT_THAT(text, HasSubstr("- warning: a.liveset: too many blocks\n- warning: a.liveset: events are missing\n"));
  const std::string prediction = prediction_markdown(report, {});
  EXPECT_THAT(prediction, HasSubstr("Predicted: **about 320 B requested (estimate)**, `m.textproto` --policy full; measured - predicted: "
                                    "-20 B, -6.25% of the prediction\n"));
  EXPECT_THAT(prediction, HasSubstr("- verdict: neither side tells of values"));
  report.found.predicted.peak_is_estimate = false;
  report.found.verdict = compare::Verdict::comparable;
  report.found.measured.warnings.clear();
  report.found.measured.peak_warnings.clear();
  EXPECT_THAT(gap_markdown(report, {}), Not(HasSubstr("\n- ")));
}

GapReport report_of(std::uint64_t measured, std::uint64_t predicted) {
  GapReport report;
  report.found.measured.counter = report.found.predicted.counter = "requested";
  report.found.measured.peak.bytes = measured;
  report.found.predicted.peak.bytes = predicted;
  report.found.predicted.is_model = true;
  report.found.gap.difference = static_cast<std::int64_t>(measured) - static_cast<std::int64_t>(predicted);
  report.found.verdict = compare::Verdict::comparable;
  return report;
}

// 4 bytes of 10^9 are 0.0000004 %.
TEST(GapText, APercentageOfNothingHasNoSign) {
  for (const std::uint64_t measured : {999'999'996U, 1'000'000'004U}) {
    const std::string text = gap_text(report_of(measured, 1'000'000'000), {});
    EXPECT_THAT(text, HasSubstr("4 B, 0.00% of the prediction")) << text;
  }
  EXPECT_THAT(gap_text(report_of(100, 200), {}), HasSubstr("-100 B, -50.00% of the prediction"));
  EXPECT_THAT(gap_text(report_of(300, 200), {}), HasSubstr("+100 B, +50.00% of the prediction"));
}

TEST(GapText, SaysWhichMomentsAreBesideEachOther) {
  GapReport report = report_of(300, 200);
  const auto activation = static_cast<std::size_t>(trace::MemoryClass::activation);
  report.found.measured.peak.classes[activation] = 300;
  report.found.predicted.peak.classes[activation] = 200;
  report.found.predicted.at_other.emplace();
  report.found.predicted.at_other->found_by = ledger::FoundBy::node;
  report.found.predicted.at_other->classes[activation] = 100;
  Style wide;
  wide.columns = 400;
  EXPECT_THAT(gap_text(report, wide), HasSubstr("\nLive at the measured peak (predicted: when its backward runs the same autograd node)\n"
                                                "  measured  predicted  holds\n"
                                                "     300 B      100 B  activation\n"
                                                "\nLive at the predicted peak (measured: no such moment of it is known)\n"
                                                "  measured  predicted  holds\n"
                                                "         -      200 B  activation\n"));
  EXPECT_THAT(gap_markdown(report, wide),
              HasSubstr("\nLive at the predicted peak (measured: no such moment of it is known)\n\n| measured | predicted | holds |\n"));
  report.found.measured.at_other = report.found.measured.peak;
  report.found.predicted.at_other->classes[activation] = 200;
  EXPECT_THAT(gap_text(report, wide), HasSubstr("\nLive at both peaks\n  measured  predicted  holds\n     300 B      200 B  activation\n"));
}

// Of two recordings none is a prediction of the other; a dry run predicts what a recording measured, and a model what a dry run did.
TEST(GapText, CallsTheSidesWhatTheyAre) {
  using ::testing::StartsWith;
  const auto text_of = [](bool first_is_dry, bool second_is_dry, bool second_is_model) {
    GapReport report = report_of(300, 200);
    report.found.predicted.is_model = second_is_model;
    report.measured.is_dry_run = first_is_dry;
    report.predicted.is_dry_run = second_is_dry;
    report.found.gap.values = {7, 0, 2, 1, 70, 20, 10};
    report.found.steps = {{0, 300, 200}, {1, 300, 200}};
    report.found.measured_pace.emplace().median_ns = 2'000'000;
    report.found.predicted_pace.emplace().median_ns = 1'000'000;
    return gap_text(report, {false, false, false, 200}) + gap_markdown(report, {});
  };
  for (const bool dry : {false, true}) {
    for (const bool second_is_dry : {false, dry}) {
      const std::string text = text_of(dry, second_is_dry, false);
      EXPECT_THAT(text,
                  AllOf(StartsWith("FIRST       300 B requested,"), HasSubstr("\nSECOND      200 B requested,"),
                        HasSubstr("+50.00% of the second\n"), HasSubstr("2 missing (only second: 20 B), 1 extra (only first: 10 B)")));
      EXPECT_THAT(text,
                  AllOf(HasSubstr(" a step (first), "), HasSubstr("Live at the peak of the first (second: no such"),
                        HasSubstr("  step  first  second  difference"), HasSubstr("first: 300 B requested; second: 200 B requested\n")));
      EXPECT_THAT(text, AllOf(Not(HasSubstr("easured")), Not(HasSubstr("redict"))));
    }
  }
  for (const std::string& text : {text_of(false, true, false), text_of(false, false, true)})
    EXPECT_THAT(text, AllOf(StartsWith("MEASURED    "), HasSubstr("\nPREDICTED   "), HasSubstr("% of the prediction\n"),
                            HasSubstr("Live at the predicted peak (measured: "), HasSubstr("  step  measured  predicted  difference")));
  EXPECT_THAT(text_of(true, false, true),
              AllOf(StartsWith("DRY RUN     "), HasSubstr("\nPREDICTED   "), HasSubstr("the peak of the dry run (")));
}

// Blocks of an allocator that rounds nothing are requested, allocated and active at once, and nothing is reserved.
TEST(CounterOfAModelThatRoundsNothing, IsThatOfRequested) {
  const model::Model model = model_of(recorded(300));
  const model::Outcome outcome = outcome_of(model, "by-hand");
  const ordered_json requested = outcome_json(outcome, model::CounterKind::requested, true).at("peak");
  for (const model::CounterKind kind : {model::CounterKind::allocated, model::CounterKind::active}) {
    ordered_json expected = requested;
    expected["counter"] = model::counter_name(kind);
    EXPECT_EQ(outcome_json(outcome, kind, true).at("peak"), expected);
  }
  EXPECT_EQ(model::counter_peak(outcome.counters, model::CounterKind::reserved), nullptr);
}

// A chain of three values of 10 bytes and a parameter of 100, by hand: 110, 120, 130, then h2 and h1, h0 go with their backward.
const char* const small = "chain { length: 2 bytes: 10 }\nstatic_storage { id: 'w' bytes: 100 }\n";

TEST(MemoryText, PeaksAndComposition) {
  const model::Outcome outcome = outcome_of(model_of(small), "save-all");
  EXPECT_EQ(outcome.static_bytes, 100U);
  EXPECT_EQ(memory_text(outcome, {}),
            "memory of the step, 100 B of it static\n"
            "   peak  counter    in\n"
            "  130 B  requested  forward\n"
            "\n"
            "  at that of requested  of it  holds\n"
            "                 100 B  76.9%  parameter\n"
            "                  30 B  23.1%  activation\n");
  EXPECT_EQ(memory_text(outcome_of(model_of("chain { length: 2 bytes: 0 }"), "save-all"), {}), "") << "ids alone";
}

TEST(MemoryText, CopiesAreInNoTime) {
  const model::Outcome outcome = outcome_of(model_of("chain { length: 3 bytes: 10 }"), "offload:10,1");
  const ordered_json json = outcome_json(outcome, model::CounterKind::requested, false);
  EXPECT_EQ(json.at("extra_cost"), 0);
  EXPECT_FALSE(json.contains("extra_time_ns")) << "a cost of the model is no time";
  EXPECT_EQ(json.at("copies"), ordered_json({{"to_host_bytes", 20}, {"to_device_bytes", 20}, {"time_ns", nullptr}}));
  EXPECT_THAT(memory_text(outcome, {}), HasSubstr("copies 20 B to the host and 20 B back; how long that takes is not known"));
  EXPECT_EQ(outcome_json(outcome_of(model_of(small), "save-all"), model::CounterKind::requested, false).at("copies"), nullptr);
}

TEST(Curve, RowsByHand) {
  const model::Model model = model_of(small);
  const Result<model::Prediction> prediction = model::predict(model, *model::parse_policy("save-all"));
  ASSERT_TRUE(prediction);
  std::ostringstream csv;
  write_curve(csv, model, *prediction, TableFormat::csv, {});
  EXPECT_EQ(csv.str(),
            "event,phase,microbatch,module,op,value,change,requested,estimate,parameter,activation\n"
            "0,forward,0,,,h0,10,110,,100,10\n"
            "1,forward,0,,h1,h1,10,120,,100,20\n"
            "2,forward,0,,h2,h2,10,130,,100,30\n"
            "3,backward,0,,h2',h2,-10,120,,100,20\n"
            "4,backward,0,,h1',h1,-10,110,,100,10\n"
            "5,backward,0,,h1',h0,-10,100,,100,0\n");
  std::ostringstream out;
  write_curve_json(out, model, *prediction, {{"schema", "liveset.predict/1"}});
  const ordered_json json = ordered_json::parse(out.str());
  EXPECT_EQ(json.at("static_bytes"), 100);
  ASSERT_EQ(json.at("curve").size(), 6U);
  EXPECT_EQ(json.at("curve")[3], ordered_json::parse(R"({"event": 3, "phase": "backward", "microbatch": 0, "module": null, "op": "h2'",
      "value": "h2", "change": -10, "requested": 120, "estimate": false, "classes": {"parameter": 100, "activation": 20}})"));
  std::ostringstream text;
  write_curve(text, model, *prediction, TableFormat::text, {});
  EXPECT_THAT(text.str(), HasSubstr("      5  backward   h1'         h0                            -10 B        100 B\n"));
}

}  // namespace
}  // namespace liveset::report
