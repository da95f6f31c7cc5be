#include "viewer/trace/trace_file.h"

#include <algorithm>

#include "viewer/trace/chunk_decoder.h"
#include "viewer/trace/packet_scanner.h"
#include "viewer/trace/symbols.h"
#include "viewer/trace/trace_state.h"

namespace liveset::trace {
namespace {

// Packet bytes while a chunk is decoded; one per thread, so that read_chunk() may be called from several.
thread_local PaddedBuffer packet_buffer;

}  // namespace

Status TraceFile::State::decode(const ChunkPlace& place, ColumnMask mask, Columns& out) const {
  Result<Bytes> bytes = file.read(place.content_offset, place.content_bytes, packet_buffer);
  if (!bytes) return bytes.take_error();
  const Packet packet = parse_packet(*bytes);
  if (!packet.intact) return file.error(place.content_offset, "the file has changed while it was read", "is it being written or copied?");
  ChunkView view;
  std::string why;
  if (!parse_chunk(packet.body, view, why) || !decode_chunk(view, layout, mask, out, why)) {
    return file.error(place.content_offset, why, "the file is corrupt");
  }
  return Done{};
}

Status TraceFile::State::read_chunk(std::size_t index, ColumnMask mask, Columns& out) const {
  const ChunkPlace& place = places[index];
  Status status = decode(place, mask, out);
  if (!status) return status;
  out.first_event = chunks[index].first_event;
  out.first_allocation = chunks[index].first_allocation;
  std::string why;
  if (out.allocations != chunks[index].allocations) {
    why = "the chunk has " + std::to_string(out.allocations) + " allocations where the next one calls for " +
          std::to_string(chunks[index].allocations);
  } else if ((mask & proto::column_bit(proto::COLUMN_AGE)) == 0 || settle_ages(index, out, why)) {
    return Done{};
  }
  return file.error(place.content_offset, why, "the file is corrupt");
}

bool TraceFile::State::settle_ages(std::size_t index, Columns& out, std::string& why) const {
  const std::uint64_t first = places[index].first_allocation;
  if (gaps.empty()) {
    // The usual case. The union of all ages is at most twice the largest, and that suffices but for a file's first
    // chunks.
    std::uint64_t any = 0;
    for (const std::uint64_t age : out.age) any |= age;
    if (any <= first) return true;
  }
  constexpr std::uint64_t in_gap = no_allocation;
  const auto gone_before = [&](std::uint64_t allocation) -> std::uint64_t {
    const auto after =
        std::upper_bound(gaps.begin(), gaps.end(), allocation, [](std::uint64_t a, const AllocationGap& gap) { return a < gap.first; });
    if (after == gaps.begin()) return 0;
    const AllocationGap& gap = *(after - 1);
    return allocation - gap.first < gap.count ? in_gap : gap.before + gap.count;
  };
  std::uint64_t ordinal = first;
  std::size_t entry = 0;
  for (const std::uint8_t kind : out.kind) {
    if ((kind & ~proto::kind_has_totals) == proto::EVENT_ALLOC) ++ordinal;
    if ((proto::columns_of(kind) & proto::column_bit(proto::COLUMN_AGE)) == 0) continue;
    std::uint64_t& age = out.age[entry++];
    if (age > ordinal) {
      why = "a free goes back " + std::to_string(age) + " allocations where there were " + std::to_string(ordinal);
      return false;
    }
    if (gaps.empty() || age == 0) continue;
    // Take out what lies in the gaps between the free and its allocation; 0 when the allocation itself lies in one.
    const std::uint64_t target = ordinal - age, gone = gone_before(target);
    age = gone == in_gap ? 0 : age - (gone_before(ordinal) - gone);
  }
  return true;
}

TraceFile::TraceFile() = default;
TraceFile::TraceFile(TraceFile&&) noexcept = default;
TraceFile& TraceFile::operator=(TraceFile&&) noexcept = default;
TraceFile::~TraceFile() = default;

Result<TraceFile> TraceFile::open(const std::string& path) { return open_as(path, path); }

Result<TraceFile> TraceFile::open_as(const std::string& path, const std::string& name) {
  Result<FileBytes> bytes = FileBytes::open(path);
  if (!bytes) return bytes.take_error();
  bytes->rename(name);
  TraceFile file;
  file.state_ = std::make_unique<State>(std::move(*bytes));
  Status status = load_trace(*file.state_);
  if (!status) return status.take_error();
  return file;
}

const std::string& TraceFile::path() const { return state_->file.path(); }
std::uint64_t TraceFile::file_bytes() const { return state_->file.size(); }
const Header& TraceFile::header() const { return state_->header; }
const Dictionary& TraceFile::dictionary() const { return state_->dictionary; }
void TraceFile::name_native_frames() { trace::name_native_frames(state_->dictionary, std::chrono::seconds(2)); }
const Health& TraceFile::health() const { return state_->health; }
const std::vector<ChunkInfo>& TraceFile::chunks() const { return state_->chunks; }
std::uint64_t TraceFile::events() const { return state_->events; }
std::uint64_t TraceFile::allocations() const { return state_->allocations; }
std::uint64_t TraceFile::end_time_ns() const { return state_->end_time_ns; }
Status TraceFile::read_chunk(std::size_t index, ColumnMask mask, Columns& out) const { return state_->read_chunk(index, mask, out); }

}  // namespace liveset::trace
