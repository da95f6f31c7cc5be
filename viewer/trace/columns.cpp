#include "viewer/trace/columns.h"

#include "proto/event_columns.h"

namespace liveset::trace {
namespace {

using proto::column_bit;
static_assert(column::kind == column_bit(proto::COLUMN_KIND) && column::time == column_bit(proto::COLUMN_TIME));
static_assert(column::thread == column_bit(proto::COLUMN_THREAD) && column::phase == column_bit(proto::COLUMN_PHASE));
static_assert(column::scope == column_bit(proto::COLUMN_SCOPE) && column::heap == column_bit(proto::COLUMN_HEAP));
static_assert(column::stream == column_bit(proto::COLUMN_STREAM) && column::address == column_bit(proto::COLUMN_ADDRESS));
static_assert(column::size == column_bit(proto::COLUMN_SIZE) && column::age == column_bit(proto::COLUMN_AGE));
static_assert(column::total == column_bit(proto::COLUMN_TOTAL) && column::reserved == column_bit(proto::COLUMN_RESERVED));
static_assert(column::value == column_bit(proto::COLUMN_VALUE) && column::name == column_bit(proto::COLUMN_NAME));
static_assert(column::memory_class == column_bit(proto::COLUMN_CLASS) && column::reads == column_bit(proto::COLUMN_READS));
static_assert(column::number == column_bit(proto::COLUMN_NUMBER) && column::text == column_bit(proto::COLUMN_TEXT));
static_assert(column::stack == column_bit(proto::COLUMN_STACK) && totals_bit == proto::kind_has_totals);

constexpr ColumnTable make_table() {
  ColumnTable table{};
  for (unsigned kind = 0; kind < table.size(); ++kind) table[kind] = proto::columns_of(static_cast<std::uint8_t>(kind));
  return table;
}
constexpr ColumnTable table = make_table();

}  // namespace

const ColumnTable& column_table() { return table; }

}  // namespace liveset::trace
