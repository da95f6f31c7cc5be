// CUPTI that never has a record: torch.profiler runs beside it and shows the host's part.
#include <chrono>

#include "hooks/standin/libraries/library.h"

using standin::success;

namespace {
constexpr int limit_reached = 12;  // "no more records"
char subscription;
}  // namespace

extern "C" {

// The numbering of CUPTI's interface changed with CUDA 13: 26 stands for 12.8.
int cuptiGetVersion(std::uint32_t* version) {
  standin::answer(version, liveset_standin_family >= 13 ? 130001u : 26u);
  return success;
}
int cuptiSubscribe(void** subscriber, void*, void*) { return standin::answer(subscriber, static_cast<void*>(&subscription)), success; }
int cuptiSubscribe_v2(void** subscriber, void*, void*, void*) {
  return standin::answer(subscriber, static_cast<void*>(&subscription)), success;
}
int cuptiGetTimestamp(std::uint64_t* nanoseconds) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  standin::answer(nanoseconds, static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()));
  return success;
}
int cuptiGetLastError() { return success; }
int cuptiGetResultString(int, const char** text) { return standin::answer(text, "stand-in CUPTI"), success; }
int cuptiGetErrorMessage(int, const char** text) { return standin::answer(text, "stand-in CUPTI"), success; }
int cuptiGetCallbackName(int, std::uint32_t, const char** text) { return standin::answer(text, "unnamed"), success; }
int cuptiGetDeviceId(void*, std::uint32_t* device) {
  return standin::answer(device, static_cast<std::uint32_t>(liveset_standin_device())), success;
}
int cuptiGetContextId(void*, std::uint32_t* context) { return standin::answer(context, 1), success; }
int cuptiGetStreamId(void*, void*, std::uint32_t* stream) { return standin::answer(stream, 0), success; }
int cuptiGetStreamIdEx(void*, void*, std::uint8_t, std::uint32_t* stream) { return standin::answer(stream, 0), success; }

int cuptiActivityGetNextRecord(std::uint8_t*, std::size_t, void** record) { return standin::answer(record, nullptr), limit_reached; }
int cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) { return standin::answer(dropped, 0), success; }
int cuptiActivityPopExternalCorrelationId(int, std::uint64_t* identifier) { return standin::answer(identifier, 0), success; }
int cuptiActivitySetAttribute(int, std::size_t*, void*) { return success; }

}  // extern "C"
