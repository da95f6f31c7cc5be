// The user's own categories: what a pattern fits, which rule wins, and what is said of a file that is none.
#include "viewer/report/rules.h"

#include <gmock/gmock.h>

namespace liveset::report {
namespace {

using testing::HasSubstr;

TEST(Patterns, StandForAnyTextOrOneCharacter) {
  struct Case {
    const char *pattern, *text;
    bool fits;
  };
  for (const Case& c : {Case{"", "", true},
                        {"", "a", false},
                        {"*", "", true},
                        {"*", "GPT.bs.0", true},
                        {"?", "", false},
                        {"?", "x", true},
                        {"GPT.*.attn", "GPT.bs.0.attn", true},
                        {"GPT.*.attn", "GPT.attn", false},
                        {"*.attn*", "GPT.bs.0.attn.qkv", true},
                        {"*attn", "attnattn", true},
                        {"*ab*ab", "abab", true},
                        {"*ab*ab", "ab", false},
                        {"a*b*c", "axxbyyc", true},
                        {"a*b*c", "axxbyy", false},
                        {"**a", "ba", true},
                        {"A", "a", false},
                        {"[a]", "a", false}})
    EXPECT_EQ(matches(c.pattern, c.text), c.fits) << c.pattern << " " << c.text;
}

// A pattern of many stars against a text that nearly fits: the product of the lengths, not more.
TEST(Patterns, TakeNoTimeThatGrowsWithTheirStars) {
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "*a";
  EXPECT_FALSE(matches(pattern + "b", std::string(10'000, 'a')));
}

LiveBlock block(std::uint64_t bytes, const char* module, const char* op) {
  LiveBlock made;
  made.detail.bytes = bytes;
  made.module = module;
  made.op = op;
  made.dtype = "bfloat16";
  made.memory_class = trace::MemoryClass::activation;
  return made;
}

TEST(Rules, TheFirstThatFitsWins) {
  const Result<Rules> rules = parse_rules(R"({"rules": [
      {"category": "attention", "module": "*.attn*", "op": "Softmax*", "min_bytes": 100},
      {"category": "small", "max_bytes": 99},
      {"category": "half", "dtype": "*float16", "class": "activation"}]})",
                                          "my.json");
  ASSERT_TRUE(rules) << rules.error().message();
  EXPECT_EQ(category_of(*rules, block(100, "GPT.attn", "SoftmaxBackward0")), "attention");
  EXPECT_EQ(category_of(*rules, block(99, "GPT.attn", "SoftmaxBackward0")), "small");
  EXPECT_EQ(category_of(*rules, block(100, "GPT.attn", "MulBackward0")), "half");
  LiveBlock parameter = block(100, "", "");
  parameter.memory_class = trace::MemoryClass::parameter;
  EXPECT_EQ(category_of(*rules, parameter), "(no category)");
}

TEST(Rules, ANodeIsAnyOfThoseThatRetainTheBlock) {
  const Result<Rules> rules = parse_rules(R"({"rules": [{"category": "attention", "op": "Softmax*"}]})", "my.json");
  ASSERT_TRUE(rules);
  LiveBlock made = block(1, "", "BmmBackward0");
  made.names = {"BmmBackward0.self"};
  EXPECT_EQ(category_of(*rules, made), "(no category)");
  made.names.push_back("SoftmaxBackward0.result");
  EXPECT_EQ(category_of(*rules, made), "attention");
}

// A block without frames fits no pattern of a stack but one that fits nothing, too.
TEST(Rules, AStackIsMatchedByItsText) {
  const Result<Rules> rules = parse_rules(R"({"rules": [{"category": "flash", "stack": "*flash*"}]})", "my.json");
  ASSERT_TRUE(rules);
  LiveBlock made = block(1, "", "");
  EXPECT_EQ(category_of(*rules, made), "(no category)");
  made.stack = "run (flash.py:3) < main (train.py:1)";
  EXPECT_EQ(category_of(*rules, made), "flash");
}

TEST(Rules, WhatIsWrongIsNamedByRuleAndField) {
  const auto wrong = [](const std::string& text) {
    const Result<Rules> rules = parse_rules(text, "my.json");
    EXPECT_FALSE(rules) << text;
    return rules ? std::string() : rules.error().message();
  };
  const auto second = [&](const std::string& rule) { return wrong(R"({"rules": [{"category": "a"}, )" + rule + "]}"); };
  EXPECT_THAT(wrong("{"), HasSubstr("my.json: it is no JSON, at byte"));
  EXPECT_THAT(wrong("[]"), HasSubstr("it has no list \"rules\""));
  EXPECT_THAT(wrong(R"({"rules": []})"), HasSubstr("is empty"));
  EXPECT_THAT(wrong(R"({"rules": [{"category": "a"}], "rule": 1})"), HasSubstr("field \"rule\" is unknown"));
  EXPECT_THAT(second("7"), HasSubstr("rule 2: it is no object"));
  EXPECT_THAT(second(R"({"modul": "x", "category": "b"})"), HasSubstr("rule 2: field \"modul\" is unknown; known are category, module"));
  EXPECT_THAT(second(R"({"module": "x"})"), HasSubstr("rule 2: field \"category\" is missing"));
  EXPECT_THAT(second(R"({"category": ""})"), HasSubstr("rule 2: field \"category\" is empty"));
  EXPECT_THAT(second(R"({"category": "b", "op": 3})"), HasSubstr("rule 2: field \"op\" is no text"));
  EXPECT_THAT(second(R"({"category": "b", "min_bytes": -1})"), HasSubstr("rule 2: field \"min_bytes\" is not a whole number"));
  EXPECT_THAT(second(R"({"category": "b", "max_bytes": "1 MiB"})"), HasSubstr("rule 2: field \"max_bytes\""));
  EXPECT_THAT(second(R"({"category": "b", "min_bytes": 2, "max_bytes": 1})"), HasSubstr("it fits nothing"));
  EXPECT_THAT(second(R"({"category": "b", "class": "activations"})"), HasSubstr("rule 2: field \"class\" fits no class: \"activations\""));
  EXPECT_THAT(second(R"({"category": "b", "op": "x", "op": "y"})"), HasSubstr("\"op\" stands twice"));
  EXPECT_THAT(wrong(std::string(300, '[')), HasSubstr("it is no JSON"));
  EXPECT_EQ(wrong("{\"rules\": [{\"\x1b[31m\": 1}]}").find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace liveset::report
