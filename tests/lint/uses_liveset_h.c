/* Calls every inline function of liveset.h once, so that each standard compiles their bodies. Compiled, not run. */
#include "hooks/api/liveset.h"

int use_all(const void* block);
int use_all(const void* block) {
  liveset_heap heap = liveset_heap_open("cpu/arena", LIVESET_CPU, 0);
  liveset_value value = liveset_value_open("h0", NULL, -1);
  liveset_alloc(heap, block, 8, 0);
  liveset_segment_alloc(heap, block, 8);
  liveset_counter(heap, "fragments", 1);
  liveset_scope_begin(LIVESET_STEP, NULL, 0);
  liveset_attribute("rows", "[0,1]");
  liveset_value_event(LIVESET_CREATE, value, heap, block, 8, NULL, 0, -1);
  liveset_scope_end(LIVESET_STEP);
  liveset_segment_free(heap, block, 8);
  liveset_free(heap, block);
  return liveset_recording();
}
