// A libtorch_cpu.so with, and one without, the number of autograd's next node.
#include <cstdint>

namespace torch::autograd {
int get_current_graph_task_id() { return -1; }
}  // namespace torch::autograd

#ifdef LIVESET_TEST_NUMBERED
namespace at::sequence_number {
std::uint64_t peek() { return 4711; }
}  // namespace at::sequence_number
#endif
