// How the functions that programs call are defined.
#pragma once

#define STANDIN_EXPORT extern "C" __attribute__((visibility("default")))

// A function with a stream, and its twin whose stream 0 is the calling thread's. `twin_arguments` are the function's arguments with
// the stream put through own_stream().
#define STANDIN_STREAM_FUNCTION(name, parameters, twin_arguments)           \
  STANDIN_EXPORT int name parameters;                                       \
  STANDIN_EXPORT int name##_ptsz parameters { return name twin_arguments; } \
  STANDIN_EXPORT int name parameters
