// Model files against mutation: whatever the bytes, parsing gives a model or an error of one line; a model that is accepted has a
// prediction for every policy that keeps the rules of a ledger. Deterministic; `model_fuzz [ROUNDS [SEED]]`.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "viewer/model/predict.h"

namespace {

using namespace liveset;

const std::vector<std::string> seeds{
    "chain { length: 6 bytes: 8 cost: 1 }",
    "name: 'lists' conventions { count_inputs: false short_segment: FIRST rerun: STOP_BEFORE_BOUNDARY boundary: PHYSICAL_COPY }\n"
    "chain { length: 3 layer_bytes: [4, 5, 6, 7] layer_cost: [1, 2, 3] }",
    "graph {\n  input { id: 'x' bytes: 4 }\n  layer { id: 'a' reads: 'x' bytes: 8 }\n  layer { id: 'b' reads: 'a' cost: 3 }\n"
    "  layer { id: 'c' reads: ['a', 'b', 'x'] }\n  loss: 'c'\n}",
    R"({"chain": {"length": 5, "layerBytes": ["1", 2, 3, 4, 5, 6]}, "conventions": {"checkpointLastSegment": false}})",
    R"({"graph": {"input": [{"id": "x"}], "layer": [{"id": "a", "reads": ["x"]}, {"id": "b", "reads": ["a", "x"], "bytes": 9}]}})",
};
const std::vector<std::string> words{"chain",
                                     "graph",
                                     "layer",
                                     "input",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     ":",
                                     "-1",
                                     "0",
                                     "99999999999999999999",
                                     "4611686018427387904",
                                     "'a'",
                                     "'x'",
                                     "\"",
                                     "\\",
                                     "\n",
                                     "#",
                                     "length: 7",
                                     "reads: 'a'",
                                     "reads: 'b'",
                                     "bytes: -8",
                                     "id: 'a'",
                                     "\xff\xfe",
                                     "1e9"};

[[noreturn]] void fail(const std::string& text, const std::string& what) {
  std::fprintf(stderr, "model_fuzz: %s, for the %zu bytes:\n%s\n", what.c_str(), text.size(), text.c_str());
  std::exit(1);
}

unsigned long accepted = 0;

void check(const std::string& text) {
  Result<model::Model> parsed = model::parse_model(text, "fuzz");
  if (!parsed) {
    if (parsed.error().message().find('\n') != std::string::npos) fail(text, "a message of several lines: " + parsed.error().message());
    return;
  }
  ++accepted;
  if (parsed->units.size() > 2000) return;
  for (const char* name : {"save-all", "segment:1", "segment:2", "segment:3", "segment:1000"}) {
    Result<model::Policy> policy = model::parse_policy(name);
    Result<model::Prediction> prediction = model::predict(*parsed, *policy);
    if (!prediction) fail(text, prediction.error().message());
    const ledger::LogicalLedger& ledger = prediction->ledger;
    if (ledger.broken_count != 0) fail(text, "broken rule: " + ledger.broken.front().what);
    if (!ledger.live_at_end.empty()) fail(text, "values live at the end");
    if (ledger.events.empty() || ledger.events.back().live_bytes != 0 || ledger.events.back().live_ids != 0)
      fail(text, "the last event leaves something live");
  }
}

// Most changes keep the form: a digit becomes another, an id another one.
void replace_alike(std::string& text, std::size_t at, std::mt19937_64& random) {
  static const std::string digits = "0123456789", ids = "abcx";
  for (; at < text.size(); ++at) {
    if (digits.find(text[at]) != std::string::npos) {
      text[at] = digits[random() % digits.size()];
      return;
    }
    const bool quoted = at > 0 && at + 1 < text.size() && (text[at - 1] == '\'' || text[at - 1] == '"') && text[at + 1] == text[at - 1];
    if (quoted) {
      text[at] = ids[random() % ids.size()];
      return;
    }
  }
}

std::string mutated(std::string text, std::mt19937_64& random) {
  for (auto changes = 1 + random() % 4; changes > 0; --changes) {
    const std::size_t at = random() % (text.size() + 1);
    switch (random() % 10) {
      case 0: text.insert(at, words[random() % words.size()]); break;
      case 1: text.erase(at, 1 + random() % 8); break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 3: text.insert(at, text.substr(random() % (text.size() + 1), random() % 40)); break;
      case 4: text.resize(at); break;
      default: replace_alike(text, at, random);
    }
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check(std::string(data, data + size));
  return 0;
}

int main(int argc, char** argv) {
  const unsigned long rounds = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 100000;
  std::mt19937_64 random(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1);
  for (const std::string& seed : seeds) {
    if (!model::parse_model(seed, "seed")) fail(seed, "a seed is refused: " + model::parse_model(seed, "seed").error().message());
    for (std::size_t end = 0; end <= seed.size(); ++end) check(seed.substr(0, end));
  }
  for (unsigned long round = 0; round < rounds; ++round) check(mutated(seeds[random() % seeds.size()], random));
  std::printf("%lu mutations of %zu models, %lu accepted\n", rounds, seeds.size(), accepted);
  // A fuzzer whose every input is refused at the door tests the door.
  if (accepted < rounds / 100) return 1;
  return 0;
}
