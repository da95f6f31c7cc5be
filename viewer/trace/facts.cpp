#include "viewer/trace/facts.h"

#include <array>

#include "viewer/trace/messages.h"
#include "viewer/trace/packet_scanner.h"
#include "viewer/trace/trace_state.h"

namespace liveset::trace {
namespace {

constexpr std::array packet_names{"unknown", "header", "dictionary", "events", "snapshot", "calibration", "loss", "footer"};

class Counter {
 public:
  Counter() {
    for (const char* name : packet_names) packets_.push_back({name});
    for (int id = 0; id < proto::ColumnId_ARRAYSIZE; ++id) {
      columns_.push_back({proto::ColumnId_Name(static_cast<proto::ColumnId>(id)).substr(std::string("COLUMN_").size())});
    }
  }

  void count(const Packet& packet) {
    if (!packet.intact) {
      facts_.unreadable_bytes += packet.end - packet.offset;
      return;
    }
    PacketFacts& kind = packets_[packet.field < packets_.size() ? packet.field : 0];
    ++kind.packets;
    kind.bytes += packet.end - packet.offset;
    if (packet.field == proto::events_field) count_columns(packet.body);
    if (packet.field == proto::calibration_field) count_calibration(packet.body);
  }

  Facts finish(std::uint64_t unreadable_bytes) {
    facts_.unreadable_bytes += unreadable_bytes;
    for (std::size_t field = 1; field <= packets_.size(); ++field) {
      PacketFacts& packets = packets_[field % packets_.size()];  // "unknown" comes last
      if (packets.packets != 0) facts_.packets.push_back(std::move(packets));
    }
    for (ColumnFacts& column : columns_) {
      if (column.chunks != 0) facts_.columns.push_back(std::move(column));
    }
    return std::move(facts_);
  }

 private:
  void count_columns(Bytes body) {
    ChunkView chunk;
    std::string why;
    if (!parse_chunk(body, chunk, why)) return;
    for (std::size_t id = 0; id < columns_.size(); ++id) {
      const ColumnView& view = chunk.columns[id];
      if (view.content == ColumnView::Content::none) continue;
      ColumnFacts& column = columns_[id];
      ++column.chunks;
      column.constant_chunks += view.content == ColumnView::Content::constant ? 1 : 0;
      column.entries += view.entries;
      column.raw_bytes += view.raw_bytes;
      column.stored_bytes += view.bytes.size();
    }
  }

  void count_calibration(Bytes body) {
    Calibration calibration;
    WireReader reader(body);
    while (reader.next()) {
      if (reader.field() == 1) calibration.ticks = reader.number();
      if (reader.field() == 2) calibration.monotonic_ns = reader.number();
    }
    ++facts_.calibrations;
    if (!facts_.first_calibration) facts_.first_calibration = calibration;
    facts_.last_calibration = calibration;
  }

  Facts facts_;
  std::vector<PacketFacts> packets_;
  std::vector<ColumnFacts> columns_;
};

}  // namespace

namespace {

Result<Facts> walk(const FileBytes& file) {
  PacketScanner scanner(file);
  Counter counter;
  std::uint64_t offset = 0;
  while (true) {
    Result<std::optional<Packet>> packet = scanner.at(offset);
    if (!packet) return packet.take_error();
    if (!*packet) return counter.finish(file.size() - offset);
    counter.count(**packet);
    offset = (*packet)->end;
  }
}

}  // namespace

Result<Facts> read_facts(const std::string& path) {
  Result<FileBytes> file = FileBytes::open(path);
  if (!file) return file.take_error();
  return walk(*file);
}

Result<Facts> read_facts(const TraceFile& file) { return walk(file.state_->file); }

}  // namespace liveset::trace
