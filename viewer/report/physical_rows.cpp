#include "viewer/report/physical_rows.h"

#include <unordered_map>

#include "viewer/trace/columns.h"

namespace liveset::report {
namespace {

namespace column = trace::column;
using trace::Kind;

bool is_physical(Kind kind) {
  return (kind >= Kind::alloc && kind <= Kind::out_of_memory) || (kind >= Kind::kernel && kind <= Kind::import_end);
}

}  // namespace

Status for_each_physical(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, const ledger::Range& range,
                         const std::function<bool(const PhysicalRow&)>& visit) {
  PhysicalRow row;
  std::unordered_map<std::uint64_t, std::uint64_t> addresses;  // of live blocks, by ordinal: a free states only its age
  if (range.first != 0) {
    Result<std::vector<ledger::BlockDetail>> live =
        ledger::describe_blocks(file, ledger, ledger::live_blocks(ledger, ledger.shown_heap, range.first - 1));
    if (!live) return live.take_error();
    for (const ledger::BlockDetail& block : *live) {
      addresses[block.ordinal] = block.address;
      ++row.live_blocks;
      row.live_bytes += block.bytes;
    }
  }
  const auto show = [&](const trace::Event& event) {
    if (event.index >= range.end) return false;
    if (event.index < range.first || !is_physical(event.kind)) return true;
    const bool moves = event.kind == Kind::alloc || event.kind == Kind::free_requested;
    const ledger::Block* block = moves || event.kind == Kind::free_completed ? ledger.blocks.find(event.allocation) : nullptr;
    if ((block != nullptr ? block->heap() : event.heap) != ledger.shown_heap) return true;
    const std::uint64_t bytes = block != nullptr ? ledger.blocks.bytes(*block) : event.size;
    row.address = event.address;
    if (event.kind == Kind::alloc) {
      addresses[event.allocation] = event.address;
      ++row.live_blocks;
      row.live_bytes += bytes;
    } else if (event.kind == Kind::free_requested && block != nullptr && block->death == event.index) {
      if (const auto address = addresses.find(event.allocation); address != addresses.end()) {
        row.address = address->second;
        addresses.erase(address);
      }
      --row.live_blocks;
      row.live_bytes -= bytes;
    }
    row.event = event.index;
    row.time_ns = event.time_ns;
    row.size = bytes;
    row.kind = event.kind;
    row.phase = event.phase;
    row.scope = event.scope;
    row.name = event.kind == Kind::kernel ? event.name : 0;
    row.memory_class = block != nullptr ? ledger::class_of(*block) : trace::MemoryClass::none;
    return visit(row);
  };
  std::size_t first = ledger::chunk_of(file, range.first);
  if (first == file.chunks().size()) first = 0;  // the range begins in a hole
  return trace::for_each_event(file, first, file.chunks().size(), show);
}

Result<std::vector<ledger::BlockDetail>> blocks_at_address(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger,
                                                           std::uint64_t address, const ledger::Range& range) {
  std::vector<std::uint32_t> ordinals;
  const trace::ColumnTable& table = trace::column_table();
  trace::Columns columns;
  for (std::size_t chunk = 0; chunk < file.chunks().size(); ++chunk) {
    if (Status status = file.read_chunk(chunk, column::kind | column::address | column::size, columns); !status) return status.take_error();
    trace::Positions at;
    std::uint64_t ordinal = columns.first_allocation;
    for (std::uint32_t i = 0; i < columns.events; ++i) {
      if (static_cast<Kind>(columns.kind[i] & 0x7f) == Kind::alloc) {
        const std::uint64_t begin = columns.address[at.address], size = columns.size[at.size];
        const ledger::Block& block = *ledger.blocks.find(ordinal);
        if (address >= begin && address - begin < std::max<std::uint64_t>(size, 1) && block.birth < range.end &&
            (!block.freed() || block.death >= range.first))
          ordinals.push_back(static_cast<std::uint32_t>(ordinal));
        ++ordinal;
      }
      at.pass(table[columns.kind[i]]);
    }
  }
  return ledger::describe_blocks(file, ledger, ordinals);
}

}  // namespace liveset::report
