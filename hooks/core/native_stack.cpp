#include "hooks/core/native_stack.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "hooks/core/lock.h"
#include "hooks/core/old_symbols.h"
#include "hooks/core/recorder.h"
#include "hooks/core/stacks.h"

// The first and the last byte of this library.
extern "C" const char liveset_begin __asm__("__ehdr_start") __attribute__((visibility("hidden")));
extern "C" const char liveset_end __asm__("_end") __attribute__((visibility("hidden")));

namespace liveset::core {
namespace {

constexpr std::uint32_t most_native_frames = 64;

// Of libgcc; see its unwind.h.
struct Unwinder {
  int (*walk)(int (*visit)(void* context, void* walk), void* walk);
  std::uintptr_t (*place)(void* context);
};
Unwinder unwinder;
std::atomic<int> state{0};  // 0: not looked for, 1: found, 2: there is none
std::uint32_t no_unwinder = 0;

bool find_unwinder() {
  int now = state.load(std::memory_order_acquire);
  if (now == 0) {
    const int error = errno;
    if (void* library = dlopen("libgcc_s.so.1", RTLD_NOLOAD | RTLD_LAZY)) {  // stays open: the place of its code must not change
      unwinder.walk = reinterpret_cast<decltype(unwinder.walk)>(dlsym(library, "_Unwind_Backtrace"));
      unwinder.place = reinterpret_cast<decltype(unwinder.place)>(dlsym(library, "_Unwind_GetIP"));
    }
    now = unwinder.walk != nullptr && unwinder.place != nullptr ? 1 : 2;
    state.store(now, std::memory_order_release);
    errno = error;
  }
  return now == 1;
}

// ---- From an address to a frame

// Address << 16 | frame, in one word, so that readers need no lock. Emptied when libraries were unloaded, and when it is full.
constexpr std::uint32_t slots = 1U << 16;
std::atomic<std::uint64_t> known[slots];
std::uint32_t used = 0;
std::atomic<std::uint64_t> unloaded{0};  // libraries, when the table was last emptied
SpinLock table_lock;

std::uint32_t slot_of(std::uint64_t address) { return static_cast<std::uint32_t>((address * 0x9e3779b97f4a7c15U) >> 48) & (slots - 1); }

std::uint32_t find(std::uint64_t address) {
  for (std::uint32_t i = slot_of(address);; i = (i + 1) & (slots - 1)) {
    const std::uint64_t word = known[i].load(std::memory_order_acquire);
    if (word == 0) return 0;
    if (word >> 16 == address) return static_cast<std::uint32_t>(word & 0xffff);
  }
}

void clear() {
  for (std::atomic<std::uint64_t>& word : known) word.store(0, std::memory_order_relaxed);
  used = 0;
}

void learn(std::uint64_t address, std::uint32_t frame) {
  if (address >> 48 != 0 || frame > 0xffff) return;
  const LockGuard guard(table_lock);
  if (used >= slots / 4 * 3) clear();
  std::uint32_t i = slot_of(address);
  while (known[i].load(std::memory_order_relaxed) != 0 && known[i].load(std::memory_order_relaxed) >> 16 != address)
    i = (i + 1) & (slots - 1);
  used += known[i].load(std::memory_order_relaxed) == 0 ? 1 : 0;
  known[i].store(address << 16 | frame, std::memory_order_release);
}

// An address in a library that took another's place must not get the other's name.
void forget_unloaded() {
  std::uint64_t now = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uint64_t*>(out) = info->dlpi_subs;
        return 1;
      },
      &now);
  if (unloaded.load(std::memory_order_relaxed) == now) return;
  const LockGuard guard(table_lock);
  clear();
  unloaded.store(now, std::memory_order_relaxed);
}

struct Search {
  std::uint64_t address;
  bool found = false;
  std::uint64_t begin = 0, end = 0, bias = 0;  // of the file in memory
  char file[1024] = {};
  char build_id[2 * 20 + 1] = {};
};

void read_build_id(const dl_phdr_info& info, Search& search) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info.dlpi_addr + header.p_vaddr);
    const char* end = at + header.p_memsz;
    while (static_cast<std::size_t>(end - at) >= sizeof(ElfW(Nhdr))) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const std::size_t name_bytes = (note->n_namesz + 3U) & ~3U, text_bytes = (note->n_descsz + 3U) & ~3U;
      const char* name = at + sizeof *note;
      if (name_bytes > static_cast<std::size_t>(end - name) || text_bytes > static_cast<std::size_t>(end - name) - name_bytes) return;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0 && note->n_descsz <= 20) {
        for (std::uint32_t byte = 0; byte < note->n_descsz; ++byte) {
          const auto bits = static_cast<unsigned char>(name[name_bytes + byte]);
          search.build_id[2 * byte] = "0123456789abcdef"[bits >> 4];
          search.build_id[2 * byte + 1] = "0123456789abcdef"[bits & 15];
        }
        return;
      }
      at = name + name_bytes + text_bytes;
    }
  }
}

int look_into(dl_phdr_info* info, std::size_t, void* out) {
  auto& search = *static_cast<Search*>(out);
  std::uint64_t begin = ~std::uint64_t{0}, end = 0;
  bool holds = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    const std::uint64_t from = info->dlpi_addr + header.p_vaddr, to = from + header.p_memsz;
    holds |= search.address >= from && search.address < to;
    begin = from < begin ? from : begin;
    end = to > end ? to : end;
  }
  if (!holds) return 0;
  search.found = true;
  search.begin = begin;
  search.end = end;
  search.bias = info->dlpi_addr;
  if (info->dlpi_name != nullptr && info->dlpi_name[0] != '\0') {
    std::strncpy(search.file, info->dlpi_name, sizeof search.file - 1);
  } else {
    const ssize_t length = readlink("/proc/self/exe", search.file, sizeof search.file - 1);
    search.file[length > 0 ? length : 0] = '\0';
  }
  read_build_id(*info, search);
  return 1;
}

std::uint32_t text_id(const char* text) { return intern_string(text, static_cast<std::uint32_t>(std::strlen(text))); }

// 0: the dictionary is full.
std::uint32_t frame_at(std::uint64_t address) {
  std::uint32_t frame = find(address);
  if (frame != 0) return frame;
  Search search{address};
  dl_iterate_phdr(look_into, &search);
  if (search.found) {
    const std::uint32_t file = text_id(search.file);
    frame = file != 0 ? intern_native_frame(file, search.build_id[0] != '\0' ? text_id(search.build_id) : 0, address - search.bias) : 0;
  } else {
    frame = intern_native_frame(text_id("(code in no file)"), 0, 0);  // made at run time
  }
  if (frame != 0) learn(address, frame);
  return frame;
}

// The file in memory that code lies in; looked for once for each `stop`, of which there is one.
struct Range {
  std::atomic<std::uint64_t> begin{0}, end{0};
};
Range stop_range;

bool stops_at(std::uint64_t address, std::uint64_t stop) {
  if (stop == 0) return false;
  if (stop_range.end.load(std::memory_order_acquire) == 0) {
    Search search{stop};
    dl_iterate_phdr(look_into, &search);
    stop_range.begin.store(search.begin, std::memory_order_relaxed);
    stop_range.end.store(search.found ? search.end : 1, std::memory_order_release);
  }
  return address >= stop_range.begin.load(std::memory_order_relaxed) && address < stop_range.end.load(std::memory_order_relaxed);
}

struct Walk {
  std::uint64_t stop = 0;
  std::uint32_t count = 0;
  bool cut = false;
  std::uint64_t places[most_native_frames];
};

int visit(void* context, void* out) {
  constexpr int go_on = 0, end = 5;  // _URC_NO_REASON, _URC_END_OF_STACK
  auto& walk = *static_cast<Walk*>(out);
  const std::uint64_t place = unwinder.place(context);
  if (place == 0) return end;
  const std::uint64_t address = place - 1;  // in the call, not behind it
  if (address >= reinterpret_cast<std::uint64_t>(&liveset_begin) && address < reinterpret_cast<std::uint64_t>(&liveset_end)) return go_on;
  if (stops_at(address, walk.stop)) return end;
  if (walk.count == most_native_frames) {
    walk.cut = true;
    return end;
  }
  walk.places[walk.count++] = address;
  return go_on;
}

}  // namespace

std::uint32_t native_stack(std::uint32_t root, std::uint64_t stop) {
  if (!find_unwinder()) return root != 0 ? root : intern_reason(no_unwinder, "the program has no unwinder (libgcc_s)");
  static std::uint32_t cut_off = 0;
  const int error = errno;
  forget_unloaded();
  Walk walk;
  walk.stop = stop;
  unwinder.walk(visit, &walk);
  std::uint32_t stack = walk.cut && root == 0 ? intern_reason(cut_off, "deeper than 64 native frames") : root;
  for (std::uint32_t i = walk.count; i-- != 0;) {
    const std::uint32_t frame = frame_at(walk.places[i]);
    stack = frame != 0 ? intern_stack(stack, frame) : 0;
    if (stack == 0) break;
  }
  errno = error;
  return stack;
}

}  // namespace liveset::core
