// At the end of a process whose torch never reported a block: can it be interposed at all?
//
// libc10 calls its reporting functions through its PLT, and so finds ours first. A build with -Bsymbolic (or with
// hidden symbols) calls its own directly: then nothing of it ever reaches us, which must be said, and only said where
// it is so. A libc10 that can be interposed has a relocation against the function's name; looking for it needs no
// allocation and no call of torch.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstring>

#include "hooks/c10/memory_reports.h"
#include "hooks/core/old_symbols.h"
#include "hooks/core/recorder.h"

namespace liveset::c10_hook {
namespace {

constexpr const char* question = "_ZN3c1022memoryProfilingEnabledEv";

#if defined(__LP64__)
constexpr unsigned symbol_shift = 32;
#else
constexpr unsigned symbol_shift = 8;
#endif

struct Tables {
  const char* names = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  const ElfW(Rela) * plt = nullptr;
  const ElfW(Rela) * data = nullptr;
  std::size_t plt_bytes = 0, data_bytes = 0;
};

Tables tables_of(const link_map* library) {
  Tables tables;
  for (const ElfW(Dyn)* entry = library->l_ld; entry->d_tag != DT_NULL; ++entry) {
    // glibc makes the pointers absolute on most machines, on some it leaves them relative to the library.
    const auto address = entry->d_un.d_ptr < library->l_addr ? entry->d_un.d_ptr + library->l_addr : entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_STRTAB: tables.names = reinterpret_cast<const char*>(address); break;
      case DT_SYMTAB: tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address); break;
      case DT_JMPREL: tables.plt = reinterpret_cast<const ElfW(Rela)*>(address); break;
      case DT_RELA: tables.data = reinterpret_cast<const ElfW(Rela)*>(address); break;
      case DT_PLTRELSZ: tables.plt_bytes = entry->d_un.d_val; break;
      case DT_RELASZ: tables.data_bytes = entry->d_un.d_val; break;
      default: break;
    }
  }
  return tables;
}

bool names_it(const Tables& tables, const ElfW(Rela) * relocations, std::size_t bytes) {
  for (std::size_t i = 0; relocations != nullptr && i < bytes / sizeof *relocations; ++i) {
    const auto symbol = relocations[i].r_info >> symbol_shift;
    if (symbol != 0 && std::strcmp(tables.names + tables.symbols[symbol].st_name, question) == 0) return true;
  }
  return false;
}

bool can_be_interposed(const link_map* library) {
  const Tables tables = tables_of(library);
  if (tables.names == nullptr || tables.symbols == nullptr) return true;  // not a library that we understand: say nothing
  return names_it(tables, tables.plt, tables.plt_bytes) || names_it(tables, tables.data, tables.data_bytes);
}

__attribute__((destructor)) void say_when_blind() {
  if (any_report()) return;
  void* library = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return;
  // dlopen returns its link_map with glibc; the check by dlinfo would need a symbol that old systems have elsewhere.
  if (!can_be_interposed(static_cast<const link_map*>(library)) && core::recording()) {
    constexpr char message[] =
        "liveset: this torch cannot be interposed (its libc10.so was linked with -Bsymbolic): its blocks are not in "
        "the trace\n";
    const ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
    static_cast<void>(written);
  }
  dlclose(library);
}

}  // namespace
}  // namespace liveset::c10_hook
