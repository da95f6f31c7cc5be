// `liveset predict` as a person calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/acceptance.h"
#include "tests/support/run_program.h"

namespace liveset::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string chain_file = std::string(LIVESET_SOURCE_DIR) + "/samples/tanh_chain/chain.textproto";

json ids(const json& numbers) {
  json names = json::array();
  for (const json& number : numbers) names.push_back("h" + number.dump());
  return names;
}

TEST(PredictCommand, JsonHasTheChainsLedgerForEveryPolicy) {
  for (const json& policy : acceptance("chain_ledgers").at("policies")) {
    SCOPED_TRACE(policy.at("policy"));
    const Ran ran = run_program("liveset predict " + chain_file + " --policy " + policy_argument(policy) + " --format json");
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    const json out = json::parse(ran.out);
    EXPECT_EQ(out.at("schema"), "liveset.predict/1");
    EXPECT_EQ(out.at("peak").at("ids"), policy.at("peak"));
    EXPECT_EQ(out.at("peak").at("bytes"), 8 * policy.at("peak").get<int>());
    EXPECT_EQ(out.at("peak").at("event"), policy.at("peak_event"));
    EXPECT_EQ(out.at("forward_layers"), policy.at("forward_layers"));
    EXPECT_EQ(out.at("held_at_loss"), ids(policy.at("held_at_loss")));
    EXPECT_EQ(out.at("boundaries"), policy.at("boundaries"));
    ASSERT_EQ(out.at("events").size(), policy.at("events").size());
    for (std::size_t i = 0; i < policy.at("events").size(); ++i) {
      const json& fact = policy.at("events")[i];
      const json expected{{"index", fact.at("index")},
                          {"phase", fact.at("phase")},
                          {"kind", fact.at("kind")},
                          {"value", "h" + fact.at("layer").dump()},
                          {"layer", fact.at("layer")},
                          {"reads", ids(fact.at("reads"))},
                          {"live", ids(fact.at("live"))},
                          {"live_ids", fact.at("live_count")},
                          {"live_bytes", 8 * fact.at("live_count").get<int>()},
                          {"forward_layers", fact.at("forward_layers")}};
      EXPECT_EQ(out.at("events")[i], expected);
    }
  }
}

TEST(PredictCommand, TableSaysPeakFirst) {
  const Ran ran = run_program("liveset predict " + chain_file + " --policy segment:2");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(
      ran.out,
      HasSubstr("predicted       tanh_chain, 6 layers, policy segment:2\npeak            5 values at event 11, 40 B at event 11\n"));
  EXPECT_THAT(ran.out, HasSubstr("held at loss    4: h0 h2 h4 h6\n"));
}

TEST(PredictCommand, InputsThatAreNotCountedAreSaid) {
  const TemporaryFolder folder;
  const std::string file = written(folder, "chain", "conventions { count_inputs: false }\nchain { length: 3 bytes: 1044480 }\n");
  const Ran ran = run_program("liveset predict " + file);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("held at loss    3 + 1 input, not counted: h0 h1 h2 h3\n"));
  EXPECT_THAT(ran.out, HasSubstr(" 1020.00 KiB ")) << "a number is never shortened";
}

TEST(PredictCommand, CsvHasOneLinePerEvent) {
  const Ran ran = run_program("liveset predict " + chain_file + " --format csv");
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 1 + 28);
  EXPECT_THAT(ran.out, HasSubstr("\n11,forward,create,h6,h5,7,56,6,h0 h1 h2 h3 h4 h5 h6\n"));
}

TEST(PredictCommand, SaysInOneLineWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string cycle = written(folder, "cycle", "graph {\n layer { id: 'a' reads: 'b' }\n layer { id: 'b' reads: 'a' }\n}\n");
  const std::string twice = written(folder, "twice", "graph {\n input { id: 'x' }\n layer { id: 'x' reads: 'x' }\n}\n");
  const std::string negative = written(folder, "negative", "chain {\n length: 6\n bytes: -8\n}\n");
  const std::string picture = written(folder, "picture.png", std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16));
  const std::string empty = written(folder, "empty", "");
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  struct Case {
    std::string arguments, says;
    int status;
  };
  const Case cases[] = {
      {cycle, "line 2: graph: the layers form a cycle: a reads b reads a", 3},
      {twice, "line 3: graph.layer[0].id 'x' is a duplicate", 3},
      {negative, "line 3: chain.bytes is -8, must be at least 0", 3},
      {picture, "this is a binary file", 3},
      {empty, "the file is empty", 3},
      {folder.file("missing"), "No such file or directory", 3},
      {folder.file(""), "is a directory", 3},
      {chain_file + " --policy segment:0", "the segment length must be a whole number of at least 1", 2},
      {chain_file + " --policy segments:3,2", "the segments have 5 layers, the model has 6", 2},
      {chain_file + " --policy segment:99999999999999999999", "the segment length is too large", 2},
      {chain_file + " --policy segments:3,99999999999999999999", "segment 2 is too large", 2},
      {chain_file + " --strict", "--strict", 2},
      {pipe, "is not a regular file", 3},
      {chain_file + " --policy everything", "unknown policy 'everything'", 2},
  };
  for (const Case& bad : cases) {
    const Ran ran = run_program("liveset predict " + bad.arguments);
    EXPECT_EQ(ran.status, bad.status) << bad.arguments;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(bad.says));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

}  // namespace
}  // namespace liveset::test
