// What makes a dry run's numbers estimates: counted, with the Python stack of the first time, and said in the trace as attributes
// `standin.estimate` at the counts 1, 2, 4, ... and at the end (the last of one kind holds). Also the rest of interface.h.
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "hooks/api/liveset.h"
#include "hooks/standin/driver/python_stack.h"
#include "hooks/standin/driver/state.h"

using namespace standin;

namespace {

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (char letter : text) {
    if (letter == '"' || letter == '\\') result += '\\';
    if (static_cast<unsigned char>(letter) < 0x20)
      result += ' ';
    else
      result += letter;
  }
  return result + '"';
}

std::string list_of(const std::vector<std::string>& items) {
  std::string result = "[";
  for (const auto& item : items) result += (result.size() > 1 ? "," : "") + quoted(item);
  return result + "]";
}

struct Occurrence {
  std::uint64_t count = 0;
  std::uint64_t said = 0;
  std::vector<std::string> first;
};
using Key = std::pair<std::string, std::string>;  // what, detail

struct Estimates {
  std::mutex mutex;
  std::map<Key, Occurrence, std::less<>> occurrences;
  std::vector<LivesetStandinStubs*> libraries;
};
// Lives as long as the process: libraries call until its very end.
Estimates& estimates() {
  static auto* all = new Estimates;
  return *all;
}

void say(const Key& key, const Occurrence& occurrence) {
  const auto json = "{\"what\":" + quoted(key.first) + ",\"detail\":" + (key.second.empty() ? "null" : quoted(key.second)) +
                    ",\"count\":" + std::to_string(occurrence.count) + ",\"first\":" + list_of(occurrence.first) + "}";
  liveset_attribute("standin.estimate", json.c_str());
}

// Set while a thread says something: what the recorder does on its behalf is not the job's.
thread_local bool is_saying;

void count(const char* what, std::string detail, std::uint64_t times, bool may_wait_for_python) {
  if (is_saying) return;
  auto& all = estimates();
  Key key{what, std::move(detail)};
  Occurrence now;
  bool is_first = false;
  {
    std::lock_guard lock(all.mutex);
    auto& occurrence = all.occurrences[key];
    is_first = occurrence.count == 0;
    occurrence.count += times;
    if (!is_first && !std::has_single_bit(occurrence.count)) return;
    occurrence.said = occurrence.count;
    now = occurrence;
  }
  is_saying = true;
  if (is_first) {
    now.first = python_stack(may_wait_for_python);
    std::lock_guard lock(all.mutex);
    all.occurrences[key].first = now.first;
  }
  say(key, now);
  is_saying = false;
}

// Other threads may still run, and a child of fork may have inherited the lock from a thread that it has not: it is not waited for.
void say_the_rest() {
  auto& all = estimates();
  std::unique_lock lock(all.mutex, std::try_to_lock);
  if (!lock) return;
  for (const auto* library : all.libraries)
    for (std::uint32_t i = 0; i < library->count; ++i) {
      if (__atomic_load_n(&library->calls[i], __ATOMIC_RELAXED) == 0) continue;
      auto found = all.occurrences.find(Key{"unknown_function", std::string(library->library) + " " + library->names[i]});
      if (found != all.occurrences.end()) found->second.count = __atomic_load_n(&library->calls[i], __ATOMIC_RELAXED);
    }
  std::vector<std::pair<Key, Occurrence>> rest;
  for (const auto& [key, occurrence] : all.occurrences)
    if (occurrence.count > occurrence.said) rest.emplace_back(key, occurrence);
  lock.unlock();
  for (const auto& [key, occurrence] : rest) say(key, occurrence);
}
__attribute__((destructor)) void at_exit() { say_the_rest(); }

}  // namespace

namespace standin {

void announce_device() {
  static std::atomic<bool> done{false};
  const auto* facts = configuration();
  if (facts == nullptr || done.exchange(true)) return;
  std::vector<std::string> assumed;
  auto list = facts->values.find("assumed");
  for (std::string_view rest = list == facts->values.end() ? std::string_view{} : list->second; !rest.empty();) {
    auto end = std::min(rest.find(','), rest.size());
    assumed.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  constexpr const char* backings[] = {"none", "small", "all"};
  const auto json = "{\"gpu\":" + quoted(facts->gpu) + ",\"name\":" + quoted(facts->name) +
                    ",\"capability\":" + std::to_string(facts->capability) + ",\"memory_bytes\":" + std::to_string(facts->memory_bytes) +
                    ",\"context_bytes\":" + std::to_string(facts->context_bytes) + ",\"devices\":" + std::to_string(facts->devices) +
                    ",\"world\":" + std::to_string(facts->world) + ",\"backing\":" + quoted(backings[static_cast<int>(facts->backing)]) +
                    ",\"assumed\":" + list_of(assumed) + "}";
  liveset_attribute("standin.device", json.c_str());
  if (facts->is_assumed("context_bytes")) liveset_standin_estimate("context_bytes", nullptr);
}

}  // namespace standin

#define SISTER extern "C" __attribute__((visibility("default")))

SISTER void liveset_standin_register(LivesetStandinStubs* stubs) {
  auto& all = estimates();
  std::lock_guard lock(all.mutex);
  all.libraries.push_back(stubs);
}

SISTER void liveset_standin_unknown(const LivesetStandinStubs* stubs, std::uint32_t function) {
  count("unknown_function", std::string(stubs->library) + " " + stubs->names[function], 1, false);
}

SISTER void liveset_standin_estimate(const char* what, const char* detail) {
  const bool may_wait = std::strcmp(what, "device_value_read") == 0 || std::strcmp(what, "dynamic_shape") == 0;
  count(what, detail ? detail : "", 1, may_wait);
}

SISTER std::int64_t liveset_standin_number(const char* key, std::int64_t absent) {
  return configuration() ? configuration()->number(key, absent) : absent;
}

SISTER int liveset_standin_device() {
  auto place = here();
  return place.error == success ? place.device() : 0;
}

SISTER void liveset_standin_forget(void* address, std::size_t bytes) {
  if (auto* all = machine()) all->memory.forget(reinterpret_cast<Address>(address), bytes);
}

SISTER void liveset_standin_copy(void* to, const void* from, std::size_t bytes) {
  if (auto* all = machine()) all->memory.copy(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes);
}

SISTER std::uint64_t liveset_standin_used(int device) {
  auto place = at_device(device);
  return place.error == success ? place.machine->memory.used(device) : 0;
}

SISTER void* liveset_standin_variable(std::size_t bytes) {
  auto* all = machine();
  if (all == nullptr || bytes == 0) return nullptr;
  Address address = 0;
  (void)all->memory.allocate_uncounted(0, bytes, Kind::device, &address);
  return reinterpret_cast<void*>(address);
}
