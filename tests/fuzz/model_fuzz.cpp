// Model files against mutation: whatever the bytes, parsing gives a model or an error of one line; a model that is accepted has, for a
// policy of every form, a prediction that keeps the rules of tests/support/prediction_rules.h, or a reason why that policy does not fit;
// and written as text and read again it predicts the same. Deterministic; `model_fuzz [ROUNDS [SEED]]`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "tests/support/prediction_rules.h"
#include "tests/support/random_model.h"
#include "viewer/model/expectations.h"

namespace {

using namespace liveset;

const std::vector<std::string> seeds{
    "chain { length: 6 bytes: 8 cost: 1 }",
    "name: 'lists' conventions { count_inputs: false short_segment: FIRST rerun: STOP_BEFORE_BOUNDARY boundary: PHYSICAL_COPY }\n"
    "chain { length: 3 layer_bytes: [4, 5, 6, 7] layer_cost: [1, 2, 3] }",
    "graph {\n  input { id: 'x' bytes: 4 }\n  layer { id: 'a' reads: 'x' bytes: 8 }\n  layer { id: 'b' reads: 'a' cost: 3 }\n"
    "  layer { id: 'c' reads: ['a', 'b', 'x'] }\n  loss: 'c'\n}",
    R"({"chain": {"length": 5, "layerBytes": ["1", 2, 3, 4, 5, 6]}, "conventions": {"checkpointLastSegment": false}})",
    "rotor_chain { a: [4, 3, 5, 2] abar: [7, 6, 9] delta: [4, 3, 5, 2] uf: [3, 1, 4] ub: [5, 2, 6] of: [0, 3, 1] ob: [2, 0, 1] }",
    "dim { name: 'N' value: 3 }\ndim { name: 'M' expression: 'N*N + 1' }\nstatic_storage { id: 'w' size: '4*N*M' from_step: 1 }\n"
    "schedule { microbatches: 3 order: '1f1b' stages: 4 stage: 2 }\nphysical { allocator: 'cuda' rng_state: 16 }\n"
    "general {\n  tensor { id: 'x' size: '4*N' given: true }\n  tensor { id: 'a' size: 'M' }\n  tensor { id: 'b' bytes: 9 }\n"
    "  op { id: 'f' name: 'mm' module: 'Net.b.0' reads: 'x' writes: 'a' saves: 'x' work: '2*N' backward { work: 'N' } }\n"
    "  op { id: 'g' name: 'gelu' module: 'Net.b.1' reads: 'a' writes: 'b' saves: ['a', 'b'] workspace: 7 backward { } }\n"
    "  op { id: 'c' phase: 'loss' reads: 'b' }\n  unit: 'Net.b.*'\n}\nregion { module: 'b.*' save_ops: 'mm' early_stop: true }\n"
    "expect { policy: 'regions:Net.b.0..1' counter: 'peak_ids' value: 4 }\nexpect { policy: 'over:0.0005KB' counter: 'allocated' value: 9 "
    "}\n",
    "chain { length: 12 bytes: 8 }\nexpect { policy: 'regions:0..1,1*0..1' counter: 'peak_ids' value: 4 }\n"
    "expect { policy: 'regions:0..1a0..1a0..1' counter: 'reserved' value: 4 }\n",
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
                                     "given: true",
                                     "view_of: 'x'",
                                     "for_backward: true",
                                     "accumulates: true",
                                     "writes: 'a'",
                                     "saves: 'b'",
                                     "frees: 'a'",
                                     "release: LISTED",
                                     "drop: REGION_END",
                                     "rerun: EARLY_STOP",
                                     "phase: 'loss'",
                                     "phase: 'backward'",
                                     "N*M",
                                     "/0",
                                     "\xff\xfe",
                                     "1e9",
                                     "0..1",
                                     "0..999998",
                                     "0..4294967295",
                                     "0.0000000",
                                     "expect { policy: 'regions:a' counter: 'peak_bytes' value: 1 }",
                                     "regions:"};

[[noreturn]] void fail(const std::string& text, const std::string& what) {
  std::fprintf(stderr, "model_fuzz: %s, for the %zu bytes:\n%s\n", what.c_str(), text.size(), text.c_str());
  std::exit(1);
}

unsigned long accepted = 0, predicted = 0;

model::Model read_again(const std::string& text, const model::Model& first) {
  const std::string written = model::model_text(first);
  Result<model::Model> again = model::parse_model(written, "written");
  if (!again) fail(text, "written as text it is refused: " + again.error().message() + "\n" + written);
  if (model::model_text(*again) != written) fail(text, "written as text and read it is another one:\n" + written);
  return std::move(*again);
}

void check(const std::string& text) {
  Result<model::Model> parsed = model::parse_model(text, "fuzz");
  if (!parsed) {
    if (parsed.error().message().find('\n') != std::string::npos) fail(text, "a message of several lines: " + parsed.error().message());
    return;
  }
  ++accepted;
  if (parsed->units.size() > 2000) return;
  if (const auto expected = model::check_expectations(*parsed); !expected && expected.error().message().find('\n') != std::string::npos)
    fail(text, "a message of several lines: " + expected.error().message());
  const model::Model again = read_again(text, *parsed);
  std::mt19937_64 random(text.size());
  for (const std::string& name : test::policies_of_every_form(*parsed, random)) {
    const auto wrong = [&, &name = name](const std::string& what) { fail(text, "policy " + name + ": " + what); };
    const Result<model::Policy> policy = model::parse_policy(name);
    if (!policy) wrong(policy.error().message());
    const Result<model::Prediction> prediction = model::predict(*parsed, *policy), other = model::predict(again, *policy);
    if (!prediction) {
      const std::string message = prediction.error().message();
      if (prediction.error().kind != ErrorKind::usage || name == "save-all") wrong(message);
      if (message.find('\n') != std::string::npos) wrong("a message of several lines: " + message);
      if (other || other.error().message() != message) wrong("written as text and read it is not refused alike");
      continue;
    }
    ++predicted;
    if (const std::string broken = test::broken_rule(*parsed, *prediction); !broken.empty()) wrong(broken);
    if (!other) wrong("written as text and read: " + other.error().message());
    if (const std::string differs = test::difference(*prediction, *other); !differs.empty()) wrong("written as text and read: " + differs);
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

// Short pieces many times over: lists, numbers and names as nobody writes them.
std::string repeated(const std::string& piece, std::mt19937_64& random) {
  std::string text;
  for (auto count = std::uint64_t{1} << random() % 12; count > 0; --count) text += piece;
  return text;
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
      case 5:
        if (random() % 8 == 0)
          text.insert(at, repeated(text.substr(at - std::min<std::size_t>(at, random() % 8), 1 + random() % 8), random));
        break;
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
  const unsigned long rounds = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 50000;
  const unsigned long first = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  std::mt19937_64 random(first);
  for (const std::string& seed : seeds) {
    const Result<model::Model> parsed = model::parse_model(seed, "seed");
    if (!parsed) fail(seed, "a seed is refused: " + parsed.error().message());
    if (const std::string left_out = test::forms_left_out(test::policies_of_every_form(*parsed, random)); !left_out.empty())
      fail(seed, "forms of policies that are not tried:" + left_out);
    for (std::size_t end = 0; end <= seed.size(); ++end) check(seed.substr(0, end));
  }
  for (unsigned long round = 0; round < rounds; ++round) check(mutated(seeds[random() % seeds.size()], random));
  // Models that are whole, and the same with a little damage.
  unsigned long whole = 0;
  for (unsigned long round = 0; round < rounds / 10; ++round) {
    const std::string text = test::RandomModel(first * rounds + round).text();
    const Result<model::Model> parsed = model::parse_model(text, "random");
    if (!parsed) fail(text, "a model that is whole is refused: " + parsed.error().message());
    check(text);
    ++whole;
    check(mutated(text, random));
  }
  std::printf("%lu mutations of %zu models and %lu random ones, %lu accepted, %lu predictions\n", rounds, seeds.size(), whole, accepted,
              predicted);
  // A fuzzer whose every input is refused at the door tests the door.
  if (accepted < rounds / 100 || predicted < accepted) return 1;
  return 0;
}
