#include "profiler/writer/live_blocks.h"

namespace liveset::writer {

LiveHeap::Reported LiveHeap::report(std::uint64_t total, std::uint64_t reserved) {
  // Differences of unsigned numbers, so that no value of a broken allocator overflows.
  Reported reported;
  reported.total_error = static_cast<std::int64_t>(total - live_bytes_);
  reported.reserved_delta = static_cast<std::int64_t>(reserved - reserved_);
  if (!reported_) baseline_ = reported.total_error;
  reported.mismatch = reported.total_error != baseline_;
  reported_ = true;
  total_ = total;
  reserved_ = reserved;
  return reported;
}

void LiveHeap::describe(std::uint32_t heap, proto::HeapTotal& total) const {
  total.set_heap(heap);
  total.set_live_bytes(live_bytes_);
  total.set_live_blocks(blocks_.size());
  total.set_peak_bytes(peak_bytes_);
  total.set_peak_event(peak_event_);
  if (!reported_) return;
  total.set_allocator_total(total_);
  total.set_allocator_reserved(reserved_);
  total.set_baseline_bytes(baseline_);
}

}  // namespace liveset::writer
