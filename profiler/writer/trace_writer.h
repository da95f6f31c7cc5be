// Events in, a *.liveset file out: columns, zstd-1, checksums, age back-references, footer index (proto/FORMAT.md).
//
// Not thread-safe. Events come in their final order. Nothing throws. When the file cannot be written (disk full)
// finished packets wait in memory, up to 32 MiB, and are tried again at each flush; beyond that everything further is
// counted as lost, so that the file is always an exact prefix of what happened, with the loss stated at its end (room
// for that is kept reserved on the disk).
//
// A collector should ignore SIGXFSZ, so that a file size limit is such a failure too.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/writer/sink.h"

namespace liveset::writer {

struct HeaderInfo {
  std::string tool_version;
  int clock_kind = 0;  // proto ClockDomain::Kind
  std::uint64_t start_ticks = 0, start_monotonic_ns = 0, start_realtime_ns = 0;
  std::string boot_id, host, executable;
  std::int64_t pid = 0, parent_pid = 0;
  std::int32_t rank = -1, world_size = -1, local_rank = -1;  // -1: not written
  std::uint64_t start_time = 0;
  std::uint32_t exec_count = 0;
  std::vector<std::string> command;
};

// One event; only the fields of its kind (proto/event_columns.h) are read. Ids are dictionary ids.
struct Event {
  std::uint64_t time_ns = 0;  // since the trace's start; smaller than the event before counts as equal to it
  std::uint8_t kind = 0;      // proto EventKind, without the totals bit
  std::uint8_t phase = 0, memory_class = 0;
  bool has_totals = false;
  std::uint32_t thread = 0, scope = 0, heap = 0, name = 0, text = 0, stack = 0, value = 0;
  std::uint64_t stream = 0, address = 0, size = 0;
  std::uint64_t total = 0, reserved = 0;  // allocator's own, when has_totals
  std::int64_t number = 0;
  std::span<const std::uint32_t> reads;
  bool completes_later = false;  // FREE_REQUESTED: a FREE_COMPLETED for the block will follow
};

struct Frame {
  std::uint32_t function = 0, file = 0, line = 0, build_id = 0;
  std::uint64_t offset = 0;
};

class TraceWriter {
 public:
  // Creates `path` (fails if it cannot) and writes the header packet. On failure returns null and sets `error`.
  static std::unique_ptr<TraceWriter> create(const std::string& path, const HeaderInfo& header, std::string* error);
  // The same into any sink (tests); `path` is only what path() says.
  static std::unique_ptr<TraceWriter> create(std::unique_ptr<Sink> sink, const std::string& path, const HeaderInfo& header,
                                             std::string* error);
  ~TraceWriter();  // without finish(): flushes, writes no footer

  // Dictionary; written in a packet before the next chunk. Each id once, before its first use in append().
  void define_string(std::uint32_t id, std::string_view text);
  void define_scope(std::uint32_t id, std::uint32_t parent, std::uint32_t kind, std::uint32_t name);
  void define_heap(std::uint32_t id, std::uint32_t name, std::uint32_t device_type, std::int32_t device_index, std::uint32_t source);
  void define_thread(std::uint32_t id, std::int64_t tid, std::string_view name);
  void define_value(std::uint32_t id, std::uint32_t name, std::uint32_t group, std::int64_t layer);
  void define_frame(std::uint32_t id, const Frame& frame);
  void define_stack(std::uint32_t id, std::uint32_t parent, std::uint32_t frame);
  void define_source(std::uint32_t id, std::string_view name, std::string_view version, std::string_view covers,
                     std::string_view cannot_see);

  // EVENT_FREE_REQUESTED and _COMPLETED carry heap and address; the writer resolves them to an age, or makes them
  // EVENT_FREE_UNMATCHED. EVENT_ALLOC at an address that is still live: its free was lost, so a free is put in before
  // it (Footer.implied_frees).
  void append(const Event& event);
  // Is a block live at this address? (The collector's order step asks.)
  bool is_live(std::uint32_t heap, std::uint64_t address) const;

  void calibrate(std::uint64_t ticks, std::uint64_t monotonic_ns);
  void lose(int reason, std::uint64_t events);  // proto Loss::Reason; DICTIONARY_FULL: names
  void flush();                                 // everything so far to the file
  // Writes footer and closes. `end`: "exit", "killed", "exec". False when the file is not whole.
  bool finish(std::string_view end);

  std::uint64_t events() const;       // appended and (so far) not lost
  std::uint64_t lost_events() const;  // of all reasons
  const std::string& path() const;

 private:
  TraceWriter();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace liveset::writer
