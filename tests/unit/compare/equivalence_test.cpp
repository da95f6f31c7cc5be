// Fingerprints side by side: lower bounds, exact differences, tolerances and what is missing, worked out by hand.
#include "viewer/compare/equivalence.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "tests/support/tiny_trace.h"

namespace liveset::compare {
namespace {

using testing::ElementsAre;

TensorPrint tensor(const std::string& name, const std::string& hash, double norm, double max_abs) {
  TensorPrint print;
  print.what = "gradient";
  print.name = name;
  print.dtype = "float32";
  print.shape = {4, 4};
  print.hash = hash;
  print.norm = norm;
  print.max_abs = max_abs;
  return print;
}

TEST(Equivalence, ToleranceIsEpsTimesTheRootOfTheReductionLengthTimesTheLargestElement) {
  Fingerprint a, b;
  a.rows = b.rows = 25;
  a.tensors = {tensor("w", "1", 8, 2)};
  b.tensors = {tensor("w", "2", 8, 3)};
  const Equivalence found = compare_fingerprints(a, b);
  EXPECT_EQ(found.reduction_length, 100U);  // 25 rows, longest side 4
  ASSERT_EQ(found.differences.size(), 1U);
  EXPECT_DOUBLE_EQ(found.differences[0].tolerance, std::ldexp(1, -23) * 10 * 3);
  EXPECT_FALSE(found.differences[0].beyond);  // nothing is known to differ by more
  EXPECT_FALSE(found.differences[0].exact);
}

TEST(Equivalence, NormsAndSamplesBoundTheDifferenceFromBelow) {
  Fingerprint a, b;
  a.tensors = {tensor("w", "1", 8, 2), tensor("v", "1", 8, 2)};
  b.tensors = {tensor("w", "2", 9, 2), tensor("v", "2", 8, 2)};
  a.tensors[1].samples = {{0, 1.0}, {7, 0.5}, {9, std::nullopt}};
  b.tensors[1].samples = {{0, 1.0}, {7, 2.0}, {9, 4.0}};
  const Equivalence found = compare_fingerprints(a, b);
  ASSERT_EQ(found.differences.size(), 2U);
  EXPECT_DOUBLE_EQ(found.differences[0].largest, 1.0 / 4);  // of 16 elements
  EXPECT_DOUBLE_EQ(found.differences[1].largest, 1.5);
  EXPECT_TRUE(found.differences[0].beyond && found.differences[1].beyond);
}

TEST(Equivalence, WholeTensorsGiveTheDifferenceItself) {
  const test::TemporaryFolder folder;
  const float one[] = {1, 2, 3}, other[] = {1, 2.25F, 3};
  test::write_file(folder.file("a"), std::string(reinterpret_cast<const char*>(one), sizeof one));
  test::write_file(folder.file("b"), std::string(reinterpret_cast<const char*>(other), sizeof other));
  Fingerprint a, b;
  a.tensors = {tensor("w", "1", 3.7, 3)};
  b.tensors = {tensor("w", "2", 3.9, 3)};
  a.tensors[0].file = folder.file("a");
  b.tensors[0].file = folder.file("b");
  const Equivalence found = compare_fingerprints(a, b);
  EXPECT_TRUE(found.differences[0].exact);
  EXPECT_DOUBLE_EQ(found.differences[0].largest, 0.25);
}

TEST(Equivalence, SetsThatDoNotMatchAreSaidAndOrderToo) {
  Fingerprint a, b;
  a.tensors = {tensor("u", "1", 1, 1), tensor("v", "1", 1, 1), tensor("w", "1", 1, 1)};
  b.tensors = {tensor("w", "1", 1, 1), tensor("u", "1", 1, 1), tensor("x", "1", 1, 1)};
  const Equivalence found = compare_fingerprints(a, b);
  EXPECT_EQ(found.bitwise_equal, 2U);
  EXPECT_THAT(found.only_a, ElementsAre("gradient v, step 0"));
  EXPECT_THAT(found.only_b, ElementsAre("gradient x, step 0"));
  EXPECT_TRUE(found.other_order);
}

TEST(Equivalence, ReadsHostileTextsWithoutHarm) {
  test::TinyTrace trace;
  for (const char* text : {"{", "[]", "7", R"({"what":5,"shape":[-1,"x",1e300],"samples":[[1],[2,3,4],["a",1],[1,null]],"order":-3})",
                           R"({"what":"loss","name":"../../etc/passwd","rows":18446744073709551615})"})
    trace.attribute("liveset.fingerprint", text);
  trace.attribute("liveset.fingerprint.step", R"({"rows":9223372036854775807})");
  Result<Fingerprint> found = read_fingerprint(trace.open());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->left_out, 3U);
  EXPECT_EQ(found->tensors.size(), 2U);
  EXPECT_LE(compare_fingerprints(*found, *found).reduction_length, std::uint64_t{1} << 63);
}

}  // namespace
}  // namespace liveset::compare
