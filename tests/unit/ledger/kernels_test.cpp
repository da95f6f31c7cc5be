#include "viewer/ledger/kernels.h"

#include "tests/support/opened_trace.h"
#include "tests/support/trace_events.h"

namespace liveset::ledger {
namespace {

constexpr std::uint32_t matmul = 4, relu = 5;
constexpr std::uint32_t region = 2, module_in_region = 3;

class KernelCounts : public test::OpenedTraceTest {
 protected:
  // Names 1 to 5; a module, a region in it, a module in that.
  trace::TraceFile recorded() {
    std::string error;
    auto writer = writer::TraceWriter::create(path_, test::header_info(), &error);
    std::uint32_t id = 0;
    for (const char* text : {"net", "checkpoint:0", "linear", "matmul", "relu"}) writer->define_string(++id, text);
    writer->define_scope(1, 0, proto::SCOPE_MODULE, 1);
    writer->define_scope(region, 1, proto::SCOPE_REGION, 2);
    writer->define_scope(module_in_region, region, proto::SCOPE_MODULE, 3);
    const auto launch = [&](std::uint32_t name, std::uint32_t scope, int phase) {
      writer::Event event = test::event(proto::EVENT_KERNEL, ++time_);
      event.name = name;
      event.scope = scope;
      event.phase = static_cast<std::uint8_t>(phase);
      writer->append(event);
    };
    launch(matmul, module_in_region, proto::PHASE_FORWARD);
    launch(relu, region, proto::PHASE_FORWARD);
    launch(matmul, 1, proto::PHASE_FORWARD);
    writer->append(test::allocation(++time_, 0x1000, 64, 1));
    writer->flush();
    launch(matmul, module_in_region, proto::PHASE_RECOMPUTE);
    launch(matmul, region, proto::PHASE_RECOMPUTE);
    launch(relu, 1, proto::PHASE_RECOMPUTE);  // outside any region
    launch(matmul, 0, proto::PHASE_BACKWARD);
    EXPECT_TRUE(writer->finish("exit"));
    return open_good(test::read_file(path_));
  }
  std::uint64_t time_ = 0;
};

TEST_F(KernelCounts, AreByPhaseNameAndRegion) {
  const trace::TraceFile file = recorded();
  const Result<Kernels> kernels = count_kernels(file, Range{});
  ASSERT_TRUE(kernels);
  EXPECT_EQ(kernels->launches, 7U);
  EXPECT_EQ(kernels->phases, (LaunchesByPhase{0, 3, 0, 1, 3}));
  EXPECT_EQ(kernels->names.at(matmul), (LaunchesByPhase{0, 2, 0, 1, 2}));
  EXPECT_EQ(kernels->names.at(relu), (LaunchesByPhase{0, 1, 0, 0, 1}));
  ASSERT_EQ(kernels->regions.size(), 2U);
  EXPECT_EQ(kernels->regions[0].scope, region);
  EXPECT_EQ(kernels->regions[0].launches, 4U);
  EXPECT_EQ(kernels->regions[0].recomputed, 2U);
  EXPECT_EQ(kernels->regions[0].recomputed_names, (std::map<std::uint32_t, std::uint64_t>{{matmul, 2}}));
  EXPECT_EQ(kernels->regions[1].scope, 0U);
  EXPECT_EQ(kernels->regions[1].recomputed_names, (std::map<std::uint32_t, std::uint64_t>{{relu, 1}}));
}

TEST_F(KernelCounts, AreOfTheRange) {
  const trace::TraceFile file = recorded();
  Range range;
  range.first = 4;
  range.end = 6;
  const Result<Kernels> kernels = count_kernels(file, range);
  ASSERT_TRUE(kernels);
  EXPECT_EQ(kernels->launches, 2U);
  EXPECT_EQ(kernels->names.at(matmul), (LaunchesByPhase{0, 0, 0, 0, 2}));
}

}  // namespace
}  // namespace liveset::ledger
