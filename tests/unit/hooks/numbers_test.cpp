// Neither hooks nor the collector may include generated code, so they state the numbers of the trace format again. Here they are compared.
#include <gtest/gtest.h>

#include <string>

#include "hooks/api/liveset.h"
#include "hooks/core/dtypes.h"
#include "hooks/core/recorder.h"
#include "profiler/channel/layout.h"
#include "proto/trace.pb.h"

namespace liveset {
namespace {

TEST(Numbers, EventKindsAreThoseOfTheTrace) {
  EXPECT_EQ(int{channel::kind_alloc}, proto::EVENT_ALLOC);
  EXPECT_EQ(int{channel::kind_free}, proto::EVENT_FREE_REQUESTED);
  EXPECT_EQ(int{channel::kind_segment_alloc}, proto::EVENT_SEGMENT_ALLOC);
  EXPECT_EQ(int{channel::kind_segment_free}, proto::EVENT_SEGMENT_FREE);
  EXPECT_EQ(int{channel::kind_out_of_memory}, proto::EVENT_OUT_OF_MEMORY);
  EXPECT_EQ(int{channel::kind_counter}, proto::EVENT_COUNTER);
  EXPECT_EQ(int{channel::kind_segment_map}, proto::EVENT_SEGMENT_MAP);
  EXPECT_EQ(int{channel::kind_segment_unmap}, proto::EVENT_SEGMENT_UNMAP);
  EXPECT_EQ(int{channel::kind_pool_create}, proto::EVENT_POOL_CREATE);
  EXPECT_EQ(int{channel::kind_pool_destroy}, proto::EVENT_POOL_DESTROY);
  EXPECT_EQ(int{channel::kind_pool_trim}, proto::EVENT_POOL_TRIM);
  EXPECT_EQ(int{channel::kind_host_alloc}, proto::EVENT_HOST_ALLOC);
  EXPECT_EQ(int{channel::kind_host_free}, proto::EVENT_HOST_FREE);
  EXPECT_EQ(int{channel::kind_host_register}, proto::EVENT_HOST_REGISTER);
  EXPECT_EQ(int{channel::kind_host_unregister}, proto::EVENT_HOST_UNREGISTER);
  EXPECT_EQ(int{channel::kind_kernel}, proto::EVENT_KERNEL);
  EXPECT_EQ(int{channel::kind_handle_create}, proto::EVENT_HANDLE_CREATE);
  EXPECT_EQ(int{channel::kind_handle_release}, proto::EVENT_HANDLE_RELEASE);
  EXPECT_EQ(int{channel::kind_graph_alloc}, proto::EVENT_GRAPH_ALLOC);
  EXPECT_EQ(int{channel::kind_graph_free}, proto::EVENT_GRAPH_FREE);
  EXPECT_EQ(int{channel::kind_address_reserve}, proto::EVENT_ADDRESS_RESERVE);
  EXPECT_EQ(int{channel::kind_address_free}, proto::EVENT_ADDRESS_FREE);
  EXPECT_EQ(int{channel::kind_import_begin}, proto::EVENT_IMPORT_BEGIN);
  EXPECT_EQ(int{channel::kind_import_end}, proto::EVENT_IMPORT_END);
  EXPECT_EQ(int{channel::kind_step_begin}, proto::EVENT_STEP_BEGIN);
  EXPECT_EQ(int{channel::kind_step_end}, proto::EVENT_STEP_END);
  EXPECT_EQ(int{channel::kind_microbatch_begin}, proto::EVENT_MICROBATCH_BEGIN);
  EXPECT_EQ(int{channel::kind_microbatch_end}, proto::EVENT_MICROBATCH_END);
  EXPECT_EQ(int{channel::kind_phase}, proto::EVENT_PHASE);
  EXPECT_EQ(int{channel::kind_scope_begin}, proto::EVENT_SCOPE_BEGIN);
  EXPECT_EQ(int{channel::kind_scope_end}, proto::EVENT_SCOPE_END);
  EXPECT_EQ(int{channel::kind_attribute}, proto::EVENT_ATTRIBUTE);
  EXPECT_EQ(int{channel::kind_backward_begin}, proto::EVENT_BACKWARD_BEGIN);
  EXPECT_EQ(int{channel::kind_backward_end}, proto::EVENT_BACKWARD_END);
  EXPECT_EQ(int{channel::kind_graph_node}, proto::EVENT_GRAPH_NODE);
  EXPECT_EQ(int{channel::kind_node_begin}, proto::EVENT_NODE_BEGIN);
  EXPECT_EQ(int{channel::kind_node_end}, proto::EVENT_NODE_END);
  EXPECT_EQ(int{channel::kind_node_returned}, proto::EVENT_NODE_RETURNED);
  EXPECT_EQ(int{channel::kind_retain}, proto::EVENT_VALUE_RETAIN);
  EXPECT_EQ(int{channel::kind_drop}, proto::EVENT_VALUE_DROP);
  EXPECT_EQ(int{channel::kind_use}, proto::EVENT_VALUE_USE);
  EXPECT_EQ(int{channel::kind_remake}, proto::EVENT_VALUE_REMAKE);
  EXPECT_EQ(int{channel::kind_offload}, proto::EVENT_VALUE_OFFLOAD);
  EXPECT_EQ(int{channel::kind_collective}, proto::EVENT_COLLECTIVE);
  EXPECT_EQ(int{channel::kind_holder}, proto::EVENT_HOLDER);
  EXPECT_EQ(int{channel::kind_sequence}, proto::EVENT_SEQUENCE);
  EXPECT_EQ(int{channel::kind_storage}, proto::EVENT_STORAGE);
}

TEST(Numbers, ValueKindsAreThoseOfTheTrace) {
  EXPECT_EQ(int{LIVESET_CREATE}, proto::EVENT_VALUE_CREATE);
  EXPECT_EQ(int{LIVESET_RETAIN}, proto::EVENT_VALUE_RETAIN);
  EXPECT_EQ(int{LIVESET_DROP}, proto::EVENT_VALUE_DROP);
  EXPECT_EQ(int{LIVESET_USE}, proto::EVENT_VALUE_USE);
  EXPECT_EQ(int{LIVESET_REMAKE}, proto::EVENT_VALUE_REMAKE);
  EXPECT_EQ(int{LIVESET_MERGE}, proto::EVENT_VALUE_MERGE);
  EXPECT_EQ(int{LIVESET_RELEASE}, proto::EVENT_VALUE_RELEASE);
  EXPECT_EQ(int{LIVESET_ALIAS}, proto::EVENT_VALUE_ALIAS);
  EXPECT_EQ(int{LIVESET_OFFLOAD}, proto::EVENT_VALUE_OFFLOAD);
  EXPECT_EQ(int{LIVESET_PREFETCH}, proto::EVENT_VALUE_PREFETCH);
  EXPECT_TRUE(channel::is_value_kind(proto::EVENT_STORAGE));
  EXPECT_FALSE(channel::is_value_kind(proto::EVENT_SEQUENCE));
}

TEST(Numbers, MemoryClassesAreThoseOfTheTrace) {
  EXPECT_EQ(int{channel::class_parameter}, proto::CLASS_PARAMETER);
  EXPECT_EQ(int{channel::class_activation}, proto::CLASS_ACTIVATION);
  EXPECT_EQ(int{channel::class_communication}, proto::CLASS_COMMUNICATION);
  EXPECT_EQ(int{channel::class_library}, proto::CLASS_LIBRARY);
}

// Bytes as the names say them.
TEST(Numbers, TypesOfTensorsAreThoseOfTheTrace) {
  const auto* types = proto::DType_descriptor();
  int known = 0;
  for (int i = 0; i < types->value_count(); ++i) {
    const std::string name = types->value(i)->name();
    const std::size_t digit = name.find_first_of("0123456789");
    if (name != "BOOL" && digit == std::string::npos) continue;
    const int bytes = name == "BOOL" ? 1 : std::stoi(name.substr(digit)) / 8;
    const core::DType type = core::dtype(types->value(i)->number());
    EXPECT_EQ(int{type.bytes}, bytes) << name;
    const core::Elements elements = name == "BOOL" || name[0] == 'U'              ? core::Elements::naturals
                                    : name[0] == 'I'                              ? core::Elements::integers
                                    : name == "FLOAT16"                           ? core::Elements::halves
                                    : name == "BFLOAT16"                          ? core::Elements::brains
                                    : name == "FLOAT32" || name == "FLOAT64"      ? core::Elements::reals
                                    : name == "COMPLEX64" || name == "COMPLEX128" ? core::Elements::complex
                                                                                  : core::Elements::other;
    EXPECT_EQ(type.elements, elements) << name;
    ++known;
  }
  EXPECT_EQ(known, 20);
  int kept = 0;
  for (const core::DType& type : core::dtypes) kept += type.bytes != 0 ? 1 : 0;
  EXPECT_EQ(kept, known);
  EXPECT_EQ(int{core::dtype(-1).bytes}, 0);
  EXPECT_EQ(int{core::dtype(99).bytes}, 0);
}

TEST(Numbers, PhasesScopesClocksAndLosses) {
  EXPECT_EQ(static_cast<int>(core::Phase::forward), proto::PHASE_FORWARD);
  EXPECT_EQ(static_cast<int>(core::Phase::loss), proto::PHASE_LOSS);
  EXPECT_EQ(static_cast<int>(core::Phase::backward), proto::PHASE_BACKWARD);
  EXPECT_EQ(static_cast<int>(core::Phase::recompute), proto::PHASE_RECOMPUTE);
  EXPECT_EQ(static_cast<int>(core::Phase::optimizer), proto::PHASE_OPTIMIZER);
  EXPECT_EQ(int{LIVESET_FORWARD}, proto::PHASE_FORWARD);
  EXPECT_EQ(int{LIVESET_OPTIMIZER}, proto::PHASE_OPTIMIZER);
  EXPECT_EQ(static_cast<int>(core::ScopeKind::module), proto::SCOPE_MODULE);
  EXPECT_EQ(static_cast<int>(core::ScopeKind::op), proto::SCOPE_OP);
  EXPECT_EQ(static_cast<int>(core::ScopeKind::region), proto::SCOPE_REGION);
  EXPECT_EQ(static_cast<int>(channel::ClockKind::tsc), proto::ClockDomain::TSC);
  EXPECT_EQ(static_cast<int>(channel::ClockKind::cntvct), proto::ClockDomain::CNTVCT);
  EXPECT_EQ(static_cast<int>(channel::ClockKind::monotonic), proto::ClockDomain::MONOTONIC);
  EXPECT_EQ(static_cast<int>(channel::LossReason::ring_full), proto::Loss::RING_FULL);
  EXPECT_EQ(static_cast<int>(channel::LossReason::no_memory), proto::Loss::NO_MEMORY);
  EXPECT_EQ(static_cast<int>(channel::LossReason::disk_full), proto::Loss::DISK_FULL);
  EXPECT_EQ(static_cast<int>(channel::LossReason::dictionary_full), proto::Loss::DICTIONARY_FULL);
  EXPECT_EQ(static_cast<int>(channel::LossReason::collector_bug), proto::Loss::COLLECTOR_BUG);
}

}  // namespace
}  // namespace liveset
