#include "profiler/collect/recording.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace liveset::collect {
namespace {

using channel::EntryType;
using channel::LossReason;
using channel::Unit;

// A store of the job becomes visible to us within this time; see producer.h.
constexpr double visibility_us = 1000;
// A ring that stays busy longer belongs to a thread that was stopped or killed in the middle of an event: the others go on.
constexpr double stuck_us = 1'000'000;

// What is taken out of the rings before it is written. A full ring takes some 10 ms to write: a thread that waits for room must get
// some long before that.
constexpr std::uint64_t slice_units = 16384, smallest_slice_units = 512;
constexpr double loss_period_us = 1'000'000;

constexpr int reason_count = 6;
std::uint64_t ticks_of(const ClockMap& clock, double microseconds) {
  return static_cast<std::uint64_t>(microseconds * 1000 / clock.ns_per_tick());
}

}  // namespace

Mapping Mapping::open(int descriptor, std::uint64_t bytes) {
  Mapping made;
  struct stat info {};
  if (descriptor >= 0 && fstat(descriptor, &info) == 0 && bytes > 0 && static_cast<std::uint64_t>(info.st_size) >= bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory != MAP_FAILED) {
      made.memory_ = memory;
      made.bytes_ = bytes;
    }
  }
  if (descriptor >= 0) close(descriptor);
  return made;
}

Mapping::Mapping(Mapping&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

Recording::Recording(Identity identity, Mapping region, const ClockMap& clock, std::function<std::string(const Identity&)> path)
    : identity_(std::move(identity)),
      region_(std::move(region)),
      control_(static_cast<channel::Control*>(region_.memory())),
      clock_(clock),
      choose_path_(std::move(path)),
      orderer_(*this, 1000 / clock.ns_per_tick()),
      start_ns_(clock.to_ns(identity_.header.start_ticks)) {}

Recording::~Recording() = default;

bool Recording::add_ring(Mapping mapping) {
  Ring ring;
  if (mapping.memory() == nullptr || !ring.consumer.attach(mapping.memory(), mapping.bytes())) return false;
  ring.mapping = std::move(mapping);
  ring.lane = orderer_.add_lane();
  rings_.push_back(std::move(ring));
  return true;
}

void Recording::begin_pass(std::uint64_t ticks) {
  pass_ticks_ = ticks;
  const std::uint64_t visible = ticks_of(clock_, visibility_us);
  std::uint32_t others = control_->attaching[1 - generation_].load(std::memory_order_acquire);
  if (others == 0) {
    // All that stamped before the last turn have their rings. Turn: this generation is closed, the empty one opened.
    attach_floor_ = std::max(attach_floor_, turned_ticks_ - std::min(visible, turned_ticks_));
    turned_ticks_ = ticks;
    generation_ = 1 - generation_;
    control_->generation.store(generation_, std::memory_order_relaxed);
    others = control_->attaching[1 - generation_].load(std::memory_order_acquire);
    attaching_since_ = ticks;
  }
  if (others != std::exchange(attaching_, others)) attaching_since_ = ticks;
  const bool stuck = ticks - attaching_since_ > ticks_of(clock_, stuck_us);  // stopped, or killed, while they attached
  if (others == 0 || stuck) attach_floor_ = ticks - visible;
}

void Recording::look(Ring& ring) {
  const channel::Consumer::Look look = ring.consumer.look();
  if (look.damaged && error_.empty()) error_ = "the job wrote over the memory it shares with the recorder; events are missing";
  ring.left = look.units;
  fullest_percent_ = std::max(fullest_percent_, look.units * 100 / ring.consumer.capacity());
  if (!look.busy) {
    ring.floor = attach_floor_;
    ring.busy_since = 0;
  } else if (ring.busy_since == 0 || look.units != 0) {
    ring.busy_since = pass_ticks_;
  } else if (pass_ticks_ - ring.busy_since > ticks_of(clock_, stuck_us)) {
    ring.floor = attach_floor_;
  }
  // A thread that took the ring over may have asked for it before its last owner's last events.
  ring.change_floor = Orderer::everything;
  if (look.units <= smallest_slice_units) return;  // is taken at once
  for (std::uint64_t at = 0; at < look.units; at += ring.consumer.event_units(at)) {
    const Unit& unit = ring.consumer.peek(at);
    if (unit.kind == channel::kind_thread) ring.change_floor = std::min(ring.change_floor, unit.ticks);
  }
}

// Takes whole events until `most` units are reached, and lowers `bound` to what may still come from this ring.
void Recording::take(Ring& ring, std::uint64_t most, std::uint64_t* bound) {
  std::uint64_t units = ring.left, last = 0;
  if (units > most) {
    for (units = 0; units < most; units += ring.consumer.event_units(units)) last = ring.consumer.peek(units).ticks;
    units = std::min(units, ring.left);
  }
  ring.consumer.take(units, orderer_.input(ring.lane));
  ring.lane = orderer_.appended(ring.lane);
  ring.left -= units;
  // `last`: the first event of a thread counts as stamped when the thread asked for the ring.
  *bound = std::min({*bound, ring.left == 0 ? ring.floor : std::min({ring.change_floor, last, ring.consumer.peek(0).ticks})});
}

std::uint64_t Recording::drain() {
  std::uint64_t units = 0, used_rings = 0, left = 0;
  fullest_percent_ = 0;
  for (Ring& ring : rings_) {
    look(ring);
    units += ring.left;
    used_rings += ring.left != 0;
  }
  // Only now: whatever name an event above uses was published before the event was.
  const std::uint64_t dictionary_used = control_->dictionary_used.load(std::memory_order_acquire);
  const std::uint64_t most = std::max(smallest_slice_units, slice_units / std::max<std::uint64_t>(used_rings, 1));
  do {
    std::uint64_t bound = attach_floor_;
    left = 0;
    for (Ring& ring : rings_) {
      take(ring, most, &bound);
      left += ring.left;
    }
    if (writer_ == nullptr && !orderer_.empty()) open_file();
    if (writer_ != nullptr) read_dictionary(dictionary_used);
    orderer_.advance(bound);
  } while (left != 0);
  state_losses(false);
  return units;
}

void Recording::calibrate(const ClockPair& pair) {
  if (writer_ != nullptr) writer_->calibrate(pair.ticks, pair.monotonic_ns);
}

void Recording::flush() {
  if (writer_ != nullptr) writer_->flush();
}

void Recording::finish(const char* end) {
  drain();  // nobody writes any more, so one look is enough
  if (writer_ == nullptr && !orderer_.empty()) open_file();
  orderer_.advance(Orderer::everything);
  state_losses(true);
  if (writer_ == nullptr) return;
  const bool whole = writer_->finish(end);
  events_ = writer_->events();
  lost_ = writer_->lost_events();
  if (!whole && error_.empty()) error_ = "the disk is full; the file holds what fitted";
  writer_.reset();
}

void Recording::open_file() {
  if (refused_) return;
  path_ = choose_path_(identity_);
  writer_ = writer::TraceWriter::create(path_, identity_.header, &error_);
  refused_ = writer_ == nullptr;
}

// ---- Names

void Recording::read_dictionary(std::uint64_t used) {
  const char* entries = static_cast<const char*>(region_.memory()) + channel::dictionary_offset;
  const std::uint64_t limit = std::min<std::uint64_t>(used, region_.bytes() - channel::dictionary_offset);
  while (!dictionary_damaged_ && dictionary_read_ < limit) {
    channel::EntryHeader header;
    dictionary_damaged_ = limit - dictionary_read_ < sizeof header;
    if (dictionary_damaged_) break;
    std::memcpy(&header, entries + dictionary_read_, sizeof header);
    dictionary_damaged_ = header.bytes % 8 != 0 || header.bytes < sizeof header || header.bytes > limit - dictionary_read_ ||
                          header.length > header.bytes - sizeof header || !define(header, entries + dictionary_read_ + sizeof header);
    if (!dictionary_damaged_) dictionary_read_ += header.bytes;
  }
  if (dictionary_damaged_ && error_.empty()) error_ = "the job wrote over the memory it shares with the recorder; names are missing";
}

namespace {

template <class T>
bool read_payload(const channel::EntryHeader& header, const char* payload, T* out) {
  if (header.length != sizeof *out) return false;
  std::memcpy(out, payload, sizeof *out);
  return true;
}

// The next text, ended by a 0 byte.
std::string_view next_text(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\0'), rest.size());
  const std::string_view text = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return text;
}

}  // namespace

// False when the entry makes no sense.
bool Recording::define(const channel::EntryHeader& header, const char* payload) {
  const auto type = static_cast<std::uint32_t>(header.type);
  if (type >= std::size(defined_) || header.id != defined_[type] + 1) return false;
  ++defined_[type];
  switch (header.type) {
    case EntryType::string: writer_->define_string(header.id, std::string_view(payload, header.length)); return true;
    case EntryType::scope: {
      channel::ScopeEntry entry;
      if (!read_payload(header, payload, &entry)) return false;
      writer_->define_scope(header.id, entry.parent, entry.kind, entry.name);
      return true;
    }
    case EntryType::heap: {
      channel::HeapEntry entry;
      if (!read_payload(header, payload, &entry)) return false;
      writer_->define_heap(header.id, entry.name, static_cast<std::uint32_t>(entry.device_type), entry.device_index, entry.source);
      return true;
    }
    case EntryType::value: {
      channel::ValueEntry entry;
      if (!read_payload(header, payload, &entry)) return false;
      writer_->define_value(header.id, entry.name, entry.group, entry.layer);
      return true;
    }
    case EntryType::frame: {
      channel::FrameEntry entry;
      if (!read_payload(header, payload, &entry)) return false;
      writer_->define_frame(header.id, {entry.function, entry.file, entry.line, entry.build_id, entry.offset});
      return true;
    }
    case EntryType::stack: {
      channel::StackEntry entry;
      if (!read_payload(header, payload, &entry)) return false;
      writer_->define_stack(header.id, entry.parent, entry.frame);
      return true;
    }
    case EntryType::source: {
      std::string_view rest(payload, header.length);
      const std::string_view name = next_text(rest), version = next_text(rest), covers = next_text(rest), cannot_see = next_text(rest);
      writer_->define_source(header.id, name, version, covers, cannot_see);
      return true;
    }
  }
  return false;
}

// ---- Events

void Recording::begin_thread(std::uint32_t lane, const Unit* units) {
  channel::ThreadName name;
  std::memcpy(&name, units + 1, sizeof name);
  const auto thread = static_cast<std::uint32_t>(units->b);
  if (lane >= lane_threads_.size()) lane_threads_.resize(lane + 1);
  lane_threads_[lane] = thread;
  if (writer_ == nullptr) return;
  writer_->define_thread(thread, static_cast<std::int64_t>(units->a), std::string_view(name.name, strnlen(name.name, sizeof name.name)));
}

// Of the thread of the block that is `event`, before it.
void Recording::append_before(const writer::Event& event, std::uint8_t kind, std::int64_t number) {
  writer::Event made;
  made.time_ns = event.time_ns;
  made.kind = kind;
  made.phase = event.phase;
  made.thread = event.thread;
  made.scope = event.scope;
  made.number = number;
  writer_->append(made);
}

void Recording::append_block(writer::Event& event, const Unit* units, std::uint32_t count) {
  event.heap = units->heap;
  event.address = units->a;
  event.size = units->b;
  if (count > 1) {
    channel::Extension extension;
    std::memcpy(&extension, units + 1, sizeof extension);
    if (count > 2) {
      channel::SequenceUnit sequence;
      std::memcpy(&sequence, units + 2, sizeof sequence);
      append_before(event, channel::kind_sequence, static_cast<std::int64_t>(sequence.number));
    }
    if ((extension.flags & channel::extension_has_return) != 0) append_before(event, channel::kind_node_returned, 0);
    event.stream = extension.stream;
    event.stack = extension.stack;
    event.has_totals = (extension.flags & channel::extension_has_totals) != 0;
    event.total = extension.allocated;
    event.reserved = extension.reserved;
  }
  writer_->append(event);
}

void Recording::append_value(writer::Event& event, const Unit* units, std::uint32_t count) {
  channel::ValueUnit value{};
  if (count > 1) std::memcpy(&value, units + 1, sizeof value);
  const std::uint32_t reads = std::min(value.read_count, channel::max_reads);
  if (count != channel::value_units(reads) || (units->kind & channel::kind_extended) != 0) {  // nothing of ours wrote this
    ++damaged_;
    return;
  }
  reads_.assign(value.reads, value.reads + std::min(reads, 2U));
  for (std::uint32_t unit = 2; reads_.size() < reads; ++unit) {
    channel::ReadsUnit more;
    std::memcpy(&more, units + unit, sizeof more);
    reads_.insert(reads_.end(), more.reads, more.reads + std::min<std::size_t>(reads - reads_.size(), 8));
  }
  event.heap = units->heap;
  event.address = units->a;
  event.size = units->b;
  event.value = value.value;
  event.name = value.name;
  event.memory_class = static_cast<std::uint8_t>(value.memory_class);
  event.number = value.number;
  event.reads = reads_;
  writer_->append(event);
}

void Recording::emit(std::uint32_t lane, const Unit* units, std::uint32_t count, std::uint64_t ticks) {
  if (units->kind == channel::kind_thread) return begin_thread(lane, units);
  if (writer_ == nullptr) {
    ++lost_;
    return;
  }
  writer::Event event;
  const std::uint64_t ns = clock_.to_ns(ticks);
  event.time_ns = ns > start_ns_ ? ns - start_ns_ : 0;
  event.kind = units->kind & 0x7f;
  event.phase = units->phase;
  event.thread = lane < lane_threads_.size() ? lane_threads_[lane] : 0;
  event.scope = units->scope;
  if (channel::is_value_kind(event.kind)) return append_value(event, units, count);
  if (event.kind == channel::kind_counter) {
    event.heap = units->heap;
    event.name = static_cast<std::uint32_t>(units->b);
    event.number = static_cast<std::int64_t>(units->a);
  } else if (event.kind == channel::kind_kernel) {
    event.heap = units->heap;
    event.stream = units->a;
    event.name = static_cast<std::uint32_t>(units->b);
  } else if (event.kind == channel::kind_attribute) {
    event.name = static_cast<std::uint32_t>(units->a);
    event.text = static_cast<std::uint32_t>(units->b);
  } else if (event.kind >= channel::kind_step_begin) {
    event.number = static_cast<std::int64_t>(units->a);
    event.name = static_cast<std::uint32_t>(units->b);
  } else {
    return append_block(event, units, count);
  }
  writer_->append(event);
}

bool Recording::is_live(std::uint32_t heap, std::uint64_t address) const { return writer_ != nullptr && writer_->is_live(heap, address); }

// Gathers what was lost, and says so once a second: where losses go on, a packet for each pass would fill the file.
void Recording::state_losses(bool at_once) {
  for (int reason = 0; reason < reason_count; ++reason) {
    const std::uint64_t counted = control_->lost[reason].load(std::memory_order_relaxed);
    lost_unstated_[reason] += counted - std::min(counted, lost_counted_[reason]);
    lost_counted_[reason] = counted;
  }
  for (Ring& ring : rings_) {
    const std::uint64_t dropped = ring.consumer.dropped();
    lost_unstated_[static_cast<int>(LossReason::ring_full)] += dropped - std::min(dropped, ring.dropped);
    ring.dropped = dropped;
  }
  const std::uint64_t damaged = orderer_.damaged_units() + damaged_;
  lost_unstated_[static_cast<int>(LossReason::collector_bug)] += damaged - damaged_counted_;
  damaged_counted_ = damaged;
  if (!at_once && losses_stated_ticks_ != 0 && pass_ticks_ - losses_stated_ticks_ < ticks_of(clock_, loss_period_us)) return;
  for (int reason = 0; reason < reason_count; ++reason) {
    const std::uint64_t lost = std::exchange(lost_unstated_[reason], 0);
    if (lost == 0) continue;
    const auto why = static_cast<LossReason>(reason);
    if (why == LossReason::ring_full || why == LossReason::no_memory) lost_in_rings_ += lost;
    losses_stated_ticks_ = pass_ticks_;
    if (writer_ == nullptr) open_file();
    if (writer_ != nullptr) {
      writer_->lose(reason, lost);
    } else {
      lost_ += lost;
    }
  }
}

}  // namespace liveset::collect
