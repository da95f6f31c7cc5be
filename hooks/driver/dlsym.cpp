// dlsym, interposed: how the CUDA runtime, shared or linked into a library, reaches the driver.
//
// The real one resolves RTLD_NEXT and RTLD_DEFAULT relative to whoever called it, which it reads from the return address. So every
// look-up that is none of ours is a jump, not a call: the stub below looks at two letters, and leaves everything but "cu..." alone.
// It works before any constructor has run.
#include <dlfcn.h>

#include <cerrno>
#include <cstdint>

#include "hooks/core/old_symbols.h"
#include "hooks/driver/libraries.h"
#include "hooks/driver/wrappers.h"

extern "C" {
extern void* liveset_real_dlsym;
void* liveset_real_dlsym = nullptr;

struct LivesetAnswer {
  void* symbol;
  std::uint64_t is_final;  // 0: ask the real dlsym
};
void* liveset_resolve_dlsym();
LivesetAnswer liveset_find_symbol(void* handle, const char* name, const void* caller);
}

#if defined(__x86_64__)
__asm__(R"(
  .text
  .p2align 4
  .globl dlsym
  .type dlsym, @function
dlsym:
  .cfi_startproc
  endbr64
  cmpb $'c', (%rsi)
  jne 1f
  cmpb $'u', 1(%rsi)
  je 2f
1:
  movq liveset_real_dlsym(%rip), %rax
  testq %rax, %rax
  je 3f
  jmp *%rax
2:
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq 24(%rsp), %rdx
  call liveset_find_symbol
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rdx, %rdx
  je 1b
  ret
3:
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call liveset_resolve_dlsym
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  jmp *%rax
  .cfi_endproc
  .size dlsym, .-dlsym
)");
#elif defined(__aarch64__)
__asm__(R"(
  .text
  .p2align 4
  .globl dlsym
  .type dlsym, %function
dlsym:
  .cfi_startproc
  hint #34
  ldrb w9, [x1]
  cmp w9, #'c'
  b.ne 1f
  ldrb w9, [x1, #1]
  cmp w9, #'u'
  b.eq 2f
1:
  adrp x9, liveset_real_dlsym
  ldr x9, [x9, :lo12:liveset_real_dlsym]
  cbz x9, 3f
  br x9
2:
  stp x29, x30, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  .cfi_offset 29, -32
  .cfi_offset 30, -24
  stp x0, x1, [sp, #16]
  mov x2, x30
  bl liveset_find_symbol
  mov x10, x1
  mov x11, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_adjust_cfa_offset -32
  .cfi_restore 29
  .cfi_restore 30
  cbz x10, 1b
  mov x0, x11
  ret
3:
  stp x29, x30, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  .cfi_offset 29, -32
  .cfi_offset 30, -24
  stp x0, x1, [sp, #16]
  bl liveset_resolve_dlsym
  mov x9, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_adjust_cfa_offset -32
  .cfi_restore 29
  .cfi_restore 30
  br x9
  .cfi_endproc
  .size dlsym, .-dlsym
)");
#else
#error "liveset does not know this processor's calling convention"
#endif

namespace {

#if defined(__x86_64__)
constexpr const char* oldest_version = "GLIBC_2.2.5";
#else
constexpr const char* oldest_version = "GLIBC_2.17";
#endif

void* of_glibc() {
  void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  return found != nullptr ? found : dlvsym(RTLD_NEXT, "dlsym", oldest_version);
}

const char* path_of(const void* code) {
  Dl_info info{};
  return dladdr(code, &info) != 0 ? info.dli_fname : nullptr;
}

const void* base_of(const void* code) {
  Dl_info info{};
  return dladdr(code, &info) != 0 ? info.dli_fbase : nullptr;
}

}  // namespace

// Another preload may hook dlsym too. One behind us is called as if it had been found by the program.
void* liveset_resolve_dlsym() {
  const int error = errno;
  void* found = of_glibc();
  if (found != nullptr) {
    void* next = reinterpret_cast<liveset::driver::Dlsym>(found)(RTLD_NEXT, "dlsym");
    if (next != nullptr) found = next;
    __atomic_store_n(&liveset_real_dlsym, found, __ATOMIC_RELEASE);
  }
  dlerror();  // of a glibc that is older than the newest name
  errno = error;
  return found;
}

namespace liveset::driver {

Dlsym real_dlsym() {
  void* real = __atomic_load_n(&liveset_real_dlsym, __ATOMIC_ACQUIRE);
  return reinterpret_cast<Dlsym>(real != nullptr ? real : liveset_resolve_dlsym());
}

const char* other_dlsym(bool before_us) {
  const auto own = reinterpret_cast<const void*>(&liveset_resolve_dlsym);
  const void* found = before_us ? real_dlsym()(RTLD_DEFAULT, "dlsym") : reinterpret_cast<const void*>(real_dlsym());
  if (base_of(found) == (before_us ? base_of(own) : base_of(of_glibc()))) return nullptr;
  return path_of(found);
}

}  // namespace liveset::driver

LivesetAnswer liveset_find_symbol(void* handle, const char* name, const void* caller) {
  using namespace liveset::driver;
  const int row = row_named(name);
  // RTLD_NEXT is what somebody asks who stands before CUDA as we do; he gets what lies behind him.
  if (row < 0 || handle == RTLD_NEXT || !is_wanted(row)) return {nullptr, 0};
  void* found = handle != RTLD_DEFAULT ? real_dlsym()(handle, name) : exported(row);
  if (found == nullptr) return {nullptr, 1};
  if (found != exported(row)) return {wrap(row, found), 1};
  // The search begins with us, but a program may ask in order to learn whether there is CUDA at all.
  return {is_visible(row, handle == RTLD_DEFAULT ? &library_of(caller) : nullptr) ? found : nullptr, 1};
}
