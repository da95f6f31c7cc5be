// A trace whose ledger does not fit into memory.
#include <gtest/gtest.h>

#include "tests/support/tiny_trace.h"
#include "viewer/ledger/physical.h"

namespace liveset::ledger {
namespace {

using test::TinyTrace;

TEST(Memory, MoreAllocationsThanMemoryAreRefusedBeforehand) {
  TinyTrace trace;
  const auto cpu = trace.heap("cpu");
  for (std::uint64_t i = 1; i <= 10; ++i) trace.alloc(cpu, 0x1000 * i, 10);
  const trace::TraceFile file = trace.open();
  PhysicalOptions options;
  options.memory_bytes = 10 * sizeof(Block);
  EXPECT_TRUE(build_physical(file, options));
  options.memory_bytes -= 1;
  const Result<PhysicalLedger> ledger = build_physical(file, options);
  ASSERT_FALSE(ledger);
  EXPECT_EQ(ledger.error().kind, ErrorKind::unreadable);
  EXPECT_NE(ledger.error().message().find("10 allocations"), std::string::npos) << ledger.error().message();
}

}  // namespace
}  // namespace liveset::ledger
