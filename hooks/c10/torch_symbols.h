// The functions of the job's own torch that the hooks call. Found at run time, so nothing here depends on a torch
// version or on its headers.
#pragma once
#include <cstddef>
#include <cstdint>

namespace c10 {

// The memory layout of c10::Device: two bytes, passed by value in one register.
struct Device {
  std::int8_t type;
  std::int8_t index;
};

}  // namespace c10

namespace liveset::c10_hook {

// Any of them is null until its library is loaded.
struct TorchSymbols {
  bool (*profiling_enabled)();
  void (*report_usage)(void*, std::int64_t, std::size_t, std::size_t, c10::Device);
  void (*report_out_of_memory)(std::int64_t, std::size_t, std::size_t, c10::Device);
  int (*graph_task_id)();  // -1 outside of a backward pass; per thread
  bool (*grad_enabled)();  // grad mode of the calling thread
};

// Cheap: one load once everything was found. Gives the recorder its sequence_source, too. libtorch_cpu may be loaded long after libc10, so
// what is missing is looked for again, ever more rarely.
const TorchSymbols& torch_symbols();

}  // namespace liveset::c10_hook
