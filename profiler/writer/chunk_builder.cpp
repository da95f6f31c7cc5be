#include "profiler/writer/chunk_builder.h"

#include <algorithm>
#include <bit>

namespace liveset::writer {
namespace {

constexpr unsigned seen_bits = 14;
constexpr std::size_t max_reads = 1U << 20;  // of one event; more is cut off (16 MiB is a column's limit)

std::int64_t difference(std::uint64_t a, std::uint64_t b) { return static_cast<std::int64_t>(a - b); }

}  // namespace

ChunkBuilder::ChunkBuilder() : last_seen_(std::size_t{1} << seen_bits), compressor_(ZSTD_createCCtx()) {
  addresses_.reserve(proto::max_chunk_events);
}

void ChunkBuilder::add(const ResolvedEvent& resolved) {
  const Event& event = resolved.event;
  if (events_ == 0) first_time_ns_ = last_time_ns_ = resolved.time_ns;
  ++events_;
  column(proto::COLUMN_KIND).add_byte(resolved.kind_byte);
  const std::uint64_t gap_ns = resolved.time_ns - last_time_ns_;
  column(proto::COLUMN_TIME).add(gap_ns >> 8);
  column(proto::COLUMN_TIME_LOW).add_byte(static_cast<std::uint8_t>(gap_ns));
  last_time_ns_ = resolved.time_ns;
  column(proto::COLUMN_THREAD).add(event.thread);
  column(proto::COLUMN_PHASE).add_byte(event.phase);
  column(proto::COLUMN_SCOPE).add(proto::zigzag(difference(event.scope, last_scope_)));
  last_scope_ = event.scope;
  add_sparse(resolved, proto::columns_of(resolved.kind_byte));
}

void ChunkBuilder::add_sparse(const ResolvedEvent& resolved, std::uint32_t columns) {
  const Event& event = resolved.event;
  const auto has = [columns](proto::ColumnId id) { return (columns & proto::column_bit(id)) != 0; };
  if (has(proto::COLUMN_HEAP)) column(proto::COLUMN_HEAP).add(event.heap);
  if (has(proto::COLUMN_STREAM)) column(proto::COLUMN_STREAM).add(event.stream);
  if (has(proto::COLUMN_ADDRESS)) add_address(event.address);
  if (has(proto::COLUMN_SIZE)) column(proto::COLUMN_SIZE).add(event.size);
  if (has(proto::COLUMN_AGE)) column(proto::COLUMN_AGE).add(resolved.age);
  if (has(proto::COLUMN_STACK)) column(proto::COLUMN_STACK).add(event.stack);
  if (has(proto::COLUMN_TOTAL)) {
    column(proto::COLUMN_TOTAL).add(proto::zigzag(resolved.total_error));
    column(proto::COLUMN_RESERVED).add(proto::zigzag(resolved.reserved_delta));
  }
  if (has(proto::COLUMN_NAME)) column(proto::COLUMN_NAME).add(event.name);
  if (has(proto::COLUMN_TEXT)) column(proto::COLUMN_TEXT).add(event.text);
  if (has(proto::COLUMN_NUMBER)) column(proto::COLUMN_NUMBER).add(proto::zigzag(event.number));
  if (has(proto::COLUMN_CLASS)) column(proto::COLUMN_CLASS).add_byte(event.memory_class);
  if (has(proto::COLUMN_VALUE)) {
    column(proto::COLUMN_VALUE).add(proto::zigzag(difference(event.value, last_value_)));
    last_value_ = event.value;
  }
  if (has(proto::COLUMN_READS)) {
    const auto reads = event.reads.first(std::min(event.reads.size(), max_reads));
    ColumnBuffer& buffer = column(proto::COLUMN_READS);
    buffer.add(reads.size());
    for (const std::uint32_t value : reads) buffer.extend(value);
  }
}

void ChunkBuilder::add_address(std::uint64_t address) {
  const auto here = static_cast<std::uint32_t>(addresses_.size());
  std::uint32_t& seen = last_seen_[(address * 0x9e3779b97f4a7c15U) >> (64 - seen_bits)];
  // `seen` may be left over from the chunk before: then it points nowhere, or to another address.
  const bool again = seen < here && addresses_[seen] == address;
  column(proto::COLUMN_ADDRESS).add(again ? here - seen : 0);
  if (!again) new_addresses_.push_back(address);
  seen = here;
  addresses_.push_back(address);
}

unsigned ChunkBuilder::encode_new_addresses() {
  std::uint64_t any = 0;
  for (const std::uint64_t address : new_addresses_) any |= address;
  const unsigned shift = any == 0 ? 0 : static_cast<unsigned>(std::countr_zero(any));
  std::uint64_t previous = 0;
  for (const std::uint64_t address : new_addresses_) {
    const std::uint64_t shifted = address >> shift;
    column(proto::COLUMN_NEW_ADDRESS).add(proto::zigzag(difference(shifted, previous)));
    previous = shifted;
  }
  new_addresses_.clear();
  addresses_.clear();
  return shift;
}

void ChunkBuilder::encode(std::uint64_t first_event, std::uint64_t first_allocation, proto::EventChunk& chunk) {
  chunk.set_first_event(first_event);
  chunk.set_events(events_);
  chunk.set_first_time_ns(first_time_ns_);
  chunk.set_first_allocation(first_allocation);
  chunk.set_address_shift(encode_new_addresses());
  for (int id = proto::COLUMN_KIND; id < proto::ColumnId_ARRAYSIZE; ++id) {
    const auto column_id = static_cast<proto::ColumnId>(id);
    column(column_id).encode(column_id, column_id != proto::COLUMN_KIND, compressor_.get(), scratch_, chunk);
  }
  events_ = 0;
  last_scope_ = last_value_ = 0;
}

}  // namespace liveset::writer
