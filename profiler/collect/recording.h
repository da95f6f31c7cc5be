// One recorded process: its region, its rings, its trace file.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profiler/channel/consumer.h"
#include "profiler/channel/layout.h"
#include "profiler/collect/clock_map.h"
#include "profiler/collect/order.h"
#include "profiler/writer/trace_writer.h"

namespace liveset::collect {

// Memory that a job shares with us; unmapped at the end.
class Mapping {
 public:
  Mapping() = default;
  // Maps the first `bytes` bytes of the file behind `descriptor`, which it closes. Null when the file is shorter (touching what is
  // not there would kill us) or cannot be mapped.
  static Mapping open(int descriptor, std::uint64_t bytes);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  void* memory() const { return memory_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
};

class Recording final : private OrderSink {
 public:
  struct Identity {
    writer::HeaderInfo header;
  };
  // `path`: asked for when there is something to write. `clock`: maps this process's ticks; outlives the recording.
  Recording(Identity identity, Mapping region, const ClockMap& clock, std::function<std::string(const Identity&)> path);
  ~Recording() override;

  // False when it is no ring of this build.
  bool add_ring(Mapping ring);

  // A pass: begin_pass(now), then look at the sockets (for new rings), then drain(), which takes what is in the rings and returns the
  // number of units taken. In that order, what was stamped before `ticks` is in a ring that we know, or being written.
  void begin_pass(std::uint64_t ticks);
  std::uint64_t drain();
  void calibrate(const ClockPair& pair);
  void flush();
  // The process is gone (or has become another program): takes the rest and closes the file.
  void finish(const char* end);

  const Identity& identity() const { return identity_; }
  std::int64_t pid() const { return identity_.header.pid; }
  bool exiting() const { return control_->exiting.load(std::memory_order_relaxed) != 0; }
  std::uint64_t fullest_ring_percent() const { return fullest_percent_; }  // at the last drain

  // For the report.
  const std::string& path() const { return path_; }
  const std::string& error() const { return error_; }  // why there is no file, or why it is not whole
  std::uint64_t events() const { return events_; }
  std::uint64_t lost() const { return lost_; }
  std::uint64_t lost_in_rings() const { return lost_in_rings_; }  // to full or missing rings

 private:
  struct Ring {
    Mapping mapping;
    channel::Consumer consumer;
    std::uint64_t floor = 0;         // no event stamped before it will still appear, when `left` is taken
    std::uint64_t left = 0;          // of the units that were there when this pass looked
    std::uint64_t change_floor = 0;  // earliest stamp of a change of owner among them
    std::uint64_t busy_since = 0;
    std::uint64_t dropped = 0;  // already counted
    std::uint32_t lane = 0;     // of its present owner
  };

  void emit(std::uint32_t lane, const channel::Unit* units, std::uint32_t count, std::uint64_t ticks) override;
  bool is_live(std::uint32_t heap, std::uint64_t address) const override;
  void look(Ring& ring);
  void take(Ring& ring, std::uint64_t most, std::uint64_t* bound);
  void open_file();
  void read_dictionary(std::uint64_t used);
  bool define(const channel::EntryHeader& header, const char* payload);
  void state_losses(bool at_once);
  void begin_thread(std::uint32_t lane, const channel::Unit* units);
  void append_before(const writer::Event& event, std::uint8_t kind, std::int64_t number);
  void append_block(writer::Event& event, const channel::Unit* units, std::uint32_t count);
  void append_value(writer::Event& event, const channel::Unit* units, std::uint32_t count);

  Identity identity_;
  Mapping region_;
  channel::Control* control_;
  const ClockMap& clock_;
  std::function<std::string(const Identity&)> choose_path_;
  Orderer orderer_;
  std::vector<Ring> rings_;
  std::uint64_t pass_ticks_ = 0;
  std::uint64_t attach_floor_ = 0;  // no thread without a ring has stamped an event before it
  std::uint32_t generation_ = 0;    // that threads which attach join now
  std::uint64_t turned_ticks_ = 0;  // all of the other one that stamped before it had joined by then
  std::uint32_t attaching_ = 0;     // threads of the other one, and since when so many
  std::uint64_t attaching_since_ = 0;
  std::vector<std::uint32_t> lane_threads_;  // thread id by lane
  std::unique_ptr<writer::TraceWriter> writer_;
  bool refused_ = false;  // the file could not be created
  std::string path_, error_;
  std::uint64_t start_ns_ = 0;
  std::uint64_t dictionary_read_ = 0;
  bool dictionary_damaged_ = false;
  std::uint32_t defined_[8] = {};
  std::uint64_t lost_counted_[8] = {}, lost_unstated_[8] = {};
  std::uint64_t losses_stated_ticks_ = 0;
  std::uint64_t damaged_ = 0, damaged_counted_ = 0;  // events that make no sense
  std::uint64_t fullest_percent_ = 0;
  std::uint64_t events_ = 0, lost_ = 0, lost_in_rings_ = 0;
  std::vector<std::uint32_t> reads_;
};

}  // namespace liveset::collect
