#include "viewer/ledger/lineage_order.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "viewer/trace/columns.h"

namespace liveset::ledger {
namespace {

using trace::Kind;

using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  // interval, scope, bytes

struct Bucket {
  std::uint32_t first = 0, end = 0;  // of the wanted ones, by place
  std::uint32_t next = 0, made = 0;  // made: in the forward, so far
};

Key key_of(const WantedOriginal& wanted) { return {wanted.interval, wanted.scope, wanted.bytes}; }

class Matcher {
 public:
  Matcher(const trace::TraceFile& file, const PhysicalLedger& ledger, const std::vector<ForwardInterval>& intervals,
          std::vector<WantedOriginal> wanted, Lineage& lineage)
      : file_(file), ledger_(ledger), intervals_(intervals), wanted_(std::move(wanted)), lineage_(lineage) {}
  Status run();

 private:
  static constexpr std::size_t max_active = 64;  // deeper nests of regions stay unmatched
  void index();
  void chunk(const trace::Columns& columns);
  void allocation(std::uint32_t interval, std::uint32_t scope, std::uint32_t ordinal);
  bool needs(const trace::ChunkInfo& chunk);

  const trace::TraceFile& file_;
  const PhysicalLedger& ledger_;
  const std::vector<ForwardInterval>& intervals_;
  std::vector<WantedOriginal> wanted_;
  Lineage& lineage_;
  absl::flat_hash_map<Key, Bucket> buckets_;
  std::vector<std::uint32_t> by_begin_;  // intervals
  std::size_t next_ = 0;
  std::vector<std::uint32_t> active_;
};

void Matcher::index() {
  std::sort(wanted_.begin(), wanted_.end(), [](const WantedOriginal& a, const WantedOriginal& b) {
    return std::tuple(key_of(a), a.place) < std::tuple(key_of(b), b.place);
  });
  for (std::uint32_t i = 0; i < wanted_.size(); ++i) {
    Bucket& bucket = buckets_[key_of(wanted_[i])];
    if (bucket.end == 0) bucket.first = bucket.next = i;
    bucket.end = i + 1;
  }
  by_begin_.resize(intervals_.size());
  std::iota(by_begin_.begin(), by_begin_.end(), 0);
  std::sort(by_begin_.begin(), by_begin_.end(), [&](auto a, auto b) { return intervals_[a].begin < intervals_[b].begin; });
}

bool Matcher::needs(const trace::ChunkInfo& chunk) {
  std::erase_if(active_, [&](std::uint32_t i) { return intervals_[i].end <= chunk.first_event; });
  return !active_.empty() || (next_ < by_begin_.size() && intervals_[by_begin_[next_]].begin < chunk.first_event + chunk.events);
}

Status Matcher::run() {
  index();
  namespace column = trace::column;
  trace::Columns columns;
  for (std::size_t i = 0; i < file_.chunks().size(); ++i) {
    if (!needs(file_.chunks()[i])) continue;
    if (Status status = file_.read_chunk(i, column::kind | column::thread | column::phase | column::scope, columns); !status) return status;
    chunk(columns);
  }
  for (const auto& [key, bucket] : buckets_) {
    for (std::uint32_t i = bucket.first; i < bucket.end; ++i) lineage_.values[wanted_[i].value].guess |= wanted_[i].made != bucket.made;
  }
  return Done{};
}

void Matcher::chunk(const trace::Columns& columns) {
  std::uint64_t ordinal = columns.first_allocation;
  for (std::uint32_t i = 0; i < columns.events; ++i) {
    if (static_cast<Kind>(columns.kind[i] & 0x7f) != Kind::alloc) continue;
    const std::uint64_t event = columns.first_event + i;
    while (next_ < by_begin_.size() && intervals_[by_begin_[next_]].begin <= event) {
      if (active_.size() >= max_active) std::erase_if(active_, [&](std::uint32_t a) { return intervals_[a].end <= event; });
      if (active_.size() < max_active) active_.push_back(by_begin_[next_]);
      ++next_;
    }
    const auto phase = static_cast<trace::Phase>(columns.phase[i]);
    for (const std::uint32_t interval : active_) {
      const ForwardInterval& forward = intervals_[interval];
      if (event < forward.end && (forward.any_thread ? phase == trace::Phase::forward : columns.thread[i] == forward.thread))
        allocation(interval, columns.scope[i], static_cast<std::uint32_t>(ordinal));
    }
    ++ordinal;
  }
}

void Matcher::allocation(std::uint32_t interval, std::uint32_t scope, std::uint32_t ordinal) {
  const Block* block = ledger_.blocks.find(ordinal);
  if (block == nullptr) return;
  const auto found = buckets_.find({interval, scope, ledger_.blocks.bytes(*block)});
  if (found == buckets_.end()) return;
  Bucket& bucket = found->second;
  const std::uint32_t place = bucket.made++;
  for (; bucket.next < bucket.end && wanted_[bucket.next].place == place; ++bucket.next) {
    RemadeValue& value = lineage_.values[wanted_[bucket.next].value];
    if (ordinal >= value.block) continue;
    value.original = ordinal;
    value.scope = scope;
    value.matched = Matched::order;
  }
}

}  // namespace

Status match_by_order(const trace::TraceFile& file, const PhysicalLedger& ledger, const std::vector<ForwardInterval>& intervals,
                      std::vector<WantedOriginal> wanted, Lineage& lineage) {
  return Matcher(file, ledger, intervals, std::move(wanted), lineage).run();
}

}  // namespace liveset::ledger
