// `liveset fragmentation`: what of the reserved memory nothing uses, in which segments, and what keeps them.
#include "viewer/report/fragmentation.h"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"

namespace liveset::cli {
namespace {

struct Options : ReadOptions, report::FragmentationOptions {
  std::string range_text() const { return ReadOptions::range; }
};

Status run(Options& options, Context& context) {
  Result<Reading> reading = open_reading(options.trace, options.range_text());
  if (!reading) return reading.take_error();
  trace::TraceFile& file = reading->file;
  file.name_native_frames();
  report::FragmentationOptions wanted = options;
  wanted.range = reading->range;
  wanted.simulate = wanted.simulate || !wanted.settings.empty() || wanted.capacity || wanted.falling_addresses;
  Result<report::FragmentationReport> report = [&] {
    ProgressBar bar("reading " + file.path());
    wanted.progress = bar.callback();
    return report::build_fragmentation(file, wanted);
  }();
  if (!report) return report.take_error();
  const report::Style style = style_of(context);
  switch (context.format) {
    case Format::table: std::cout << report::fragmentation_text(*report, options.top, style); break;
    case Format::md: std::cout << report::fragmentation_markdown(*report, style); break;
    case Format::csv: std::cout << report::fragmentation_csv(*report); break;
    case Format::json: print_json(report::fragmentation_json(*report)); break;
  }
  report_health(file, context);
  return Done{};
}

}  // namespace

void add_fragmentation(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("fragmentation", "what of the reserved memory nothing uses, by segment, and what pins it");
  command->footer(
      "Where the trace shows the allocator's segments (PyTorch on CUDA, dry runs too), the layout is the recorded one. Else, or with\n"
      "--simulate or a setting, the heap's blocks are put through a simulation of PyTorch's CUDA caching allocator (2.14), and the output\n"
      "says so: what this heap would reserve with other settings, or a CPU heap on a GPU.\n"
      "  --alloc-conf is what PYTORCH_CUDA_ALLOC_CONF would be: expandable_segments:True, max_split_size_mb:128,\n"
      "  roundup_power2_divisions:[256:1,512:2,>:8], garbage_collection_threshold:0.8, large_segment_size_mb, "
      "per_process_memory_fraction\n");
  const auto options = std::make_shared<Options>();
  add_read_options(*command, *options);
  command->add_option("--at", options->at, "the layout after this event, instead of at the peak of reserved")->option_text("EVENT");
  command->add_option("--heap", options->heap, "which heap (default: the one that summary shows)")->option_text("NAME");
  command->add_flag("--simulate", options->simulate, "the simulated layout, although the recorded one is there");
  command->add_option("--alloc-conf", options->settings, "settings of the simulated allocator")->option_text("TEXT");
  add_size_option(*command, "--capacity", "what the simulated device has, 80GiB say; without, it has no end",
                  [options](std::uint64_t bytes) { options->capacity = bytes; });
  command->add_flag("--falling-addresses", options->falling_addresses,
                    "the simulated device puts new segments below the others (before PyTorch 2.14 that decides between equal blocks)");
  add_top_option(*command, options->top, "how many segments to list, and how many blocks of each");
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
