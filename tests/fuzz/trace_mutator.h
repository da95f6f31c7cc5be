// Deterministic damage to a good trace: of its bytes, and of what it says behind checksums that are right.
#pragma once
#include <cstdint>
#include <string>

#include "profiler/writer/packet_file.h"
#include "proto/trace.pb.h"
#include "tests/support/train_pattern.h"

namespace liveset::test {

class TraceMutator {
 public:
  TraceMutator(std::string good, std::uint64_t seed) : good_(std::move(good)), random_(seed) { trace_.ParseFromString(good_); }

  // The first `numerator / denominator` of the bytes.
  std::string cut(std::size_t numerator, std::size_t denominator) const { return good_.substr(0, good_.size() * numerator / denominator); }
  // One byte is another.
  std::string flip() {
    std::string bytes = good_;
    char& byte = bytes[random_.below(bytes.size())];
    byte = static_cast<char>(byte ^ static_cast<char>(1 + random_.below(255)));
    return bytes;
  }
  // Packets that are whole and lie.
  std::string lie() {
    proto::Trace trace = trace_;
    const int lies = 1 + static_cast<int>(random_.below(3));
    for (int i = 0; i < lies; ++i) change(trace);
    std::string bytes;
    for (const proto::Packet& packet : trace.packet()) append(packet, bytes);
    return bytes;
  }

 private:
  void change(proto::Trace& trace) {
    const int index = static_cast<int>(random_.below(static_cast<std::uint64_t>(trace.packet_size())));
    proto::Packet& packet = *trace.mutable_packet(index);
    switch (random_.below(8)) {
      case 0: trace.mutable_packet()->DeleteSubrange(index, 1); break;
      case 1: *trace.add_packet() = proto::Packet(packet); break;
      case 2:
        trace.mutable_packet()->SwapElements(index, static_cast<int>(random_.below(static_cast<std::uint64_t>(trace.packet_size()))));
        break;
      default:
        if (packet.has_events())
          change_chunk(*packet.mutable_events());
        else if (packet.has_dictionary())
          change_dictionary(*packet.mutable_dictionary());
        break;
    }
    if (trace.packet_size() == 0) *trace.add_packet() = trace_.packet(0);
  }

  std::uint64_t number() { return random_.next() >> random_.below(64); }

  void change_chunk(proto::EventChunk& chunk) {
    switch (random_.below(10)) {
      case 0: chunk.set_first_event(number()); break;
      case 1: chunk.set_events(static_cast<std::uint32_t>(number())); break;
      case 2: chunk.set_first_allocation(number()); break;
      case 3: chunk.set_address_shift(static_cast<std::uint32_t>(number())); break;
      case 4: chunk.set_first_time_ns(number()); break;
      default:
        change_column(*chunk.mutable_column(static_cast<int>(random_.below(static_cast<std::uint64_t>(chunk.column_size())))));
        break;
    }
  }

  void change_column(proto::Column& column) {
    switch (random_.below(6)) {
      case 0: column.set_entries(static_cast<std::uint32_t>(number())); break;
      case 1: column.set_raw_bytes(static_cast<std::uint32_t>(number())); break;
      case 2: column.set_constant(number()); break;
      case 3: column.set_id(static_cast<proto::ColumnId>(random_.below(25))); break;
      default: change_content(column); break;
    }
  }

  void change_content(proto::Column& column) {
    std::string* content = column.has_data() ? column.mutable_data() : column.has_plain() ? column.mutable_plain() : nullptr;
    if (content == nullptr || content->empty()) return;
    for (std::uint64_t i = 0; i <= random_.below(4); ++i) (*content)[random_.below(content->size())] = static_cast<char>(random_.next());
  }

  void change_dictionary(proto::Dictionary& dictionary) {
    if (dictionary.scope_size() != 0) dictionary.mutable_scope(0)->set_parent(static_cast<std::uint32_t>(number()));
    if (dictionary.string_size() != 0) change_string(*any_of(*dictionary.mutable_string()));
    if (dictionary.heap_size() != 0) change_heap(*any_of(*dictionary.mutable_heap()));
  }

  template <class T>
  T* any_of(google::protobuf::RepeatedPtrField<T>& entries) {
    return entries.Mutable(static_cast<int>(random_.below(static_cast<std::uint64_t>(entries.size()))));
  }
  void change_string(proto::String& string) {
    std::string& text = *string.mutable_text();
    if (random_.below(2) == 0) return string.set_id(static_cast<std::uint32_t>(number()));
    if (text.empty()) return;
    if (random_.below(2) == 0) text[random_.below(text.size())] = static_cast<char>(random_.next());
    // A number, of a size or a count, say.
    const std::size_t digit = text.find_first_of("0123456789", random_.below(text.size()));
    if (digit != std::string::npos) text.insert(digit, std::to_string(number()));
  }
  void change_heap(proto::Heap& heap) {
    switch (random_.below(4)) {
      case 0: return heap.set_id(static_cast<std::uint32_t>(number()));
      case 1: return heap.set_source(static_cast<std::uint32_t>(random_.below(4)));
      case 2: return heap.set_name(static_cast<std::uint32_t>(random_.below(1100)));
      default: return heap.set_device_index(static_cast<std::int32_t>(number()));
    }
  }

  static void append(const proto::Packet& packet, std::string& bytes) {
    switch (packet.body_case()) {
      case proto::Packet::kHeader: bytes += writer::frame_packet(1, packet.header().SerializeAsString()); break;
      case proto::Packet::kDictionary: bytes += writer::frame_packet(2, packet.dictionary().SerializeAsString()); break;
      case proto::Packet::kEvents: bytes += writer::frame_packet(3, packet.events().SerializeAsString()); break;
      case proto::Packet::kCalibration: bytes += writer::frame_packet(5, packet.calibration().SerializeAsString()); break;
      case proto::Packet::kLoss: bytes += writer::frame_packet(6, packet.loss().SerializeAsString()); break;
      case proto::Packet::kFooter: bytes += writer::frame_packet(7, packet.footer().SerializeAsString(), bytes.size()); break;
      default: break;
    }
  }

  std::string good_;
  proto::Trace trace_;
  Random random_;
};

}  // namespace liveset::test
