// What a file expects, checked against predictions; every expected number worked out by hand or by the closed forms of the chain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/model/expectations.h"

namespace liveset::model {
namespace {

using ::testing::HasSubstr;

std::vector<CheckedExpectation> checked(const std::string& text) {
  const Result<Model> model = parse_model(text, "m.textproto");
  EXPECT_TRUE(model) << model.error().message();
  Result<std::vector<CheckedExpectation>> checks = check_expectations(*model);
  EXPECT_TRUE(checks) << checks.error().message();
  return std::move(*checks);
}

std::string refusal(const std::string& text) {
  const Result<Model> model = parse_model(text, "m.textproto");
  if (!model) return model.error().message();
  const Result<std::vector<CheckedExpectation>> checks = check_expectations(*model);
  return checks ? "accepted" : checks.error().message();
}

const std::string chain = "chain { length: 6 bytes: 8 cost: 10 }\n";

// Six layers of 8 bytes: peak n/k + k, layers 2n, cost 10 a layer. A parameter of 100 bytes is in the memory and in no ledger.
TEST(Expectations, EveryCounterOfACpuModel) {
  const std::vector<CheckedExpectation> checks = checked(chain +
                                                         "static_storage { id: 'w' bytes: 100 }\n"
                                                         "expect { counter: 'peak_ids' value: 7 }\n"
                                                         "expect { policy: 'segment:2' counter: 'peak_ids' value: 5 }\n"
                                                         "expect { policy: 'segment:2' counter: 'peak_bytes' value: 40 }\n"
                                                         "expect { policy: 'segment:2' counter: 'requested' value: 140 }\n"
                                                         "expect { policy: 'segment:2' counter: 'allocated' value: 140 }\n"
                                                         "expect { policy: 'segment:2' counter: 'active' value: 140 }\n"
                                                         "expect { policy: 'segment:2' counter: 'forward_cost' value: 120 }\n");
  ASSERT_EQ(checks.size(), 7U);
  for (const CheckedExpectation& each : checks) {
    EXPECT_TRUE(each.holds()) << each.expected.policy << " " << each.expected.counter << ": " << each.predicted;
    EXPECT_EQ(each.difference(), 0);
  }
}

// The caching allocator: a block is a multiple of 512 bytes, small ones share segments of 2 MiB.
TEST(Expectations, CountersOfACachingAllocator) {
  const std::vector<CheckedExpectation> checks = checked(
      "chain { length: 2 bytes: 513 }\nphysical { allocator: 'cuda' }\n"
      "expect { counter: 'requested' value: 1539 }\nexpect { counter: 'allocated' value: 3072 }\n"
      "expect { counter: 'active' value: 3072 }\nexpect { counter: 'reserved' value: 2097152 }\n");
  for (const CheckedExpectation& each : checks) EXPECT_TRUE(each.holds()) << each.expected.counter << ": " << each.predicted;
}

TEST(Expectations, ToleranceIsAShareOfWhatIsExpected) {
  const auto holds = [](const std::string& value_and_tolerance) {
    return checked(chain + "expect { policy: 'segment:2' counter: 'peak_bytes' value: " + value_and_tolerance + " }").front().holds();
  };
  EXPECT_TRUE(holds("40"));
  EXPECT_FALSE(holds("39"));
  EXPECT_FALSE(holds("41"));
  EXPECT_TRUE(holds("50 tolerance: 0.2"));  // 10 of 50
  EXPECT_FALSE(holds("50 tolerance: 0.19"));
  EXPECT_TRUE(holds("32 tolerance: 0.25"));
  EXPECT_FALSE(holds("0 tolerance: 1"));
  EXPECT_FALSE(holds("9223372036854775807"));
  const CheckedExpectation below = checked(chain + "expect { counter: 'peak_ids' value: 9 }").front();
  EXPECT_EQ(below.difference(), -2);
}

TEST(Expectations, SaysLineAndFieldOfWhatCannotBeChecked) {
  const auto expect = [](const std::string& body, const std::string& place, const std::string& what) {
    const std::string message = refusal(chain + body);
    EXPECT_THAT(message, HasSubstr(place)) << body;
    EXPECT_THAT(message, HasSubstr(what)) << body;
    EXPECT_EQ(message.find('\n'), std::string::npos) << body;
  };
  expect("expect { counter: 'peak_id' value: 1 }", "line 2: expect[0].counter", "'peak_id' is none of peak_ids");
  expect("expect { value: 1 }", "expect[0].counter", "is none of peak_ids");
  expect("\nexpect {\n policy: 'all'\n counter: 'peak_ids' value: 1 }", "line 4: expect[0]: ", "unknown policy 'all'");
  expect("expect { counter: 'peak_ids' value: 7 }\nexpect { policy: 'segments:3,2' counter: 'peak_ids' value: 5 }",
         "line 3: expect[1]: policy ", "the segments have 5 layers, the model has 6");
  expect("expect { counter: 'reserved' value: 1 }", "line 2: expect[0].counter: ", "does not tell of 'reserved'");
  expect("expect { counter: 'peak_ids' value: -1 }", "line 2: ", "value");
  expect("expect { counter: 'peak_ids' value: 1 tolerance: -0.1 }", "line 2: ", "tolerance");
  expect("expect { counter: 'peak_ids' value: 1 tolerance: nan }", "line 2: ", "tolerance");
  expect("", "", "it expects nothing");
}

}  // namespace
}  // namespace liveset::model
