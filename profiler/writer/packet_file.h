// Packets in order into a sink. A packet that finds the disk full waits in memory, with all later ones behind it, and
// is tried again; the file is a valid prefix at every moment. Room for the footer is kept reserved all the time.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "profiler/writer/sink.h"

namespace liveset::writer {

class PacketFile {
 public:
  // Told the packet's offset once it is in the file.
  using Written = std::function<void(std::uint64_t offset)>;

  explicit PacketFile(std::unique_ptr<Sink> sink) : sink_(std::move(sink)) {}

  // `body` is the encoded message of Packet's field `field`. `keep_free` bytes beyond the packet must stay free for the
  // end of the file.
  void put(std::uint32_t field, const std::string& body, std::uint64_t keep_free, Written written);
  // Tries what waits. True when nothing waits any more.
  bool write_waiting();
  std::uint64_t waiting_bytes() const { return waiting_bytes_; }
  void drop_waiting();

  // Straight into the file, with what is reserved: for the last packets.
  bool put_last(std::uint32_t field, const std::string& body, Written written);
  bool put_footer(const std::string& body);
  bool close() { return sink_->close(); }
  std::uint64_t size() const { return size_; }

 private:
  struct Waiting {
    std::string bytes;
    std::uint64_t keep_free;
    Written written;
  };
  bool write(const Waiting& packet, bool reserve);

  std::unique_ptr<Sink> sink_;
  std::deque<Waiting> waiting_;
  std::uint64_t waiting_bytes_ = 0;
  std::uint64_t size_ = 0;
};

// One length-delimited packet of the Trace message. `footer_offset` is written unless it is `no_footer`.
inline constexpr std::uint64_t no_footer = ~std::uint64_t{0};
std::string frame_packet(std::uint32_t field, const std::string& body, std::uint64_t footer_offset = no_footer);

}  // namespace liveset::writer
