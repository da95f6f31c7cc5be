#include "viewer/ledger/details.h"

#include <algorithm>

#include "viewer/trace/columns.h"

namespace liveset::ledger {
namespace {

namespace column = trace::column;

constexpr trace::ColumnMask stamp_columns = column::kind | column::time | column::thread | column::phase | column::scope;

// Cannot happen with a ledger of the same file, but a file is not to be trusted with an endless loop.
Error disagree(const trace::TraceFile& file) {
  return {ErrorKind::unreadable, file.path(), std::nullopt, "the chunks of the trace disagree about its allocations", "record it again"};
}

}  // namespace

std::size_t chunk_of(const trace::TraceFile& file, std::uint64_t event) {
  const auto& chunks = file.chunks();
  const auto after = std::upper_bound(chunks.begin(), chunks.end(), event,
                                      [](std::uint64_t e, const trace::ChunkInfo& chunk) { return e < chunk.first_event; });
  if (after == chunks.begin()) return chunks.size();
  const auto chunk = after - 1;
  return event - chunk->first_event < chunk->events ? static_cast<std::size_t>(chunk - chunks.begin()) : chunks.size();
}

std::optional<std::int64_t> step_at(const PhysicalLedger& ledger, std::uint64_t event) {
  const auto after = std::upper_bound(ledger.steps.begin(), ledger.steps.end(), event,
                                      [](std::uint64_t e, const Step& step) { return e < step.first_event; });
  if (after == ledger.steps.begin() || event >= (after - 1)->end_event) return std::nullopt;
  return (after - 1)->number;
}

Result<EventStamp> describe_event(const trace::TraceFile& file, std::uint64_t event) {
  const std::size_t chunk = chunk_of(file, event);
  if (chunk == file.chunks().size())
    return Error{ErrorKind::usage, file.path(), std::nullopt, "the trace has no event " + std::to_string(event),
                 file.chunks().empty()
                     ? "it has none"
                     : "it has events 0.." + std::to_string(file.chunks().back().first_event + file.chunks().back().events - 1)};
  trace::Columns columns;
  if (Status status = file.read_chunk(chunk, stamp_columns, columns); !status) return status.take_error();
  const std::size_t i = event - columns.first_event;
  EventStamp stamp;
  stamp.event = event;
  stamp.time_ns = columns.time_ns[i];
  stamp.kind = static_cast<trace::Kind>(columns.kind[i] & 0x7f);
  stamp.phase = static_cast<trace::Phase>(columns.phase[i]);
  stamp.scope = columns.scope[i];
  stamp.thread = columns.thread[i];
  return stamp;
}

Result<std::vector<BlockDetail>> describe_blocks(const trace::TraceFile& file, const PhysicalLedger& ledger,
                                                 std::span<const std::uint32_t> ordinals) {
  std::vector<BlockDetail> details;
  details.reserve(ordinals.size());
  const trace::ColumnTable& table = trace::column_table();
  trace::Columns columns;
  for (std::size_t next = 0; next < ordinals.size();) {
    const std::size_t chunk = chunk_of(file, ledger.blocks.find(ordinals[next])->birth), before = next;
    if (chunk == file.chunks().size()) return disagree(file);
    if (Status status = file.read_chunk(chunk, stamp_columns | column::stream | column::address | column::stack, columns); !status)
      return status.take_error();
    trace::Positions at;
    std::uint64_t ordinal = columns.first_allocation;
    for (std::uint32_t i = 0; i < columns.events && next < ordinals.size(); ++i) {
      if (static_cast<trace::Kind>(columns.kind[i] & 0x7f) == trace::Kind::alloc && ordinal++ == ordinals[next]) {
        const Block& block = *ledger.blocks.find(ordinals[next]);
        BlockDetail detail;
        detail.ordinal = ordinals[next++];
        detail.scope = columns.scope[i];
        detail.thread = columns.thread[i];
        detail.stack = columns.stack[at.stack];
        detail.heap = block.heap();
        detail.address = columns.address[at.address];
        detail.stream = columns.stream[at.stream];
        detail.bytes = ledger.blocks.bytes(block);
        detail.birth = block.birth;
        detail.death = block.freed() ? block.death : no_event;
        detail.birth_time_ns = columns.time_ns[i];
        detail.phase = block.phase();
        detail.step = step_at(ledger, block.birth);
        details.push_back(detail);
      }
      at.pass(table[columns.kind[i]]);
    }
    if (next == before) return disagree(file);
  }
  return details;
}

}  // namespace liveset::ledger
