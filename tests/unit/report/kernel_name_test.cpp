#include "viewer/report/kernel_name.h"

#include <gtest/gtest.h>

namespace liveset::report {
namespace {

TEST(KernelName, IsSpelledOut) {
  EXPECT_EQ(readable_name("_ZN2at6native3addIfEEvT_"), "void at::native::add<float>(float)");
  EXPECT_EQ(readable_name("triton_poi_fused_gelu_0"), "triton_poi_fused_gelu_0");
  EXPECT_EQ(readable_name("_Zwhat"), "_Zwhat");
  EXPECT_EQ(readable_name("f"), "f");  // no abbreviation of float here
  EXPECT_EQ(readable_name(""), "");
}

// f(A<int, int>, A<S0, S0>, A<S1, S1>, ...): each part is twice as long as the one before.
TEST(KernelName, ThatWouldFillTheMemoryIsCutShort) {
  std::string name = "_ZN2ns1fE1AIiiE";
  for (char part = '0'; part <= '9'; ++part)
    for (int i = 0; i < 9; ++i) name += std::string("S_IS") + part + "_S" + part + "_E";
  EXPECT_EQ(readable_name(name), "ns::f<...>");
  EXPECT_EQ(readable_name("_Z" + std::string(100, 'P') + name.substr(2)), "_Z" + std::string(100, 'P') + name.substr(2));
  EXPECT_EQ(readable_name("_ZN99999999999999999999999x" + name), "_ZN99999999999999999999999x" + name);
}

TEST(KernelName, OfManyReferencesKeepsItsOwnName) {
  std::string name = "_ZN12_GLOBAL__N_13sumIiEEvT_";
  for (int i = 0; i < 40; ++i) name += "T_";
  EXPECT_EQ(readable_name(name), "(anonymous namespace)::sum<...>");
}

}  // namespace
}  // namespace liveset::report
