// What a model file may not say: for each field the message, with line, field and reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/model/model.h"
#include "viewer/model/predict.h"

namespace liveset::model {
namespace {

using ::testing::HasSubstr;

// Four lines of a good model of three ops, then what is tried.
const std::string good =
    "general { tensor { id: 'x' bytes: 8 given: true } tensor { id: 'y' bytes: 8 } tensor { id: 'z' bytes: 8 }\n"
    "op { id: 'f' name: 'mm' module: 'net.0' reads: 'x' writes: 'y' saves: 'x' backward {} }\n"
    "op { id: 'g' name: 'tanh' module: 'net.1' reads: 'y' writes: 'z' saves: 'z' backward {} }\n"
    "op { id: 'loss' phase: 'loss' reads: 'z' } }\n";

std::string refusal(const std::string& text) {
  const Result<Model> model = parse_model(text, "m.textproto");
  if (model) return "accepted";
  EXPECT_EQ(model.error().message().find('\n'), std::string::npos);
  return model.error().message();
}
void expect_refusal(const std::string& more, const std::string& what) {
  EXPECT_THAT(refusal(good + more), HasSubstr("m.textproto: bad model: " + what)) << more;
}

TEST(ModelRefusals, TheModelItselfIsGood) { EXPECT_EQ(refusal(good), "accepted"); }

TEST(ModelRefusals, AreShortHoweverLongWhatTheyNameIs) {
  const std::string deep(100'000, '('), message = refusal("chain { length: 2 size: '" + deep + "' }");
  EXPECT_LT(message.size(), 1'000U);
  EXPECT_THAT(message, HasSubstr("m.textproto: bad model: line 1: chain.size '((("));
  std::string named;
  for (int i = 0; i < 10'000; ++i) named += "\u00e9";
  EXPECT_LT(refusal(good + "static_storage { id: '" + named + "' bytes: -4 }\nstatic_storage { id: '" + named + "' bytes: 4 }").size(),
            1'000U);
}

TEST(ModelRefusals, Statics) {
  expect_refusal("static_storage { bytes: 4 }", "static_storage[0] has no id");
  expect_refusal("static_storage { id: 'w' bytes: 4 }\nstatic_storage {\n id: 'w' bytes: 5 }",
                 "line 7: static_storage[1].id 'w' is a duplicate");
  expect_refusal("static_storage { id: 'w' bytes: -4 }", "line 5: static_storage[0].bytes is -4, must be at least 0");
  expect_refusal("static_storage { id: 'w' from_step: -1 }", "line 5: static_storage[0].from_step is -1, must be at least 0");
  expect_refusal("static_storage { id: 'w' memory_class: 'soup' }", "line 5: static_storage[0].memory_class 'soup' is no class of memory");
  expect_refusal("static_storage { id: 'w' bytes: 4 size: '4' }", "line 5: static_storage[0].size and bytes are both given");
  expect_refusal("static_storage { id: 'v' bytes: 4611686018427387904 }", "the sum of all bytes is above 2^62");
}

TEST(ModelRefusals, DimensionsBeyondSixtyThreeBits) {
  const auto dim = [](const std::string& field, const std::string& what) {
    EXPECT_THAT(refusal("dim {\n name: 'N'\n " + field + "\n}\nchain { length: 2 }"), HasSubstr("m.textproto: bad model: line 3: " + what))
        << field;
  };
  dim("expression: '9223372036854775807 + 1'", "dim[0].expression");
  dim("expression: '4294967296 * 4294967296'", "dim[0].expression");
  dim("expression: '9223372036854775808'", "dim[0].expression");
  dim("expression: '-9223372036854775807 - 2'", "dim[0].expression");
  dim("expression: '1 / 0'", "dim[0].expression '1 / 0' at character 3: division by zero");
  dim("expression: '1 % 0'", "dim[0].expression '1 % 0' at character 3: division by zero");
  dim("expression: 'ceil(1, 0)'", "dim[0].expression");
  dim("expression: '3 / 2'", "dim[0].expression");
  dim("expression: '1 - 2'", "dim[0].expression '1 - 2' is -1, must be at least 0");
  dim("value: 9223372036854775808", "");  // no int64: the parser's own words
  EXPECT_THAT(refusal("dim { name: 'N' } chain { length: 2 }"), HasSubstr("dim[0] 'N' has no value"));
  EXPECT_THAT(refusal("dim { name: 'N' value: 4611686018427387904 } chain { length: 2 size: '2*N' }"), HasSubstr("chain.size '2*N'"));
}

TEST(ModelRefusals, OpsAndTensors) {
  const auto changed = [](const std::string& from, const std::string& to, const std::string& what) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    EXPECT_THAT(refusal(text), HasSubstr("m.textproto: bad model: " + what)) << to;
  };
  changed("reads: 'y'", "reads: 'q'", "line 3: general.op[1].reads[0] 'q' is no tensor");
  changed("writes: 'z'", "writes: ['z', 'q']", "line 3: general.op[1].writes[1] 'q' is no tensor");
  changed("saves: 'z'", "saves: 'q'", "line 3: general.op[1].saves[0] 'q' is no tensor");
  changed("saves: 'z'", "saves: 'z' packs: 7", "line 3: general.op[1].packs must be AUTO, BEFORE or AFTER");
  changed("saves: 'z'", "saves: 'z' cost: -1", "line 3: general.op[1].cost is -1");
  changed("saves: 'z'", "saves: 'z' workspace_size: '1/0'", "line 3: general.op[1].workspace_size '1/0'");
  changed("phase: 'loss'", "phase: 'optimizer' backward {}", "line 4: general.op[2].backward stands at an op that is no forward op");
  changed("phase: 'loss'", "phase: 'backward' backward_of: 'h'", "line 4: general.op[2].backward_of 'h' is no op above this one");
  changed("phase: 'loss'", "phase: 'backward' after_function: true",
          "line 4: general.op[2].after_function stands at an op without backward_of");
  changed("id: 'loss'", "id: 'g'", "line 4: general.op[2].id 'g' is a duplicate");
  changed("reads: 'x'", "reads: 'z'", "op 'f' reads 'z', which nothing has made yet");
  changed("id: 'y' bytes: 8", "bytes: 8", "general.tensor[1] has no id");
  changed("writes: 'z'", "writes: 'z' writes: 'y' frees: 'y'",
          "line 3: general.op[1].frees[0] is given, but conventions.release is LAST_USE");
  EXPECT_THAT(refusal("general { tensor { id: 'x' } }"), HasSubstr("general has no op"));
  EXPECT_THAT(
      refusal("conventions { release: LISTED } general { tensor { id: 'x' given: true }\nop { id: 'f' reads: 'x' frees: ['x', 'x'] } }"),
      HasSubstr("op 'f' frees 'x', which does not live there"));
}

// A function returns only where it has run: in an op of backward before this one.
TEST(ModelRefusals, ReturnsOfFunctionsThatHaveNotRun) {
  const auto read = [](const std::string& f, const std::string& g, const std::string& backward) {
    return refusal(
        "general { tensor { id: 'x' bytes: 8 given: true } tensor { id: 'y' bytes: 8 } tensor { id: 'z' bytes: 8 }\n"
        "op { id: 'f' reads: 'x' writes: 'y' saves: 'x' " +
        f +
        " }\n"
        "op { id: 'g' reads: 'y' writes: 'z' saves: 'z' " +
        g +
        " }\n"
        "op { id: 'loss' phase: 'loss' reads: 'z' }\n" +
        backward + "}");
  };
  const auto back = [](const std::string& of, bool returned) {
    return "op { phase: 'backward' backward_of: '" + of + "'" + (returned ? " after_function: true" : "") + " }\n";
  };
  const auto refused = [](int op, const std::string& of) {
    return HasSubstr("line " + std::to_string(op + 2) + ": general.op[" + std::to_string(op) +
                     "].after_function stands at the first backward op of '" + of + "'");
  };
  EXPECT_THAT(read("", "", back("g", true)), refused(3, "g"));
  EXPECT_THAT(read("", "", back("g", true) + back("g", false)), refused(3, "g"));
  EXPECT_THAT(read("", "", back("g", false) + back("f", true)), refused(4, "f"));
  EXPECT_THAT(read("", "backward {}", back("f", true)), refused(3, "f"));
  EXPECT_EQ(read("", "", back("g", false) + back("g", true) + back("g", true)), "accepted");
  EXPECT_EQ(read("", "", back("g", false) + back("f", false) + back("g", true)), "accepted");
  EXPECT_EQ(read("", "backward {}", back("g", true) + back("f", false)), "accepted") << "the short form is an op before it";
}

TEST(ModelRefusals, RotorListsOfTheWrongLength) {
  const std::string lists[][2] = {{"a", "a: [1, 1, 1]"}, {"abar", "abar: [2, 2]"}, {"delta", "delta: [0, 0, 0]"}, {"uf", "uf: [1, 1]"},
                                  {"ub", "ub: [1, 1]"},  {"of", "of: [0, 0]"},     {"ob", "ob: [0, 0]"}};
  std::string all;
  for (const auto& [name, text] : lists) all += text + "\n";
  EXPECT_EQ(refusal("rotor_chain {\n" + all + "}"), "accepted");
  for (const auto& [name, text] : lists) {
    if (name == "abar") continue;  // it says how many stages there are
    std::string shorter = text, longer = text;
    shorter.erase(shorter.rfind(','), 3);
    longer.insert(longer.size() - 1, ", 1");
    for (const std::string& other : {shorter, longer}) {
      std::string changed = all;
      changed.replace(changed.find(text + "\n"), text.size(), other);
      EXPECT_THAT(refusal("rotor_chain {\n" + changed + "}"), HasSubstr("rotor_chain." + name)) << other;
      EXPECT_THAT(refusal("rotor_chain {\n" + changed + "}"),
                  HasSubstr(name == "a" || name == "delta" ? " entries, must have 3" : " entries, must have 2"));
    }
    std::string negative = all;
    negative.replace(negative.find(text + "\n") + name.size() + 3, 1, "-1");
    EXPECT_THAT(refusal("rotor_chain {\n" + negative + "}"), HasSubstr("rotor_chain." + name + "[0] is -1")) << negative;
  }
  EXPECT_THAT(refusal("rotor_chain { }"), HasSubstr("rotor_chain has no stage"));
}

TEST(ModelRefusals, Schedule) {
  expect_refusal("schedule { microbatches: 0 }", "line 5: schedule.microbatches is 0, must be at least 1");
  expect_refusal("schedule { microbatches: 2000000 }", "line 5: schedule.microbatches is above 1000000");
  expect_refusal("schedule { stages: 0 }", "line 5: schedule.stages is 0, must be at least 1");
  expect_refusal("schedule { stage: -1 }", "line 5: schedule.stage is -1, must be at least 0");
  expect_refusal("schedule { stages: 4 stage: 4 }", "line 5: schedule.stage must be below stages");
  expect_refusal("schedule { order: 'zigzag' }", "line 5: schedule.order 'zigzag' is none of fwd-bwd, all-fwd, 1f1b");
}

TEST(ModelRefusals, Physical) {
  expect_refusal("physical { allocator: 'jemalloc' }", "line 5: physical.allocator 'jemalloc' is none of");
  expect_refusal("physical { context: -1 }", "line 5: physical.context is -1");
  expect_refusal("physical { communication: -1 }", "line 5: physical.communication is -1");
  expect_refusal("physical { rng_state: 2000000000 }", "physical has sizes above 2^62, or a random state above 1 GiB");
  expect_refusal("physical { allocator: 'cuda' allocator_settings: 'max_split_size_mb:soon' }", "line 5: physical.allocator_settings");
}

TEST(ModelRefusals, Expectations) {
  expect_refusal("expect { counter: 'bytes' }", "line 5: expect[0].counter 'bytes' is none of peak_ids, peak_bytes, requested");
  expect_refusal("expect { value: 3 }", "expect[0].counter '' is none of");
  expect_refusal("expect { counter: 'requested' value: -3 }", "line 5: expect[0].value is -3, must be at least 0");
  expect_refusal("expect { counter: 'requested' policy: 'segment:0' }", "line 5: expect[0]: policy 'segment:0'");
  for (const char* share : {"-0.1", "1.5", "nan", "inf"})
    expect_refusal(std::string("expect { counter: 'requested' tolerance: ") + share + " }",
                   "line 5: expect[0].tolerance must be a share between 0 and 1");
}

TEST(ModelRefusals, Regions) {
  expect_refusal("region { op: 'nothing' }", "line 5: region[0].op[0] 'nothing' is no forward op");
  expect_refusal("region { op: 'loss' }", "line 5: region[0].op[0] 'loss' is no forward op");
  expect_refusal("region { op: ['g', 'f'] }", "line 5: region[0].op[1] 'f' does not follow 'g'");
  expect_refusal("region { op: ['f', 'f'] }", "line 5: region[0].op[1] 'f' does not follow 'f'");
  expect_refusal("region { }", "region[0] names nothing");
  expect_refusal("region { module: 'net.0' op: 'f' }", "region[0] names modules and ops");
  expect_refusal("region { module: 'net.7' }", "line 5: region[0].module 'net.7' names no layer");
  expect_refusal("region { op: 'f' mode: 9 }", "line 5: region[0].mode must be RECOMPUTE, OFFLOAD or SAVE");
  expect_refusal("region { mode: OFFLOAD }", "line 5: region[0] names no value to offload");
  expect_refusal("region { mode: OFFLOAD tensor: 'q' }", "line 5: region[0].tensor[0] 'q' is no value that backward needs");
  expect_refusal("region { mode: OFFLOAD tensor: 'y' }", "line 5: region[0].tensor[0] 'y' is no value that backward needs");
  expect_refusal("region { mode: OFFLOAD tensor: 'x' stash: -1 }", "line 5: region[0].stash is -1");
  expect_refusal("region { id: 'one' op: ['f', 'g'] }\nregion { id: 'two' op: 'g' }", "line 6: regions 'one' and 'two' overlap");
  expect_refusal("region { id: 'one' op: 'g' }\n\nregion { id: 'two' op: ['f', 'g'] }", "line 7: regions 'two' and 'one' overlap");
  expect_refusal("region { id: 'one' op: 'f' }\nregion { id: 'same' op: 'f' }", "line 6: regions ");
  expect_refusal("region { id: 'one' mode: OFFLOAD tensor: 'x' }\nregion { id: 'two' mode: OFFLOAD tensor: 'x' }",
                 "line 6: regions 'one' and 'two' both offload 'x'");
}

// A hundred thousand of everything that a reader could look through once for each: what is quadratic in it takes minutes.
TEST(ModelRefusals, LargeListsAreReadOnce) {
  constexpr int many = 100'000;
  std::string tensors, names, layers;
  for (int i = 0; i < many; ++i) {
    const std::string id = std::to_string(i);
    tensors += "tensor { id: 't" + id + "' }\n";
    names += (i == 0 ? "'t" : ",'t") + id + "'";
    layers += "layer { id: 'l" + id + "' reads: 'l" + std::to_string((i + 1) % many) + "' }\n";
  }
  // One op that saves all that it makes, and one that makes all of it again in place.
  EXPECT_EQ(refusal("general {\n" + tensors + "op { writes: [" + names + "] saves: [" + names + "] backward {} }\nop { writes: [" + names +
                    "] }\nop { phase: 'loss' }\n}"),
            "accepted");
  EXPECT_THAT(refusal("graph { input { id: 'x' }\n" + layers + "}"), HasSubstr("the layers form a cycle"));
  std::string reads = "graph { ";
  for (int i = 0; i < many; ++i) reads += "input { id: 't" + std::to_string(i) + "' }\n";
  EXPECT_EQ(refusal(reads + "layer { id: 'all' reads: [" + names + "] } }"), "accepted");
}

// Names and patterns are compared with each other as often as a second allows, whatever both are.
TEST(ModelRefusals, PatternsOfRegionsAreNotComparedForever) {
  constexpr int many = 60'000;
  const std::string loss = "op { phase: 'loss' }\n}\n", refused = "for so many modules (give fewer regions, or their ops)";
  std::string ops, regions, everything;
  for (int i = 0; i < many; ++i) {
    const std::string id = std::to_string(i);
    ops += "op { id: 'o" + id + "' module: 'net.a" + id + ".b' }\n";
    regions += "region { module: 'net.*" + id + ".b' }\n";
    everything += "region { mode: SAVE module: '*.b' }\n";
  }
  EXPECT_THAT(refusal("general {\n" + ops + loss + regions), HasSubstr(refused));
  EXPECT_THAT(refusal("general { unit: 'net.*.b'\n" + ops + loss + everything), HasSubstr(refused));
  // One pattern and one name may be enough.
  const std::string name(100'000, 'a'), pattern = "net.*" + name.substr(50'000) + "b";
  EXPECT_THAT(refusal("general {\nop { module: 'net." + name + "' }\n" + loss + "region { module: '" + pattern + "' }"),
              HasSubstr(refused));
  EXPECT_THAT(refusal("general {\nop { module: 'net." + name + "' }\nunit: '" + pattern + "'\n" + loss),
              HasSubstr("line 3: general.unit is too long a pattern for so many modules"));
  // What somebody means is far from that.
  EXPECT_EQ(refusal("general {\n" + ops + loss + "region { module: 'net.a17.b' }\nregion { module: 'a18' }"), "accepted");
}

// Names of operators are looked up when the policy is followed: an operator that no op has is named, with those that there are.
TEST(ModelRefusals, OperatorsThatNoOpHas) {
  const Result<Model> model = parse_model(good + "region { op: ['f', 'g'] save_ops: 'conv' }", "");
  ASSERT_TRUE(model) << model.error().message();
  for (const char* policy : {"by-hand", "selective:conv"}) {
    const Result<Prediction> prediction = predict(*model, *parse_policy(policy));
    ASSERT_FALSE(prediction);
    EXPECT_THAT(prediction.error().message(), HasSubstr("the model has no operator 'conv' (it has mm, tanh)"));
  }
}

// So are layers and modules: the first few of many. And what no value is as large as.
TEST(ModelRefusals, ModulesThatTheModelHasNot) {
  std::string ops;
  for (int i = 0; i < 12; ++i) ops += "op { id: 'o" + std::to_string(i) + "' module: 'net.bs." + std::to_string(i) + ".f' }\n";
  const Result<Model> model =
      parse_model("general { unit: 'net.bs.*'\ntensor { id: 'x' bytes: 40 }\n" + ops +
                      "op { id: 's' module: 'net.bs.11.f' writes: 'x' saves: 'x' }\nop { phase: 'loss' reads: 'x' } }",
                  "");
  ASSERT_TRUE(model) << model.error().message();
  const auto refused = [&](const std::string& policy) {
    const Result<Prediction> prediction = predict(*model, *parse_policy(policy));
    return prediction ? "accepted" : prediction.error().message();
  };
  EXPECT_EQ(refused("regions:net.bs.1.g"),
            "policy 'regions:net.bs.1.g': the model has no layer and no module 'net.bs.1.g' (it has the layers net.bs.0 to net.bs.11; the "
            "modules net, net.bs, net.bs.0.f, net.bs.1.f, net.bs.2.f, net.bs.3.f, net.bs.4.f, net.bs.5.f and 6 others)");
  EXPECT_EQ(refused("offload:41"), "policy 'offload:41': no value that backward needs has 41 bytes (the largest has 40)");
  EXPECT_EQ(refused("offload:40"), "accepted");
}

}  // namespace
}  // namespace liveset::model
