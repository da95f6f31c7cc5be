// The small trace that proto/FORMAT.md works out byte by byte.
#pragma once
#include <string>

#include "tests/support/trace_events.h"

namespace liveset::test {

inline bool write_example(const std::string& path) {
  writer::HeaderInfo info;
  info.tool_version = "0.1.0";
  info.clock_kind = proto::ClockDomain::TSC;
  info.start_ticks = 1000;
  info.pid = 42;
  info.command = {"train"};
  std::string error;
  const auto writer = writer::TraceWriter::create(path, info, &error);
  if (writer == nullptr) return false;
  writer->define_string(1, "cpu");
  writer->define_heap(1, 1, proto::CPU, 0, 0);
  writer->define_thread(1, 42, "main");
  writer->append(with_totals(allocation(1000, 0x1000, 512), 612, 4096));
  writer->append(with_totals(allocation(1300, 0x3000, 256), 868, 4096));
  writer->append(with_totals(release(1301, 0x1000), 356, 4096));
  writer->append(with_totals(allocation(2000, 0x1000, 512), 868, 4096));
  return writer->finish("exit");
}

}  // namespace liveset::test
