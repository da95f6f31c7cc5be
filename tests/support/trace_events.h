// Short ways to write events in tests.
#pragma once
#include <cstdint>

#include "profiler/writer/trace_writer.h"
#include "proto/trace.pb.h"

namespace liveset::test {

inline writer::Event event(int kind, std::uint64_t time_ns) {
  writer::Event made;
  made.kind = static_cast<std::uint8_t>(kind);
  made.time_ns = time_ns;
  made.thread = 1;
  return made;
}

inline writer::Event allocation(std::uint64_t time_ns, std::uint64_t address, std::uint64_t size, std::uint32_t heap = 1) {
  writer::Event made = event(proto::EVENT_ALLOC, time_ns);
  made.heap = heap;
  made.address = address;
  made.size = size;
  return made;
}

inline writer::Event release(std::uint64_t time_ns, std::uint64_t address, std::uint32_t heap = 1) {
  writer::Event made = event(proto::EVENT_FREE_REQUESTED, time_ns);
  made.heap = heap;
  made.address = address;
  return made;
}

inline writer::Event with_totals(writer::Event made, std::uint64_t total, std::uint64_t reserved) {
  made.has_totals = true;
  made.total = total;
  made.reserved = reserved;
  return made;
}

inline writer::HeaderInfo header_info() {
  writer::HeaderInfo info;
  info.tool_version = "0.1.0-test";
  info.clock_kind = proto::ClockDomain::MONOTONIC;
  info.start_ticks = 1000;
  info.start_monotonic_ns = 2000;
  info.start_realtime_ns = 1'700'000'000'000'000'000;
  info.boot_id = "boot";
  info.host = "host";
  info.executable = "/bin/trainer";
  info.pid = 42;
  info.parent_pid = 7;
  info.start_time = 99;
  info.exec_count = 1;
  info.command = {"trainer", "--steps", "3"};
  return info;
}

}  // namespace liveset::test
