#include "viewer/trace/messages.h"

#include <bitset>

namespace liveset::trace {
namespace {

// Calls `visit(reader)` for every field.
template <class Visit>
bool for_each_field(Bytes message, const Visit& visit) {
  WireReader reader(message);
  while (reader.next()) visit(reader);
  return reader.ok();
}

// Same, for a visit that may refuse.
template <class Visit>
bool all_fields(Bytes message, const Visit& visit) {
  WireReader reader(message);
  while (reader.next()) {
    if (!visit(reader)) return false;
  }
  return reader.ok();
}

bool parse_clock(Bytes message, Header& header) {
  return for_each_field(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      case 1: header.clock_kind = static_cast<int>(reader.number32()); break;
      case 2: header.start_ticks = reader.number(); break;
      case 3: header.start_monotonic_ns = reader.number(); break;
      case 4: header.start_realtime_ns = reader.number(); break;
      case 5: header.process.boot_id = reader.text(); break;
      default: break;
    }
  });
}

bool parse_process(Bytes message, Process& process) {
  return for_each_field(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      case 1: process.pid = static_cast<std::int64_t>(reader.number()); break;
      case 2: process.start_time = reader.number(); break;
      case 3: process.exec_count = reader.number32(); break;
      case 4: process.host = reader.text(); break;
      case 5: process.command.emplace_back(reader.text()); break;
      case 6: process.executable = reader.text(); break;
      case 7: process.parent_pid = static_cast<std::int64_t>(reader.number()); break;
      case 8: process.rank = static_cast<std::int32_t>(reader.number()); break;
      case 9: process.world_size = static_cast<std::int32_t>(reader.number()); break;
      case 10: process.local_rank = static_cast<std::int32_t>(reader.number()); break;
      default: break;
    }
  });
}

// The numbers of a repeated field, packed or not.
template <class Visit>
bool for_each_number(const WireReader& reader, const Visit& visit) {
  if (!reader.is_bytes()) {
    visit(reader.number());
    return true;
  }
  const std::uint8_t* p = reader.bytes().data();
  const std::uint8_t* end = p + reader.bytes().size();
  std::uint64_t number = 0;
  while (p != end) {
    if ((p = read_varint(p, end, number)) == nullptr) return false;
    visit(number);
  }
  return true;
}

bool parse_kind_columns(Bytes message, Layout& layout) {
  std::bitset<proto::kind_has_totals> kinds;
  std::uint32_t columns = 0;
  const bool ok = all_fields(message, [&](const WireReader& reader) {
    if (reader.field() == 1) {
      return for_each_number(reader, [&](std::uint64_t kind) {
        if (kind < kinds.size()) kinds.set(kind);
      });
    }
    // A column that this reader does not know is of no use, and of no harm: columns are found by their id.
    return reader.field() != 2 || for_each_number(reader, [&](std::uint64_t column) {
             if (column < proto::ColumnId_ARRAYSIZE) columns |= 1U << column;
           });
  });
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    if (kinds[kind]) layout[kind] |= columns;
  }
  return ok;
}

// TOTAL and RESERVED belong to the totals bit, whatever the kind.
void finish_layout(Layout& layout) {
  constexpr std::uint32_t totals = proto::column_bit(proto::COLUMN_TOTAL) | proto::column_bit(proto::COLUMN_RESERVED);
  for (std::size_t kind = 0; kind < proto::kind_has_totals; ++kind) layout[kind | proto::kind_has_totals] = layout[kind] | totals;
}

// A few bytes of a hostile file must not become many in memory.
constexpr std::size_t max_heap_totals = 65536;

bool parse_heap_total(Bytes message, std::vector<HeapTotal>& totals) {
  if (totals.size() >= max_heap_totals) return false;
  HeapTotal& total = totals.emplace_back();
  return for_each_field(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      case 1: total.heap = reader.number32(); break;
      case 2: total.live_bytes = reader.number(); break;
      case 3: total.live_blocks = reader.number(); break;
      case 4: total.peak_bytes = reader.number(); break;
      case 5: total.peak_event = reader.number(); break;
      case 6:
        total.allocator_total = reader.number();
        total.has_allocator = true;
        break;
      case 7: total.allocator_reserved = reader.number(); break;
      case 8: total.baseline_bytes = static_cast<std::int64_t>(reader.number()); break;
      default: break;
    }
  });
}

// The entry of `table` with the id that `message` states in its field 1, made if need be; null when that id is out of
// reason.
template <class Entry>
Entry* entry_of(std::vector<Entry>& table, Bytes message) {
  constexpr std::uint64_t slack = 1U << 18;  // ids that a damaged dictionary packet may have held
  WireReader reader(message);
  const std::uint64_t id = reader.next() && reader.field() == 1 ? reader.number() : 0;
  if (id == 0 || id > 2 * table.size() + slack) return nullptr;
  if (table.empty()) table.emplace_back();
  if (id >= table.size()) table.resize(id + 1);
  return &table[id];
}

bool parse_string(Bytes message, Dictionary& dictionary) {
  std::string* entry = entry_of(dictionary.strings, message);
  return entry != nullptr && for_each_field(message, [&](const WireReader& reader) {
           if (reader.field() == 2) *entry = reader.text();
         });
}

bool parse_scope(Bytes message, Dictionary& dictionary) {
  Scope* entry = entry_of(dictionary.scopes, message);
  if (entry == nullptr) return false;
  const auto id = static_cast<std::uint64_t>(entry - dictionary.scopes.data());
  return for_each_field(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      // A parent is older than its child; so there are no cycles.
      case 2: entry->parent = reader.number() < id ? reader.number32() : 0; break;
      case 3: entry->kind = reader.number() <= 3 ? static_cast<ScopeKind>(reader.number()) : ScopeKind::none; break;
      case 4: entry->name = reader.number32(); break;
      default: break;
    }
  });
}

bool parse_heap(Bytes message, Dictionary& dictionary) {
  Heap* entry = entry_of(dictionary.heaps, message);
  return entry != nullptr && for_each_field(message, [&](const WireReader& reader) {
           switch (reader.field()) {
             case 2: entry->name = reader.number32(); break;
             case 3: entry->device_type = static_cast<int>(reader.number32()); break;
             case 4: entry->device_index = static_cast<int>(reader.number32()); break;
             case 5: entry->source = reader.number32(); break;
             default: break;
           }
         });
}

bool parse_thread(Bytes message, Dictionary& dictionary) {
  Thread* entry = entry_of(dictionary.threads, message);
  return entry != nullptr && for_each_field(message, [&](const WireReader& reader) {
           if (reader.field() == 2) entry->tid = static_cast<std::int64_t>(reader.number());
           if (reader.field() == 3) entry->name = reader.text();
         });
}

bool parse_value(Bytes message, Dictionary& dictionary) {
  Value* entry = entry_of(dictionary.values, message);
  if (entry == nullptr) return false;
  entry->layer = 0;  // proto3 leaves a zero out
  return for_each_field(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      case 2: entry->name = reader.number32(); break;
      case 3: entry->group = reader.number32(); break;
      case 4: entry->layer = static_cast<std::int64_t>(reader.number()); break;
      default: break;
    }
  });
}

bool parse_source(Bytes message, Dictionary& dictionary) {
  Source* entry = entry_of(dictionary.sources, message);
  return entry != nullptr && for_each_field(message, [&](const WireReader& reader) {
           switch (reader.field()) {
             case 2: entry->name = reader.text(); break;
             case 3: entry->version = reader.text(); break;
             case 4: entry->covers = reader.text(); break;
             case 5: entry->cannot_see = reader.text(); break;
             default: break;
           }
         });
}

bool parse_frame(Bytes message, Dictionary& dictionary) {
  Frame* entry = entry_of(dictionary.frames, message);
  return entry != nullptr && for_each_field(message, [&](const WireReader& reader) {
           if (reader.field() == 2) entry->function = reader.number32();
           if (reader.field() == 3) entry->file = reader.number32();
           if (reader.field() == 4) entry->line = reader.number32();
           if (reader.field() == 5) entry->offset = reader.number();
           if (reader.field() == 6) entry->build_id = reader.number32();
         });
}

bool parse_stack(Bytes message, Dictionary& dictionary) {
  Stack* entry = entry_of(dictionary.stacks, message);
  if (entry == nullptr) return false;
  const auto id = static_cast<std::uint64_t>(entry - dictionary.stacks.data());
  return for_each_field(message, [&](const WireReader& reader) {
    // As with scopes: a caller is older than what it calls; so there are no cycles.
    if (reader.field() == 2) entry->parent = reader.number() < id ? reader.number32() : 0;
    if (reader.field() == 3) entry->frame = reader.number32();
  });
}

bool parse_column(Bytes message, ChunkView& chunk, std::string& why) {
  std::uint64_t id = 0;
  ColumnView column;
  std::uint64_t entries = 0, raw_bytes = 0;
  const bool ok = for_each_field(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      case 1: id = reader.number(); break;
      case 2: entries = reader.number(); break;
      case 3: raw_bytes = reader.number(); break;
      case 4:
      case 5:
        column.content = reader.field() == 4 ? ColumnView::Content::data : ColumnView::Content::plain;
        column.bytes = reader.bytes();
        break;
      case 6:
        column.content = ColumnView::Content::constant;
        column.constant = reader.number();
        break;
      default: break;
    }
  });
  if (!ok) return false;
  if (id == 0 || id >= chunk.columns.size()) return true;  // of a later version
  const std::string name = "column " + std::to_string(id);
  if (entries > proto::max_chunk_events)
    why = name + " states " + std::to_string(entries) + " entries";
  else if (raw_bytes > proto::max_column_bytes)
    why = name + " states " + std::to_string(raw_bytes) + " bytes, more than 16 MiB";
  else if (column.content == ColumnView::Content::none)
    why = name + " has no content";
  else if (column.content == ColumnView::Content::plain && column.bytes.size() != raw_bytes)
    why = name + " is torn";
  else if (chunk.columns[id].content != ColumnView::Content::none)
    why = name + " occurs twice";
  if (!why.empty()) return false;
  column.entries = static_cast<std::uint32_t>(entries);
  column.raw_bytes = static_cast<std::uint32_t>(raw_bytes);
  chunk.columns[id] = column;
  return true;
}

}  // namespace

bool parse_header(Bytes message, Header& header, std::string& magic, Layout& layout) {
  layout.fill(0);
  const bool ok = all_fields(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      case 1: magic = reader.text(); break;
      case 2: header.format_major = reader.number32(); break;
      case 3: header.format_minor = reader.number32(); break;
      case 4: header.tool_version = reader.text(); break;
      case 5: return parse_clock(reader.bytes(), header);
      case 6: return parse_process(reader.bytes(), header.process);
      case 7: return parse_kind_columns(reader.bytes(), layout);
      default: break;
    }
    return true;
  });
  finish_layout(layout);
  return ok;
}

bool parse_dictionary(Bytes message, Dictionary& dictionary) {
  return all_fields(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      case 1: return parse_string(reader.bytes(), dictionary);
      case 2: return parse_scope(reader.bytes(), dictionary);
      case 3: return parse_heap(reader.bytes(), dictionary);
      case 4: return parse_thread(reader.bytes(), dictionary);
      case 5: return parse_value(reader.bytes(), dictionary);
      case 6: return parse_source(reader.bytes(), dictionary);
      case 7: return parse_frame(reader.bytes(), dictionary);
      case 8: return parse_stack(reader.bytes(), dictionary);
      default: return true;
    }
  });
}

bool parse_loss(Bytes message, Loss& loss) {
  return for_each_field(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      case 1: loss.reason = static_cast<int>(reader.number32()); break;
      case 2: loss.events = reader.number(); break;
      case 3: loss.before_event = reader.number(); break;
      case 4: loss.time_ns = reader.number(); break;
      default: break;
    }
  });
}

bool parse_footer(Bytes message, Footer& footer) {
  return all_fields(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      case 1: footer.events = reader.number(); break;
      case 2: footer.end_time_ns = reader.number(); break;
      case 3: footer.allocations = reader.number(); break;
      case 4: footer.unmatched_frees = reader.number(); break;
      case 5: footer.lost_events = reader.number(); break;
      case 6: return parse_heap_total(reader.bytes(), footer.totals);
      case 7:
        return for_each_field(reader.bytes(), [&](const WireReader& entry) {
          if (entry.field() == 1) footer.packet_offsets.push_back(entry.number());
        });
      case 8:
      case 10: return for_each_number(reader, [&](std::uint64_t offset) { footer.packet_offsets.push_back(offset); });
      case 9: footer.end = reader.text(); break;
      case 11: footer.conservation_mismatches = reader.number(); break;
      case 12: footer.implied_frees = reader.number(); break;
      default: break;
    }
    return true;
  });
}

bool parse_chunk(Bytes message, ChunkView& chunk, std::string& why) {
  chunk = {};
  std::uint64_t events = 0, shift = 0;
  const bool ok = all_fields(message, [&](const WireReader& reader) {
    switch (reader.field()) {
      case 1: chunk.first_event = reader.number(); break;
      case 2: events = reader.number(); break;
      case 3: chunk.first_time_ns = reader.number(); break;
      case 4: chunk.first_allocation = reader.number(); break;
      case 5: shift = reader.number(); break;
      case 6: return parse_column(reader.bytes(), chunk, why);
      case 7: return parse_heap_total(reader.bytes(), chunk.totals);
      default: break;
    }
    return true;
  });
  if (!ok) {
    if (why.empty()) why = "the chunk's message is malformed";
    return false;
  }
  if (events == 0 || events > proto::max_chunk_events)
    why = "the chunk states " + std::to_string(events) + " events";
  else if (shift > 63)
    why = "the address shift is " + std::to_string(shift);
  else if (chunk.first_event >> 56 != 0 || chunk.first_allocation > chunk.first_event)
    why = "the chunk's first event makes no sense";
  chunk.events = static_cast<std::uint32_t>(events);
  chunk.address_shift = static_cast<std::uint32_t>(shift);
  return why.empty();
}

}  // namespace liveset::trace
