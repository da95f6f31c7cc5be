// What the stand-in driver library (libcuda.so.1) offers its sister libraries. They take the place of NVIDIA's own libraries in a
// dry run and share one model of the devices, which lives in the driver library.
//
// Nothing here does anything without the environment variable LIVESET_STANDIN, which only `liveset dryrun` sets: then cuInit says
// that there is no device. Its value is lines of key=value; profiler/launch writes them and hooks/standin/model reads them.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

// Names, kinds and call counts of the functions of one library that have no body of their own. The arrays live as long as the library.
struct LivesetStandinStubs {
  const char* library;       // its SONAME
  const char* const* names;  // of `count` functions
  std::uint32_t* calls;      // raised by each call, relaxed
  std::uint32_t count;
};
void liveset_standin_register(LivesetStandinStubs* stubs);
// The first call of a function whose answer is not known: it is named at the end, with its count.
void liveset_standin_unknown(const LivesetStandinStubs* stubs, std::uint32_t function);

// One more occurrence of something that makes a number an estimate. `what` is one of the names in viewer/report/estimates.cpp,
// `detail` may be null. The first occurrence takes the Python stack. Any thread; cheap after the first.
void liveset_standin_estimate(const char* what, const char* detail);

// A number of the configuration (LIVESET_STANDIN), `absent` when it is not stated.
std::int64_t liveset_standin_number(const char* key, std::int64_t absent);

int liveset_standin_device();                    // current device of the calling thread
std::uint64_t liveset_standin_used(int device);  // bytes, the context's included
// Memory of a module's variable: part of the module, so it counts against no device. Null: none left.
void* liveset_standin_variable(std::size_t bytes);
// Whether the thread's last cuEventQuery found an event passed whose work would have taken time on a device.
bool liveset_standin_query_was_early();
// A block of device memory has a new owner: what was copied there before is gone. PyTorch's allocator hands out the same memory again
// and again, and kernels that would write to it do not run. The recorder calls it for every block.
void liveset_standin_forget(void* address, std::size_t bytes);
// Copies as far as both sides are backed by memory (LIVESET_STANDIN's backing).
void liveset_standin_copy(void* to, const void* from, std::size_t bytes);
}
