/* liveset.h: tell liveset what a program's own allocator and training loop do. C99 and C++, one include, nothing to link.
 *
 * Every call is an inline test of one pointer when nothing records (the program was not started under `liveset run`).
 * Calls never fail, never block for more than 10 ms, never write to stdout or stderr, and may come from any thread.
 *
 * Units: bytes everywhere. Pointers are addresses only; nothing is dereferenced. Strings are copied (at most 4,095 bytes of
 * each) and may be freed after the call.
 *
 * Order: report an allocation after it was made and a free before it is done, so that no other thread can be seen using
 * an address that is still reported live.
 *
 * Version: LIVESET_API_VERSION is the version of this file; the recorder serves every older one. Functions are only added, at the end.
 */
#ifndef LIVESET_H
#define LIVESET_H

#include <stddef.h>
#include <stdint.h>

#define LIVESET_API_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of c10::DeviceType. */
enum liveset_device { LIVESET_CPU = 0, LIVESET_CUDA = 1 };
enum liveset_phase {
  LIVESET_OTHER = 0,
  LIVESET_FORWARD = 1,
  LIVESET_LOSS = 2,
  LIVESET_BACKWARD = 3,
  LIVESET_RECOMPUTE = 4,
  LIVESET_OPTIMIZER = 5
};
enum liveset_scope {
  LIVESET_STEP = 1,       /* number: the step's index */
  LIVESET_MICROBATCH = 2, /* number: the microbatch's index */
  LIVESET_PHASE = 3,      /* number: enum liveset_phase */
  LIVESET_MODULE = 4,     /* name */
  LIVESET_OP = 5,         /* name */
  LIVESET_REGION = 6      /* name */
};
/* What happens to a value; see liveset_value_event. */
enum liveset_value_kind {
  LIVESET_CREATE = 64,  /* first made; bytes and reads stated */
  LIVESET_RETAIN = 65,  /* decided: kept for backward */
  LIVESET_DROP = 66,    /* decided: given up now, to be made again later */
  LIVESET_USE = 67,     /* `reads` are read; value is the one that the operation belongs to */
  LIVESET_REMAKE = 68,  /* a dropped value is made again: next incarnation */
  LIVESET_MERGE = 69,   /* made again although still kept: counted once */
  LIVESET_RELEASE = 70, /* backward needs it no more */
  LIVESET_ALIAS = 71,   /* shares the storage of reads[0] */
  LIVESET_OFFLOAD = 72, /* leaves its device, stays retained */
  LIVESET_PREFETCH = 73 /* comes back */
};

typedef uint32_t liveset_heap;  /* an allocator's arena; 0 = none, calls with it are ignored */
typedef uint32_t liveset_value; /* a named value; 0 = none, calls with it are ignored */

/* The recorder's functions. Programs call the inline functions below instead. */
typedef struct liveset_api {
  uint32_t version;                   /* of the recorder */
  uint32_t size;                      /* sizeof of the recorder's struct: entries beyond it do not exist */
  const volatile uint32_t* recording; /* 0: off, calls would do nothing */
  liveset_heap (*heap)(const char* name, int device_type, int device_index);
  void (*alloc)(liveset_heap heap, uint64_t address, uint64_t bytes, uint64_t stream);
  void (*free)(liveset_heap heap, uint64_t address);
  void (*segment)(liveset_heap heap, uint64_t address, uint64_t bytes, int is_free);
  void (*counter)(liveset_heap heap, const char* name, int64_t number);
  void (*scope_begin)(int kind, const char* name, int64_t number);
  void (*scope_end)(int kind);
  void (*attribute)(const char* key, const char* json);
  liveset_value (*value)(const char* name, const char* group, int64_t layer);
  void (*value_event)(int kind, liveset_value value, liveset_heap heap, uint64_t address, uint64_t bytes, const liveset_value* reads,
                      uint32_t read_count, int64_t number);
} liveset_api;

/* Weak, so that a program needs no -ldl even where dlsym is not in libc; then nothing records. */
extern void* dlsym(void* handle, const char* name) __attribute__((weak));

static const liveset_api liveset_no_api_ = {0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};

/* The recorder's table, or NULL when this process is not recorded. Looked up once per translation unit. */
static inline const liveset_api* liveset_get(void) {
  static const liveset_api* table = NULL;
  const liveset_api* api = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
  if (__builtin_expect(api == NULL, 0)) {
    api = dlsym != NULL ? (const liveset_api*)dlsym((void*)0, "liveset_api_v1") : NULL;
    if (api == NULL) api = &liveset_no_api_;
    __atomic_store_n(&table, api, __ATOMIC_RELEASE);
  }
  return api->recording != NULL && *api->recording != 0 ? api : NULL;
}

/* 1 when this process is being recorded now: use it to skip the making of names. */
static inline int liveset_recording(void) { return liveset_get() != NULL; }

/* Opens (or finds again, by name) the arena of an allocator. `name` as people shall read it: "cpu/arena", "cuda:0/pool". */
static inline liveset_heap liveset_heap_open(const char* name, int device_type, int device_index) {
  const liveset_api* api = liveset_get();
  return api ? api->heap(name, device_type, device_index) : 0;
}

/* After `bytes` bytes were allocated at `address`. `stream`: the CUDA stream handle, 0 for none. */
static inline void liveset_alloc(liveset_heap heap, const void* address, size_t bytes, uint64_t stream) {
  const liveset_api* api = liveset_get();
  if (api && heap) api->alloc(heap, (uint64_t)(uintptr_t)address, bytes, stream);
}

/* Before the block at `address` is freed. */
static inline void liveset_free(liveset_heap heap, const void* address) {
  const liveset_api* api = liveset_get();
  if (api && heap) api->free(heap, (uint64_t)(uintptr_t)address);
}

/* The allocator took a segment from the system (after), or gives it back (before). */
static inline void liveset_segment_alloc(liveset_heap heap, const void* address, size_t bytes) {
  const liveset_api* api = liveset_get();
  if (api && heap) api->segment(heap, (uint64_t)(uintptr_t)address, bytes, 0);
}
static inline void liveset_segment_free(liveset_heap heap, const void* address, size_t bytes) {
  const liveset_api* api = liveset_get();
  if (api && heap) api->segment(heap, (uint64_t)(uintptr_t)address, bytes, 1);
}

/* A counter's value, of a heap or (heap 0) of the process. */
static inline void liveset_counter(liveset_heap heap, const char* name, int64_t number) {
  const liveset_api* api = liveset_get();
  if (api) api->counter(heap, name, number);
}

/* Scopes of the calling thread. They nest per kind group: step > microbatch; module, op and region in one stack; a phase lasts
 * until its end, which restores the one before. `name` or `number` as enum liveset_scope says; the other is ignored. */
static inline void liveset_scope_begin(int kind, const char* name, int64_t number) {
  const liveset_api* api = liveset_get();
  if (api) api->scope_begin(kind, name, number);
}
static inline void liveset_scope_end(int kind) {
  const liveset_api* api = liveset_get();
  if (api) api->scope_end(kind);
}

/* Says `key` = `json` (a JSON text: 31, "query", [0,1]) of the innermost module, op or region of the calling thread. */
static inline void liveset_attribute(const char* key, const char* json) {
  const liveset_api* api = liveset_get();
  if (api) api->attribute(key, json);
}

/* Names a logical value. The same (name, group, layer) gives the same handle. `group` may be NULL; `layer` is the index of the
 * operation that makes it, -1 when there is none. */
static inline liveset_value liveset_value_open(const char* name, const char* group, int64_t layer) {
  const liveset_api* api = liveset_get();
  return api ? api->value(name, group, layer) : 0;
}

/* Something happens to `value`. `heap` and `address`: its storage, 0 when not stated. `bytes`: its size (create, remake,
 * merge; otherwise 0). `reads`: the values that the operation reads. `number`: the layer that a use belongs to, -1 when that is
 * the value's own. */
static inline void liveset_value_event(int kind, liveset_value value, liveset_heap heap, const void* address, size_t bytes,
                                       const liveset_value* reads, uint32_t read_count, int64_t number) {
  const liveset_api* api = liveset_get();
  if (api && value) api->value_event(kind, value, heap, (uint64_t)(uintptr_t)address, bytes, reads, read_count, number);
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* LIVESET_H */
