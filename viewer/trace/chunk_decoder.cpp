#include "viewer/trace/chunk_decoder.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <type_traits>

#include "viewer/trace/file_bytes.h"
#include "viewer/trace/varints.h"

namespace liveset::trace {
namespace {

using Histogram = std::array<std::uint32_t, 256>;

Histogram count_kinds(const std::vector<std::uint8_t>& kinds) {
  // Four tables, because the same counter again and again would wait for its own store.
  std::array<Histogram, 4> part{};
  std::size_t i = 0;
  for (; i + 4 <= kinds.size(); i += 4) {
    for (std::size_t k = 0; k < 4; ++k) ++part[k][kinds[i + k]];
  }
  for (; i < kinds.size(); ++i) ++part[0][kinds[i]];
  for (std::size_t kind = 0; kind < 256; ++kind) part[0][kind] += part[1][kind] + part[2][kind] + part[3][kind];
  return part[0];
}

// What decoding needs besides its input and output; one per thread, because a context is expensive to make.
struct Scratch {
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<ZSTD_DCtx, Free> context{ZSTD_createDCtx()};
  PaddedBuffer raw;
  std::vector<std::uint8_t> low;     // TIME_LOW
  std::vector<std::uint64_t> fresh;  // NEW_ADDRESS
};
thread_local Scratch scratch;

class Decoder {
 public:
  Decoder(const ChunkView& chunk, const Layout& layout, ColumnMask mask, Columns& out, std::string& why)
      : chunk_(chunk), layout_(layout), mask_(mask), out_(out), why_(why) {}

  bool run() {
    out_.events = chunk_.events;
    for (int id = 0; id < proto::COLUMN_HEAP; ++id) expected_[id] = chunk_.events;
    expected_[proto::COLUMN_TIME_LOW] = chunk_.events;
    if (!bytes(proto::COLUMN_KIND, out_.kind)) return false;
    const bool foreign = expect_entries();
    if (!dense() || !blocks() || !values()) return false;
    if (foreign) conform();
    return true;
  }

 private:
  bool wanted(proto::ColumnId id) const { return (mask_ & proto::column_bit(id)) != 0; }
  // Empties what is not wanted; what is keeps its old content, because clearing costs as much as decoding.
  template <class T>
  bool wanted(proto::ColumnId id, std::vector<T>& column) const {
    if (!wanted(id)) column.clear();
    return wanted(id);
  }
  const ColumnView& view(proto::ColumnId id) const { return chunk_.columns[id]; }
  bool fail(proto::ColumnId id, const std::string& what) {
    why_ = proto::ColumnId_Name(id) + " " + what;
    return false;
  }

  // Fills expected_ for the sparse columns; true when some kind has other columns in the file than in this version.
  bool expect_entries() {
    const Histogram counts = count_kinds(out_.kind);
    out_.allocations = counts[proto::EVENT_ALLOC] + counts[proto::EVENT_ALLOC | proto::kind_has_totals];
    bool foreign = false;
    for (std::size_t kind = 0; kind < counts.size(); ++kind) {
      if (counts[kind] == 0) continue;
      foreign |= layout_[kind] != proto::columns_of(static_cast<std::uint8_t>(kind));
      for (int id = proto::COLUMN_HEAP; id <= proto::COLUMN_STACK; ++id) {
        expected_[id] += (layout_[kind] >> id & 1) * counts[kind];
      }
    }
    return foreign;
  }

  bool dense() {
    if (wanted(proto::COLUMN_TIME, out_.time_ns)) {
      std::vector<std::uint8_t>& low = scratch.low;
      if (!numbers(proto::COLUMN_TIME, out_.time_ns) || !bytes(proto::COLUMN_TIME_LOW, low)) return false;
      std::uint64_t time = chunk_.first_time_ns;
      for (std::size_t i = 0; i < low.size(); ++i) out_.time_ns[i] = time += out_.time_ns[i] << 8 | low[i];
    }
    if (wanted(proto::COLUMN_THREAD, out_.thread) && !numbers(proto::COLUMN_THREAD, out_.thread)) return false;
    if (wanted(proto::COLUMN_PHASE, out_.phase)) {
      if (!bytes(proto::COLUMN_PHASE, out_.phase)) return false;
      clamp(out_.phase, phase_count);
    }
    return !wanted(proto::COLUMN_SCOPE, out_.scope) || differences(proto::COLUMN_SCOPE, out_.scope);
  }

  bool blocks() {
    if (wanted(proto::COLUMN_HEAP, out_.heap) && !numbers(proto::COLUMN_HEAP, out_.heap)) return false;
    if (wanted(proto::COLUMN_STREAM, out_.stream) && !numbers(proto::COLUMN_STREAM, out_.stream)) return false;
    if (wanted(proto::COLUMN_SIZE, out_.size) && !numbers(proto::COLUMN_SIZE, out_.size)) return false;
    if (wanted(proto::COLUMN_AGE, out_.age) && !numbers(proto::COLUMN_AGE, out_.age)) return false;
    if (wanted(proto::COLUMN_STACK, out_.stack) && !numbers(proto::COLUMN_STACK, out_.stack)) return false;
    if (wanted(proto::COLUMN_TOTAL, out_.total_error) && !signed_numbers(proto::COLUMN_TOTAL, out_.total_error)) return false;
    if (wanted(proto::COLUMN_RESERVED, out_.reserved_delta) && !signed_numbers(proto::COLUMN_RESERVED, out_.reserved_delta)) return false;
    return !wanted(proto::COLUMN_ADDRESS, out_.address) || addresses();
  }

  bool addresses() {
    if (!numbers(proto::COLUMN_ADDRESS, out_.address)) return false;
    expected_[proto::COLUMN_NEW_ADDRESS] =
        static_cast<std::uint32_t>(std::count(out_.address.begin(), out_.address.end(), std::uint64_t{0}));
    std::vector<std::uint64_t>& fresh = scratch.fresh;
    if (!numbers(proto::COLUMN_NEW_ADDRESS, fresh)) return false;
    std::uint64_t shifted = 0;
    std::size_t used = 0;
    for (std::size_t i = 0; i < out_.address.size(); ++i) {
      const std::uint64_t distance = out_.address[i];
      if (distance > i) return fail(proto::COLUMN_ADDRESS, "goes back beyond the chunk");
      if (distance == 0) shifted += static_cast<std::uint64_t>(proto::unzigzag(fresh[used++]));
      out_.address[i] = distance == 0 ? shifted << chunk_.address_shift : out_.address[i - distance];
    }
    return true;
  }

  bool values() {
    if (wanted(proto::COLUMN_VALUE, out_.value) && !differences(proto::COLUMN_VALUE, out_.value)) return false;
    if (wanted(proto::COLUMN_NAME, out_.name) && !numbers(proto::COLUMN_NAME, out_.name)) return false;
    if (wanted(proto::COLUMN_TEXT, out_.text) && !numbers(proto::COLUMN_TEXT, out_.text)) return false;
    if (wanted(proto::COLUMN_NUMBER, out_.number) && !signed_numbers(proto::COLUMN_NUMBER, out_.number)) return false;
    if (wanted(proto::COLUMN_CLASS, out_.memory_class)) {
      if (!bytes(proto::COLUMN_CLASS, out_.memory_class)) return false;
      clamp(out_.memory_class, class_count);
    }
    if (wanted(proto::COLUMN_READS, out_.reads_begin)) return reads();
    out_.reads.clear();
    return true;
  }

  // The encoded entries of a column that is neither absent nor constant.
  bool raw(proto::ColumnId id, Bytes& bytes) {
    const ColumnView& column = view(id);
    bytes = column.bytes;
    if (column.content == ColumnView::Content::plain) return true;
    std::uint8_t* room = scratch.raw.make_room(column.raw_bytes);
    bytes = {room, column.raw_bytes};
    return decompress(id, room);
  }
  bool decompress(proto::ColumnId id, std::uint8_t* room) {
    const ColumnView& column = view(id);
    const std::size_t got = ZSTD_decompressDCtx(scratch.context.get(), room, column.raw_bytes, column.bytes.data(), column.bytes.size());
    return (ZSTD_isError(got) == 0 && got == column.raw_bytes) || fail(id, "does not decompress to the size it states");
  }
  // Checks the number of entries, and settles the two contents that need no decoding.
  enum class Begun { failed, filled, encoded };
  template <class T>
  Begun begin(proto::ColumnId id, std::vector<T>& out) {
    const ColumnView& column = view(id);
    const std::uint32_t entries = expected_[id];
    if (column.content != ColumnView::Content::none && column.entries != entries) {
      fail(id, "has " + std::to_string(column.entries) + " entries where the kinds call for " + std::to_string(entries));
      return Begun::failed;
    }
    if (column.content == ColumnView::Content::data || column.content == ColumnView::Content::plain) {
      out.resize(entries);
      return Begun::encoded;
    }
    if (column.constant > std::numeric_limits<std::make_unsigned_t<T>>::max()) {
      fail(id, "holds a number that is too large");
      return Begun::failed;
    }
    out.assign(entries, static_cast<T>(column.constant));
    return Begun::filled;
  }

  bool bytes(proto::ColumnId id, std::vector<std::uint8_t>& out) {
    const Begun begun = begin(id, out);
    if (begun != Begun::encoded) return begun == Begun::filled;
    const ColumnView& column = view(id);
    if (column.raw_bytes != column.entries) return fail(id, "is not one byte an entry");
    if (column.content == ColumnView::Content::data) return decompress(id, out.data());
    std::copy(column.bytes.begin(), column.bytes.end(), out.begin());
    return true;
  }

  template <class T>
  bool numbers(proto::ColumnId id, std::vector<T>& out) {
    const Begun begun = begin(id, out);
    if (begun != Begun::encoded) return begun == Begun::filled;
    Bytes encoded;
    std::uint64_t all = 0;
    if (!raw(id, encoded)) return false;
    if (!decode_varints(encoded.data(), encoded.data() + encoded.size(), out.data(), out.size(), all)) {
      return fail(id, "does not hold as many numbers as it states");
    }
    return all <= std::numeric_limits<std::make_unsigned_t<T>>::max() || fail(id, "holds a number that is too large");
  }

  bool signed_numbers(proto::ColumnId id, std::vector<std::int64_t>& out) {
    if (!numbers(id, out)) return false;
    for (std::int64_t& entry : out) entry = proto::unzigzag(static_cast<std::uint64_t>(entry));
    return true;
  }

  // Ids as zigzag differences. They stay below 2^31, so 32 bits hold a difference.
  bool differences(proto::ColumnId id, std::vector<std::uint32_t>& out) {
    if (!numbers(id, out)) return false;
    const ColumnView& column = view(id);
    if (column.content == ColumnView::Content::none || (column.content == ColumnView::Content::constant && column.constant == 0)) {
      return true;
    }
    std::uint32_t current = 0;
    for (std::uint32_t& entry : out) entry = current += (entry >> 1) ^ (~(entry & 1) + 1);
    return true;
  }

  // Numbers of a later version's enum read as its zero, so that nobody indexes beyond a table.
  static void clamp(std::vector<std::uint8_t>& entries, int count) {
    for (std::uint8_t& entry : entries) entry = entry < count ? entry : 0;
  }

  bool reads() {
    const proto::ColumnId id = proto::COLUMN_READS;
    const Begun begun = begin(id, out_.reads_begin);
    out_.reads.clear();
    out_.reads_begin.assign(expected_[id] + 1U, 0);
    if (begun == Begun::failed) return false;
    if (begun == Begun::filled) return view(id).constant == 0 || fail(id, "cannot be constant");
    Bytes encoded;
    if (!raw(id, encoded)) return false;
    const std::uint8_t* p = encoded.data();
    const std::uint8_t* end = p + encoded.size();
    for (std::uint32_t entry = 0; entry < expected_[id]; ++entry) {
      std::uint64_t count = 0;
      p = read_varint(p, end, count);
      if (p == nullptr || count > static_cast<std::uint64_t>(end - p)) return fail(id, "is torn");
      for (std::uint64_t i = 0; i < count; ++i) {
        std::uint64_t value = 0;
        if ((p = read_varint(p, end, value)) == nullptr || value >> 32 != 0) return fail(id, "is torn");
        out_.reads.push_back(static_cast<std::uint32_t>(value));
      }
      out_.reads_begin[entry + 1] = static_cast<std::uint32_t>(out_.reads.size());
    }
    return p == end || fail(id, "does not hold as many numbers as it states");
  }

  // Brings the columns of a file with another layout into ours: entries of kinds that have no such column here go,
  // those that lack one are zero. Slow, and only for files of other minor versions.
  void conform() {
    realign(proto::COLUMN_HEAP, out_.heap);
    realign(proto::COLUMN_STREAM, out_.stream);
    realign(proto::COLUMN_ADDRESS, out_.address);
    realign(proto::COLUMN_SIZE, out_.size);
    realign(proto::COLUMN_AGE, out_.age);
    realign(proto::COLUMN_TOTAL, out_.total_error);
    realign(proto::COLUMN_RESERVED, out_.reserved_delta);
    realign(proto::COLUMN_VALUE, out_.value);
    realign(proto::COLUMN_NAME, out_.name);
    realign(proto::COLUMN_CLASS, out_.memory_class);
    realign(proto::COLUMN_NUMBER, out_.number);
    realign(proto::COLUMN_TEXT, out_.text);
    realign(proto::COLUMN_STACK, out_.stack);
    if (wanted(proto::COLUMN_READS)) realign_reads();
  }

  // Calls visit(cursor) for each event that has column `id` here; cursor is -1 when the file has none for it.
  template <class Visit>
  void for_each_ours(proto::ColumnId id, const Visit& visit) const {
    std::int64_t cursor = 0;
    for (const std::uint8_t kind : out_.kind) {
      const bool in_file = (layout_[kind] & proto::column_bit(id)) != 0;
      if ((proto::columns_of(kind) & proto::column_bit(id)) != 0) visit(in_file ? cursor : -1);
      cursor += in_file ? 1 : 0;
    }
  }

  template <class T>
  void realign(proto::ColumnId id, std::vector<T>& column) {
    if (!wanted(id)) return;
    std::vector<T> aligned;
    for_each_ours(id, [&](std::int64_t cursor) { aligned.push_back(cursor < 0 ? T{} : column[static_cast<std::size_t>(cursor)]); });
    column = std::move(aligned);
  }

  void realign_reads() {
    std::vector<std::uint32_t> begin{0}, aligned;
    for_each_ours(proto::COLUMN_READS, [&](std::int64_t cursor) {
      if (cursor >= 0) {
        const auto entry = static_cast<std::size_t>(cursor);
        aligned.insert(aligned.end(), out_.reads.begin() + out_.reads_begin[entry], out_.reads.begin() + out_.reads_begin[entry + 1]);
      }
      begin.push_back(static_cast<std::uint32_t>(aligned.size()));
    });
    out_.reads_begin = std::move(begin);
    out_.reads = std::move(aligned);
  }

  const ChunkView& chunk_;
  const Layout& layout_;
  const ColumnMask mask_;
  Columns& out_;
  std::string& why_;
  std::array<std::uint32_t, proto::ColumnId_ARRAYSIZE> expected_{};
};

}  // namespace

bool decode_chunk(const ChunkView& chunk, const Layout& layout, ColumnMask mask, Columns& out, std::string& why) {
  return Decoder(chunk, layout, mask, out, why).run();
}

}  // namespace liveset::trace
