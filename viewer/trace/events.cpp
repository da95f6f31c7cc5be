// One event after the other, for paths that are not hot.
#include "viewer/trace/columns.h"
#include "viewer/trace/trace_file.h"

namespace liveset::trace {
namespace {

// The event at `row` of the chunk, whose sparse entries begin at `at`.
Event event_of(const Columns& columns, std::size_t row, ColumnMask mask, const Positions& at) {
  Event event;
  const std::uint8_t kind = columns.kind[row];
  event.index = columns.first_event + row;
  event.time_ns = columns.time_ns[row];
  event.kind = static_cast<Kind>(kind & ~totals_bit);
  event.phase = static_cast<Phase>(columns.phase[row]);
  event.has_totals = (kind & totals_bit) != 0;
  event.thread = columns.thread[row];
  event.scope = columns.scope[row];
  if ((mask & column::heap) != 0) event.heap = columns.heap[at.heap];
  if ((mask & column::stream) != 0) event.stream = columns.stream[at.stream];
  if ((mask & column::address) != 0) event.address = columns.address[at.address];
  if ((mask & column::size) != 0) event.size = columns.size[at.size];
  if ((mask & column::total) != 0) {
    event.total_error = columns.total_error[at.total];
    event.reserved_delta = columns.reserved_delta[at.total];
  }
  if ((mask & column::value) != 0) event.value = columns.value[at.value];
  if ((mask & column::name) != 0) event.name = columns.name[at.name];
  if ((mask & column::memory_class) != 0) event.memory_class = static_cast<MemoryClass>(columns.memory_class[at.memory_class]);
  if ((mask & column::number) != 0) event.number = columns.number[at.number];
  if ((mask & column::text) != 0) event.text = columns.text[at.text];
  if ((mask & column::stack) != 0) event.stack = columns.stack[at.stack];
  if ((mask & column::reads) != 0) {
    event.reads = columns.reads.data() + columns.reads_begin[at.reads];
    event.read_count = columns.reads_begin[at.reads + 1] - columns.reads_begin[at.reads];
  }
  return event;
}

}  // namespace

Status for_each_event(const TraceFile& file, std::size_t first_chunk, std::size_t last_chunk,
                      const std::function<bool(const Event&)>& visit) {
  const ColumnTable& table = column_table();
  Columns columns;
  for (std::size_t chunk = first_chunk; chunk < last_chunk && chunk < file.chunks().size(); ++chunk) {
    Status status = file.read_chunk(chunk, all_columns, columns);
    if (!status) return status;
    Positions at;
    std::uint64_t allocation = columns.first_allocation;
    for (std::size_t row = 0; row < columns.events; ++row) {
      const ColumnMask mask = table[columns.kind[row]];
      Event event = event_of(columns, row, mask, at);
      if (event.kind == Kind::alloc) event.allocation = allocation++;
      if ((mask & column::age) != 0) {
        const std::uint64_t age = columns.age[at.age];
        event.allocation = age == 0 ? no_allocation : allocation - age;
      }
      if (!visit(event)) return Done{};
      at.pass(mask);
    }
  }
  return Done{};
}

Status for_each_event(const TraceFile& file, const std::function<bool(const Event&)>& visit) {
  return for_each_event(file, 0, file.chunks().size(), visit);
}

}  // namespace liveset::trace
