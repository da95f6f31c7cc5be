// gradient_cache: a contrastive step whose graph is kept for one chunk at a time, that tells liveset what it holds.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "samples/gradient_cache/cache_step.h"

namespace {

using namespace gradient_cache;

constexpr const char* usage =
    "usage: gradient_cache [--seed S] [--chunk C] [--dropout P] [--restore on|off]\n"
    "  --seed     random state at the start, below 2^32 (default 31)\n"
    "  --chunk    rows that are encoded at once, 1 to 4 (default 2)\n"
    "  --dropout  probability, 0 to below 1 (default 0.2)\n"
    "  --restore  on: a chunk is encoded again from the random state of its first encoding (default on)\n";

int fail(const std::string& message) {
  std::fprintf(stderr, "gradient_cache: %s\n%s", message.c_str(), usage);
  return 2;
}

bool read_number(const char* text, double least, double most, double& number) {
  char* end = nullptr;
  number = std::strtod(text, &end);
  return end != text && *end == '\0' && number >= least && number <= most;
}

// Empty when the options make sense.
std::string read_options(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i], text = i + 1 < argc ? argv[i + 1] : "";
    double number = 0;
    const bool whole = read_number(text.c_str(), 0, 4294967295.0, number) && number == static_cast<std::uint32_t>(number);
    if (name == "--seed" && whole)
      options.seed = static_cast<std::uint32_t>(number);
    else if (name == "--chunk" && whole && number >= 1 && number <= row_count)
      options.chunk = static_cast<std::size_t>(number);
    else if (name == "--dropout" && read_number(text.c_str(), 0, 1, number) && number < 1)
      options.dropout = number;
    else if (name == "--restore" && (text == "on" || text == "off"))
      options.restore = text == "on";
    else
      return "bad option or value: '" + name + " " + text + "'";
  }
  return "";
}

std::string event_json(const ChunkEvent& event) {
  std::string text = "{\"stage\": \"" + event.stage + "\", \"side\": ";
  text += event.chunk.rows.empty() ? "null" : "\"" + std::string(side_names[event.chunk.side]) + "\"";
  text += ", \"rows\": " + json_of(event.chunk.rows) + ", \"rng_before\": " + std::to_string(event.random_before);
  text += ", \"rng_after\": " + std::to_string(event.random_after) + ", \"hidden_vectors_live\": " + std::to_string(event.hidden_live);
  if (event.stage == "re-encode")
    text += ", \"dL_dW1_so_far\": " + json_of(event.gradients.w1) + ", \"dL_dW2_so_far\": " + json_of(event.gradients.w2);
  return text + "}";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) return std::printf("%s", usage), 0;
  Options options;
  if (const std::string error = read_options(argc, argv, options); !error.empty()) return fail(error);
  const StepResult step = cached_step(options);
  const Reference reference = reference_step(options);
  std::printf("{\"seed\": %u, \"chunk\": %zu, \"dropout\": %s, \"restore\": %s, \"loss\": %s,\n", options.seed, options.chunk,
              number_text(options.dropout).c_str(), options.restore ? "true" : "false", number_text(step.loss.value).c_str());
  std::printf(" \"gradient_w1\": %s,\n \"gradient_w2\": %s,\n", json_of(step.gradients.w1).c_str(), json_of(step.gradients.w2).c_str());
  std::printf(" \"reference_gradient_w1\": %s,\n \"reference_gradient_w2\": %s,\n", json_of(reference.gradients.w1).c_str(),
              json_of(reference.gradients.w2).c_str());
  std::printf(
      " \"max_difference\": %s, \"rng_after_pass_1\": %u, \"rng_at_end\": %u, \"hidden_peak\": %zu, \"reference_hidden_peak\": %zu,\n",
      number_text(largest_difference(step.gradients, reference.gradients)).c_str(), step.random_after_pass_1, step.random_at_end,
      step.hidden_peak, reference.hidden_peak);
  std::printf(" \"events\": [");
  for (std::size_t i = 0; i < step.events.size(); ++i) std::printf("%s\n  %s", i == 0 ? "" : ",", event_json(step.events[i]).c_str());
  std::printf("\n ]}\n");
  return std::fflush(stdout) == 0 ? 0 : 1;
}
