// Fingerprints side by side: lower bounds, exact differences, tolerances and what is missing, worked out by hand.
#include "viewer/compare/equivalence.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>

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
  a.tensors[0].shape = b.tensors[0].shape = {3};
  a.tensors[0].file = folder.file("a");
  b.tensors[0].file = folder.file("b");
  const Equivalence found = compare_fingerprints(a, b);
  EXPECT_TRUE(found.differences[0].exact);
  EXPECT_DOUBLE_EQ(found.differences[0].largest, 0.25);
}

std::string bytes_of(const std::vector<float>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}

// A run that wrote `numbers`, and says that its tensor has three elements.
Fingerprint run_of(const test::TemporaryFolder& folder, const std::string& name, const std::vector<float>& numbers) {
  Fingerprint run;
  run.tensors = {tensor("w", name, 1, 1)};
  run.tensors[0].shape = {3};
  run.tensors[0].file = folder.file(name);
  test::write_file(run.tensors[0].file, bytes_of(numbers));
  return run;
}

TEST(Equivalence, FilesThatAreNotTheWholeTensorAreNoExactFigure) {
  const test::TemporaryFolder folder;
  const Fingerprint whole = run_of(folder, "whole", {1, 2, 3});
  const auto judged = [&](Fingerprint other) {
    other.tensors[0].norm = 3;  // 2 more: at least 2 / sqrt(3) of some element
    const Difference made = compare_fingerprints(whole, other).differences.at(0);
    EXPECT_FALSE(made.exact);
    EXPECT_TRUE(made.beyond);
    EXPECT_DOUBLE_EQ(made.largest, 2 / std::sqrt(3));
  };
  judged(run_of(folder, "empty", {}));
  judged(run_of(folder, "short", {1, 2}));
  judged(run_of(folder, "long", {1, 2, 3, 4}));
  judged(run_of(folder, "of_another_run", {1, 2, 3}));  // the same numbers, though norms say that some differ
  Fingerprint folder_run = run_of(folder, "x", {});
  folder_run.tensors[0].file = folder.file("");
  judged(folder_run);
}

TEST(Equivalence, WhatIsNotFiniteMustBeSoAtTheSamePlaceAndInTheSameWay) {
  const test::TemporaryFolder folder;
  const float nan = std::nanf(""), inf = INFINITY;
  int number = 0;
  const auto judged = [&](const std::vector<float>& one, const std::vector<float>& other) {
    Fingerprint a = run_of(folder, std::to_string(++number), one), b = run_of(folder, std::to_string(++number), other);
    a.tensors[0].not_finite = b.tensors[0].not_finite = 1;
    const Difference made = compare_fingerprints(a, b).differences.at(0);
    EXPECT_TRUE(made.exact);
    EXPECT_EQ(made.beyond, !made.reason.empty());
    return made.beyond;
  };
  EXPECT_TRUE(judged({nan, 1, 1}, {1, 1, nan}));
  EXPECT_TRUE(judged({inf, 1, 1}, {nan, 1, 1}));
  EXPECT_TRUE(judged({inf, 1, 1}, {-inf, 1, 1}));
  EXPECT_FALSE(judged({nan, 1, 1}, {-nan, 1, 1}));
  EXPECT_FALSE(judged({inf, 1, 1}, {inf, 1, 1}));
  Fingerprint a, b;
  a.tensors = {tensor("w", "1", 8, 2)};
  b.tensors = {tensor("w", "2", 8, 2)};
  a.tensors[0].samples = {{0, 1.0}, {7, std::nullopt}};
  b.tensors[0].samples = {{0, 1.0}, {7, 1.0}};
  EXPECT_TRUE(compare_fingerprints(a, b).differences.at(0).beyond);
}

TEST(Equivalence, TensorsThatCouldNotBeReadAreNotCompared) {
  Fingerprint a, b;
  a.tensors = {tensor("u", "", 1, 1), tensor("v", "1", 1, 1), tensor("w", "1", 1, 1)};
  b.tensors = {tensor("u", "", 1, 1), tensor("v", "", 1, 1), tensor("w", "1", 1, 1)};
  const Equivalence found = compare_fingerprints(a, b);
  EXPECT_EQ(found.compared, 1U);
  EXPECT_THAT(found.unreadable, ElementsAre("gradient u, step 0", "gradient v, step 0"));
}

TEST(Equivalence, NamesOfFilesStayInTheFolder) {
  test::TinyTrace trace;
  for (const char* name : {"a", "b", "c", "d"})
    trace.attribute("liveset.fingerprint", std::string(R"({"what":"gradient","name":")") + name + R"(","hash":"1"})");
  const trace::TraceFile file = trace.open();
  const std::string folder = file.path() + ".values";
  std::filesystem::create_directory(folder);
  test::write_file(folder + "/index.json", R"({"byte_order":"little","tensors":[{"what":"gradient","name":"a","file":"."},)"
                                           R"({"what":"gradient","name":"b","file":".."},{"what":"gradient","name":"c","file":"../x"},)"
                                           R"({"what":"gradient","name":"d","file":"0.bin"}]})");
  Result<Fingerprint> found = read_fingerprint(file);
  ASSERT_TRUE(found);
  for (const TensorPrint& print : found->tensors) EXPECT_EQ(print.file, print.name == "d" ? folder + "/0.bin" : "");
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
