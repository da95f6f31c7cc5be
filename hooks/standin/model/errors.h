// Results of the driver's and the runtime's functions. Both use one numbering; a runtime-only number is marked.
#pragma once

namespace standin {

enum Error : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  missing_configuration = 52,     // runtime
  invalid_symbol = 13,            // runtime
  invalid_memcpy_direction = 21,  // runtime
  invalid_device_function = 98,   // runtime
  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  already_mapped = 208,
  not_mapped = 211,
  invalid_source = 300,
  file_not_found = 301,
  invalid_handle = 400,
  illegal_state = 401,
  not_found = 500,
  not_ready = 600,
  peer_access_already_enabled = 704,
  peer_access_not_enabled = 705,
  primary_context_active = 708,
  context_is_destroyed = 709,
  host_memory_already_registered = 712,
  host_memory_not_registered = 713,
  not_permitted = 800,
  not_supported = 801,
  capture_unsupported = 900,
  capture_invalidated = 901,
  capture_merge = 902,
  capture_unmatched = 903,
  capture_unjoined = 904,
  capture_isolation = 905,
  capture_implicit = 906,
  captured_event = 907,
  capture_wrong_thread = 908,
  graph_update_failure = 910,
  unknown = 999,
};

struct ErrorWords {
  const char* driver_name;
  const char* runtime_name;
  const char* text;
};
// Null when the number is none of the above.
const ErrorWords* words_of(int error);

}  // namespace standin
