// The simulated caching allocator against a plain one that keeps no free blocks: what is free is what lies between the live ones. Equal
// after every step of random scripts, under random settings.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "viewer/allocator/caching_allocator.h"

namespace liveset::allocator {
namespace {

struct Piece {
  std::uint64_t size = 0, requested = 0;
  int id = 0;
  bool pending = false;
};
struct Range {  // free
  std::uint64_t begin = 0, size = 0;
};
struct PlainSegment {
  std::uint64_t number = 0, size = 0, stream = 0, empty_since = 0;
  bool small = false;
  std::map<std::uint64_t, Piece> pieces;  // by offset
  std::set<std::uint64_t> pages;          // expandable: the mapped ones

  bool mapped(std::uint64_t offset, std::uint64_t page) const { return page == 0 || pages.count(offset / page) != 0; }
};

class PlainAllocator {
 public:
  PlainAllocator(const Settings& settings, const Device& device) : settings_(settings) {
    capacity_ = device.capacity.value_or(unlimited);
    limits_ = settings.memory_fraction < 1 && device.capacity;
    allowed_ = static_cast<std::uint64_t>(settings.memory_fraction * static_cast<double>(capacity_));
    collects_ = limits_ && settings.garbage_collection_threshold > 0;
  }

  // 0: out of memory, 1: done
  int malloc(int id, std::uint64_t requested, std::uint64_t stream) {
    const std::uint64_t size = round(requested);
    const bool small = size <= mebibyte;
    searches_[small] += collects_;
    bool done = take_cached(id, requested, size, small, stream);
    if (!done) {
      if (collects_) collect();
      done = take_new(id, requested, size, small, stream);
      if (!done && release_oversize(size, small, stream)) done = take_new(id, requested, size, small, stream);
      if (!done) {
        empty_cache();
        ++counts.retries;
        done = take_new(id, requested, size, small, stream);
      }
    }
    if (!done) ++counts.out_of_memory;
    settle();
    return done;
  }
  void free(int id, bool requested, bool completed) {
    for (PlainSegment& segment : segments) {
      for (auto piece = segment.pieces.begin(); piece != segment.pieces.end(); ++piece) {
        if (piece->second.id != id) continue;
        if (requested) piece->second.pending = true;
        if (completed) remove(segment, piece);
        settle();
        return;
      }
    }
  }
  void empty_cache() {
    for (PlainSegment& segment : segments) {
      for (auto piece = segment.pieces.begin(); piece != segment.pieces.end();)
        piece = piece->second.pending ? remove(segment, piece) : std::next(piece);
    }
    std::erase_if(segments, [this](PlainSegment& segment) {
      const std::uint64_t page = page_of(segment);
      if (page == 0) {
        counts.device_frees += segment.pieces.empty();
        return segment.pieces.empty();
      }
      const bool had_pages = !segment.pages.empty();  // addresses that nothing was ever mapped into stay
      for (const Range& range : free_ranges(segment)) {
        const std::uint64_t first = (range.begin + page - 1) / page, end = (range.begin + range.size) / page;
        counts.device_frees += first < end;
        for (std::uint64_t index = first; index < end; ++index) segment.pages.erase(index);
      }
      return had_pages && segment.pages.empty();
    });
    settle();
  }

  std::vector<PlainSegment> segments;
  Counters now, peaks;
  Statistics counts;

  std::vector<Range> free_ranges(const PlainSegment& segment) const {
    std::vector<Range> ranges;
    const std::uint64_t page = page_of(segment);
    const auto add = [&](std::uint64_t begin, std::uint64_t end) {  // a gap between pieces: its mapped parts
      while (begin < end) {
        const std::uint64_t stop = page == 0 ? end : std::min(end, (begin / page + 1) * page);
        if (segment.mapped(begin, page)) {
          if (!ranges.empty() && ranges.back().begin + ranges.back().size == begin && touches_)
            ranges.back().size += stop - begin;
          else
            ranges.push_back({begin, stop - begin});
          touches_ = true;
        } else {
          touches_ = false;
        }
        begin = stop;
      }
    };
    std::uint64_t at = 0;
    for (const auto& [offset, piece] : segment.pieces) {
      touches_ = false;
      add(at, offset);
      at = offset + piece.size;
    }
    touches_ = false;
    const std::uint64_t end = page == 0 ? segment.size : segment.pages.empty() ? 0 : (*segment.pages.rbegin() + 1) * page;
    if (at < end) add(at, end);
    return ranges;
  }
  std::uint64_t page_of(const PlainSegment& segment) const {
    return !settings_.expandable_segments ? 0 : segment.small ? 2 * mebibyte : settings_.large_segment_size;
  }

 private:
  std::uint64_t round(std::uint64_t size) const {
    if (size < 512) return 512;
    std::uint64_t power = 512;
    int exponent = 9;
    while (power * 2 <= size) {
      power *= 2;
      ++exponent;
    }
    const std::uint64_t divisions = settings_.roundup_power2_divisions[static_cast<std::size_t>(std::min(std::max(exponent - 20, 0), 15))];
    if (divisions > 1 && size > 512 * divisions) {
      for (std::uint64_t step = 0; step <= divisions; ++step) {
        if (power + step * (power / divisions) >= size) return power + step * (power / divisions);
      }
    }
    return (size + 511) / 512 * 512;
  }
  void settle() {
    now = {};
    for (const PlainSegment& segment : segments) {
      const std::uint64_t page = page_of(segment);
      now.reserved += page == 0 ? segment.size : segment.pages.size() * page;
      for (const auto& [offset, piece] : segment.pieces) {
        now.requested += piece.requested;
        now.active += piece.size;
        now.allocated += piece.pending ? 0 : piece.size;
      }
    }
    peaks.requested = std::max(peaks.requested, now.requested);
    peaks.allocated = std::max(peaks.allocated, now.allocated);
    peaks.active = std::max(peaks.active, now.active);
    peaks.reserved = std::max(peaks.reserved, now.reserved);
  }
  std::uint64_t reserved() {
    settle();
    return now.reserved;
  }
  std::map<std::uint64_t, Piece>::iterator remove(PlainSegment& segment, std::map<std::uint64_t, Piece>::iterator piece) {
    const auto next = segment.pieces.erase(piece);
    if (segment.pieces.empty()) segment.empty_since = searches_[segment.small];
    return next;
  }
  void place(PlainSegment& segment, const Range& range, int id, std::uint64_t requested, std::uint64_t size) {
    const std::uint64_t rest = range.size - size;
    const bool splits = segment.small || settings_.expandable_segments ? rest >= 512 : size < settings_.max_split_size && rest > mebibyte;
    segment.pieces[range.begin] = {splits ? size : range.size, requested, id, false};
  }
  bool take_cached(int id, std::uint64_t requested, std::uint64_t size, bool small, std::uint64_t stream) {
    std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::size_t>> fits;  // size, number, begin, index
    for (std::size_t index = 0; index < segments.size(); ++index) {
      if (segments[index].small != small || segments[index].stream != stream) continue;
      for (const Range& range : free_ranges(segments[index])) {
        if (range.size >= size) fits.emplace_back(range.size, segments[index].number, range.begin, index);
      }
    }
    if (fits.empty()) return false;
    std::sort(fits.begin(), fits.end());
    const auto grown = [&](std::size_t which) {  // with the unmapped addresses behind it
      const auto& [bytes, number, begin, index] = fits[which];
      const PlainSegment& segment = segments[index];
      const std::uint64_t page = page_of(segment);
      std::uint64_t end = begin + bytes;
      while (page != 0 && end < segment.size && !segment.mapped(end, page)) end += page;
      return end - begin;
    };
    std::size_t chosen = 0;
    while (settings_.expandable_segments && chosen + 1 < fits.size() && grown(chosen + 1) < grown(chosen)) ++chosen;
    const auto [bytes, number, begin, index] = fits[chosen];
    if (size < settings_.max_split_size && bytes >= settings_.max_split_size) return false;
    if (size >= settings_.max_split_size && bytes >= size + settings_.max_non_split_rounding_size) return false;
    place(segments[index], {begin, bytes}, id, requested, size);
    return true;
  }
  bool take_new(int id, std::uint64_t requested, std::uint64_t size, bool small, std::uint64_t stream) {
    const std::uint64_t bytes = small                  ? 2 * mebibyte
                                : size < 10 * mebibyte ? settings_.large_segment_size
                                                       : (size + 2 * mebibyte - 1) / (2 * mebibyte) * (2 * mebibyte);
    if (limits_ && reserved() + bytes > allowed_) return false;
    if (settings_.expandable_segments) return expand(id, requested, size, small, stream);
    if (reserved() + bytes > capacity_) return false;
    ++counts.device_mallocs;
    segments.push_back({next_number_++, bytes, stream, 0, small, {}, {}});
    settle();
    place(segments.back(), {0, bytes}, id, requested, size);
    return true;
  }
  static std::uint64_t gap(const PlainSegment& segment, std::uint64_t page, std::uint64_t size) {
    std::uint64_t begin = 0;
    for (auto piece = segment.pieces.begin();; ++piece) {
      const std::uint64_t end = piece == segment.pieces.end() ? segment.size : piece->first;
      bool unmapped = false;
      for (std::uint64_t at = begin; at < end; at = (at / page + 1) * page) unmapped = unmapped || !segment.mapped(at, page);
      if (unmapped && end - begin >= size) return begin;
      if (piece == segment.pieces.end()) return unlimited;
      begin = piece->first + piece->second.size;
    }
  }
  bool expand(int id, std::uint64_t requested, std::uint64_t size, bool small, std::uint64_t stream) {
    // The first gap between pieces that is long enough and not all mapped; else addresses of an own.
    const std::uint64_t page = small ? 2 * mebibyte : settings_.large_segment_size,
                        all = (capacity_ + capacity_ / 8 + page - 1) / page * page;
    std::size_t chosen = 0;
    std::uint64_t begin = unlimited;
    for (; chosen < segments.size(); ++chosen) {
      if (segments[chosen].small != small || segments[chosen].stream != stream) continue;
      begin = gap(segments[chosen], page, size);
      if (begin != unlimited) break;
    }
    if (begin == unlimited) {
      if (all < size) return false;
      segments.push_back({next_number_++, all, stream, 0, small, {}, {}});
      begin = 0;
    }
    PlainSegment& segment = segments[chosen];
    // Page by page, one device call a row of unmapped pages: all of its pages or none.
    for (std::uint64_t at = begin; at < begin + size;) {
      if (segment.mapped(at, page)) {
        at = (at / page + 1) * page;
        continue;
      }
      std::vector<std::uint64_t> row;
      for (; at < begin + size && !segment.mapped(at, page); at = (at / page + 1) * page) row.push_back(at / page);
      if (reserved() + row.size() * page > capacity_) return false;
      segment.pages.insert(row.begin(), row.end());
      ++counts.device_mallocs;
      settle();
    }
    segment.pieces[begin] = {size, requested, id, false};
    return true;
  }
  bool release_oversize(std::uint64_t size, bool small, std::uint64_t stream) {
    if (settings_.max_split_size == unlimited || settings_.expandable_segments) return false;
    const std::uint64_t wanted = std::max(size, settings_.max_split_size);
    std::vector<std::tuple<std::uint64_t, std::uint64_t>> whole;
    for (const PlainSegment& segment : segments) {
      if (segment.small == small && segment.stream == stream && segment.pieces.empty()) whole.emplace_back(segment.size, segment.number);
    }
    std::sort(whole.begin(), whole.end());
    const auto enough = std::find_if(whole.begin(), whole.end(), [&](const auto& one) { return std::get<0>(one) >= wanted; });
    if (enough != whole.end()) {
      release(std::get<1>(*enough));
      return true;
    }
    std::uint64_t total = 0;
    for (auto one = whole.rbegin(); one != whole.rend() && total < wanted && std::get<0>(*one) >= settings_.max_split_size; ++one) {
      total += std::get<0>(*one);
      release(std::get<1>(*one));
    }
    return total >= wanted;
  }
  void release(std::uint64_t number) {
    std::erase_if(segments, [&](const PlainSegment& segment) { return segment.number == number; });
    ++counts.device_frees;
  }
  void collect() {
    const auto threshold = static_cast<std::uint64_t>(settings_.garbage_collection_threshold * static_cast<double>(allowed_));
    if (reserved() <= threshold || settings_.expandable_segments) return;
    const std::uint64_t target = now.reserved - threshold;
    std::uint64_t given = 0;
    while (given < target) {
      std::map<std::uint64_t, std::uint64_t> ages;  // by number
      std::uint64_t sum = 0;
      for (const PlainSegment& segment : segments) {
        if (!segment.small && segment.pieces.empty()) sum += ages[segment.number] = searches_[0] - segment.empty_since;
      }
      if (ages.empty()) return;
      const double mean = static_cast<double>(sum) / static_cast<double>(ages.size());
      for (const auto& [number, age] : ages) {
        if (static_cast<double>(age) < mean) continue;
        for (const PlainSegment& segment : segments) given += segment.number == number ? segment.size : 0;
        release(number);
      }
    }
  }

  Settings settings_;
  std::uint64_t capacity_ = 0, allowed_ = 0, next_number_ = 0, searches_[2] = {0, 0};
  bool limits_ = false, collects_ = false;
  mutable bool touches_ = false;
};

using Row = std::tuple<std::uint64_t, bool, std::uint64_t, std::vector<std::tuple<int, std::uint64_t, std::uint64_t>>>;

// (number, small, bytes, blocks as (id; -1: free; -2 - id: pending, size, requested)), an entry a mapped range.
std::vector<Row> rows(const PlainAllocator& allocator) {
  std::vector<Row> all;
  for (const PlainSegment& segment : allocator.segments) {
    std::map<std::uint64_t, std::tuple<int, std::uint64_t, std::uint64_t>> blocks;
    for (const auto& [offset, piece] : segment.pieces)
      blocks[offset] = {piece.pending ? -2 - piece.id : piece.id, piece.size, piece.requested};
    for (const Range& range : allocator.free_ranges(segment)) blocks[range.begin] = {-1, range.size, 0};
    std::uint64_t end = unlimited;
    for (const auto& [offset, block] : blocks) {
      if (offset != end) all.push_back({segment.number, segment.small, 0, {}});
      end = offset + std::get<1>(block);
      std::get<2>(all.back()) += std::get<1>(block);
      std::get<3>(all.back()).push_back(block);
    }
  }
  return all;
}
std::vector<Row> rows(const CachingAllocator& allocator, const std::map<std::uint32_t, int>& ids) {
  std::vector<Row> all;
  for (const Segment& segment : allocator.segments()) {
    all.push_back({segment.number, segment.small, segment.size, {}});
    for (const SegmentBlock& block : segment.blocks) {
      const int id = block.state == SegmentBlock::State::free ? -1 : ids.at(block.handle.block);
      std::get<3>(all.back()).emplace_back(block.state == SegmentBlock::State::pending ? -2 - id : id, block.size, block.requested);
    }
  }
  return all;
}

std::string settings_of(std::mt19937_64& random) {
  std::string text;
  const auto add = [&](const std::string& setting) { text += (text.empty() ? "" : ",") + setting; };
  const auto one_of = [&](int count) { return random() % static_cast<unsigned>(count) == 0; };
  if (one_of(3)) add("expandable_segments:True");
  if (one_of(3)) add(one_of(2) ? "roundup_power2_divisions:8" : "roundup_power2_divisions:[1:8,4:2,16:4,>:1]");
  if (one_of(3)) add("max_split_size_mb:" + std::to_string(20 + random() % 30));
  if (one_of(4)) add("max_non_split_rounding_mb:25");
  if (one_of(4)) add("large_segment_size_mb:" + std::to_string(11 + random() % 9));
  if (one_of(2)) add("per_process_memory_fraction:0.9");
  if (one_of(2)) add("garbage_collection_threshold:0." + std::to_string(1 + random() % 8));
  return text;
}

TEST(AllocatorProperty, RandomScriptsUnderRandomSettings) {
  std::uint64_t retries = 0, failures = 0, frees = 0;
  for (unsigned seed = 0; seed < 240; ++seed) {
    std::mt19937_64 random(seed);
    const std::string text = settings_of(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + text);
    Result<Settings> settings = parse_settings(text);
    ASSERT_TRUE(settings) << settings.error().message();
    Device device;
    device.capacity = (150 + random() % 800) * mebibyte;
    CachingAllocator allocator(*settings, device);
    PlainAllocator plain(*settings, device);
    std::map<int, Handle> live, pending;
    std::map<std::uint32_t, int> ids;  // by block
    const std::uint64_t streams = 1 + random() % 3;
    std::vector<std::uint64_t> usual;
    for (int i = 0; i < 6; ++i) usual.push_back(1 + random() % (i < 3 ? 3 * mebibyte : 60 * mebibyte));
    const auto take = [&random](std::map<int, Handle>& from) {
      const auto chosen = std::next(from.begin(), static_cast<std::ptrdiff_t>(random() % from.size()));
      const auto result = *chosen;
      from.erase(chosen);
      return result;
    };
    for (int step = 0; step < 300; ++step) {
      const unsigned choice = random() % 100;
      if (choice < 52 || live.empty()) {
        const std::uint64_t size =
            random() % 2 != 0 ? usual[random() % usual.size()] : 1 + random() % (std::uint64_t{1} << (5 + random() % 22));
        const std::uint64_t stream = random() % streams;
        const Outcome outcome = allocator.malloc(size, stream);
        ASSERT_EQ(outcome.kind == Outcome::Kind::ok, plain.malloc(step, size, stream) != 0) << step;
        if (outcome.kind == Outcome::Kind::ok) {
          live[step] = outcome.handle;
          ids[outcome.handle.block] = step;
        }
      } else if (choice < 86) {
        const auto [id, handle] = take(live);
        ASSERT_TRUE(allocator.free(handle));
        ASSERT_FALSE(allocator.free(handle));
        plain.free(id, true, true);
      } else if (choice < 92) {
        const auto [id, handle] = take(live);
        ASSERT_TRUE(allocator.free_requested(handle));
        plain.free(id, true, false);
        pending[id] = handle;
      } else if (choice < 98) {
        if (pending.empty()) continue;
        const auto [id, handle] = take(pending);
        allocator.free_completed(handle);  // or giving back has completed it
        plain.free(id, false, true);
      } else {
        allocator.empty_cache();
        plain.empty_cache();
      }
      ASSERT_EQ(allocator.counters(), plain.now) << step;
      ASSERT_EQ(allocator.peaks(), plain.peaks) << step;
      ASSERT_EQ(allocator.statistics().retries, plain.counts.retries) << step;
      ASSERT_EQ(allocator.statistics().out_of_memory, plain.counts.out_of_memory) << step;
      ASSERT_EQ(allocator.statistics().device_mallocs, plain.counts.device_mallocs) << step;
      ASSERT_EQ(allocator.statistics().device_frees, plain.counts.device_frees) << step;
      if (step % 8 != 0) continue;
      ASSERT_EQ(rows(allocator, ids), rows(plain)) << step;
    }
    ASSERT_FALSE(allocator.exhausted());
    retries += plain.counts.retries;
    failures += plain.counts.out_of_memory;
    frees += plain.counts.device_frees;
  }
  EXPECT_GT(retries, 100U);
  EXPECT_GT(failures, 50U);
  EXPECT_GT(frees, 1000U);
}

}  // namespace
}  // namespace liveset::allocator
