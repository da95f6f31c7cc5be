#include "hooks/driver/calls.h"

#include <array>
#include <cstring>

namespace liveset::driver {

constexpr Row rows[row_count] = {
#define LIVESET_ROW(name, shape, base, since, variant, meaning, a, b, c) {#name, base, since, Variant::variant, Meaning::meaning, a, b, c},
    LIVESET_DRIVER_CALLS(LIVESET_ROW)
#undef LIVESET_ROW
};

namespace {

constexpr Word per_thread_stream = 2;                  // flag of cuGetProcAddress
constexpr std::int64_t oldest_asking_runtime = 11030;  // the first with cudaGetDriverEntryPoint

constexpr int compare(const char* a, const char* b) {
  while (*a != 0 && *a == *b) ++a, ++b;
  return static_cast<unsigned char>(*a) - static_cast<unsigned char>(*b);
}

// Row numbers in the order of the names.
constexpr std::array<std::uint8_t, row_count> sorted = [] {
  static_assert(row_count < 256);
  std::array<std::uint8_t, row_count> order{};
  for (int i = 0; i < row_count; ++i) {
    int at = i;
    for (; at > 0 && compare(rows[order[static_cast<unsigned>(at) - 1]].name, rows[i].name) > 0; --at) {
      order[static_cast<unsigned>(at)] = order[static_cast<unsigned>(at) - 1];
    }
    order[static_cast<unsigned>(at)] = static_cast<std::uint8_t>(i);
  }
  return order;
}();

bool stand_alike(const Row& one, const Row& other) {
  return one.meaning == other.meaning && one.a == other.a && one.b == other.b && one.c == other.c;
}

}  // namespace

int row_named(const char* name) {
  int low = 0, high = row_count;
  while (low < high) {
    const int middle = (low + high) / 2;
    const int row = sorted[static_cast<unsigned>(middle)];
    const int order = std::strcmp(rows[row].name, name);
    if (order == 0) return row;
    (order < 0 ? low : high) = order < 0 ? middle + 1 : middle;
  }
  return -1;
}

int row_asked_for(const char* name, std::int64_t version, Word flags) {
  const bool per_thread = (flags & per_thread_stream) != 0;
  int best = -1;
  for (int row = 0; row < row_count; ++row) {
    const Row& each = rows[row];
    if (each.since > version || each.base[0] == 0 || std::strcmp(each.base, name) != 0) continue;
    const bool own_stream = each.variant == Variant::ptsz;
    if (own_stream && !per_thread) continue;
    // Where there is one for the thread's own stream, that is meant; a newer version wins otherwise.
    const bool better = best < 0 || (own_stream != (rows[best].variant == Variant::ptsz) ? own_stream : each.since >= rows[best].since);
    if (better) best = row;
  }
  if (best >= 0) return best;
  const int exact = row_named(name);
  return exact >= 0 && rows[exact].base[0] != 0 && std::strcmp(rows[exact].base, name) != 0 ? exact : -1;
}

int row_asked_for_at_any_version(const char* name, Word flags) {
  constexpr std::int64_t newest = INT32_MAX;
  const int best = row_asked_for(name, newest, flags);
  if (best < 0) return -1;
  for (const Row& each : rows) {
    if (each.since < oldest_asking_runtime || each.base[0] == 0 || std::strcmp(each.base, name) != 0) continue;
    const int then = row_asked_for(name, each.since, flags);
    if (!stand_alike(rows[then], rows[best])) return -1;
  }
  const int first = row_asked_for(name, oldest_asking_runtime, flags);
  return first < 0 || stand_alike(rows[first], rows[best]) ? best : -1;
}

}  // namespace liveset::driver
