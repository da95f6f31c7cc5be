// The chain in CUDA, dry-run: kernels that the program has twins of on the host, so its numbers are those of the acceptance facts.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/acceptance.h"
#include "tests/support/chain_facts.h"
#include "tests/support/run_program.h"

namespace liveset::test {
namespace {

using nlohmann::json;

class CudaChain : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string program = std::string(LIVESET_BIN_DIR) + "/cuda_chain";
    const std::string stand_in = std::string(LIVESET_LIB_DIR) + "/liveset/standin/driver/libcuda.so.1";
    if (access(program.c_str(), X_OK) != 0) GTEST_SKIP() << "cuda_chain is not built: no CUDA toolkit was found";
    if (access(stand_in.c_str(), R_OK) != 0) GTEST_SKIP() << "the stand-in libraries are not built";
  }

  // Records the program in a dry run and gives what it printed.
  json record(const std::string& arguments) {
    const Ran ran =
        run_program("liveset dryrun -q --gpu h100 --backing all -o " + trace_ + " -- " + LIVESET_BIN_DIR + "/cuda_chain " + arguments);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    return json::parse(ran.out, nullptr, false);
  }

  json read(const std::string& command) {
    const Ran ran = run_program("liveset " + command + " --format json " + trace_);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return json::parse(ran.out, nullptr, false);
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("chain.liveset");
};

TEST_F(CudaChain, NumbersAndLedgerOfEveryPolicy) {
  for (const json& policy : acceptance("chain_ledgers").at("policies")) {
    SCOPED_TRACE(policy.at("policy"));
    const json step = record("--policy " + policy_argument(policy));
    ASSERT_TRUE(step.is_object());
    expect_chain_step(step, policy);
    EXPECT_EQ(step.at("forward_layers"), policy.at("forward_layers"));
    expect_chain_ledger(read("ledger --logical"), policy);
  }
}

TEST_F(CudaChain, ArenaOnTheDeviceHoldsWhatTheLedgerSays) {
  const json step = record("--policy segment:2");
  ASSERT_TRUE(step.is_object());
  const json summary = read("summary --heap cuda:0/arena");
  const json& arena = summary.at("counters").at("cuda:0/arena");
  EXPECT_EQ(arena.at("allocated").at("peak"), 5 * 8);
  EXPECT_EQ(arena.at("allocated").at("final"), 0);
  EXPECT_EQ(arena.at("segments").at("peak"), 1 << 20);
  EXPECT_EQ(summary.at("health").at("lost_events"), 0);
  EXPECT_EQ(summary.at("health").at("unmatched_frees"), 0);
}

TEST_F(CudaChain, WithoutRealMemoryTheLedgerStaysTheSame) {
  const Ran ran = run_program("liveset dryrun -q --gpu h100 --backing none -o " + trace_ + " -- " + LIVESET_BIN_DIR + "/cuda_chain");
  EXPECT_EQ(ran.status, 0) << ran.err;
  expect_chain_ledger(read("ledger --logical"), acceptance("chain_ledgers").at("policies")[0]);
}

}  // namespace
}  // namespace liveset::test
