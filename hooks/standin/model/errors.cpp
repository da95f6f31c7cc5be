#include "hooks/standin/model/errors.h"

#include <algorithm>
#include <iterator>

namespace standin {
namespace {

struct Row {
  int number;
  ErrorWords words;
};

// Sorted by number.
constexpr Row rows[] = {
    {success, {"CUDA_SUCCESS", "cudaSuccess", "no error"}},
    {invalid_value, {"CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue", "invalid argument"}},
    {out_of_memory, {"CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "out of memory"}},
    {not_initialized, {"CUDA_ERROR_NOT_INITIALIZED", "cudaErrorInitializationError", "initialization error"}},
    {invalid_symbol, {"CUDA_ERROR_UNKNOWN", "cudaErrorInvalidSymbol", "invalid device symbol"}},
    {invalid_memcpy_direction, {"CUDA_ERROR_UNKNOWN", "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"}},
    {missing_configuration, {"CUDA_ERROR_UNKNOWN", "cudaErrorMissingConfiguration", "launch without its configuration"}},
    {invalid_device_function, {"CUDA_ERROR_UNKNOWN", "cudaErrorInvalidDeviceFunction", "invalid device function"}},
    {no_device, {"CUDA_ERROR_NO_DEVICE", "cudaErrorNoDevice", "no CUDA-capable device is detected"}},
    {invalid_device, {"CUDA_ERROR_INVALID_DEVICE", "cudaErrorInvalidDevice", "invalid device ordinal"}},
    {invalid_image, {"CUDA_ERROR_INVALID_IMAGE", "cudaErrorInvalidKernelImage", "device kernel image is invalid"}},
    {invalid_context, {"CUDA_ERROR_INVALID_CONTEXT", "cudaErrorDeviceUninitialized", "invalid device context"}},
    {already_mapped, {"CUDA_ERROR_ALREADY_MAPPED", "cudaErrorAlreadyMapped", "already mapped"}},
    {not_mapped, {"CUDA_ERROR_NOT_MAPPED", "cudaErrorNotMapped", "not mapped"}},
    {invalid_source, {"CUDA_ERROR_INVALID_SOURCE", "cudaErrorInvalidSource", "device kernel source is invalid"}},
    {file_not_found, {"CUDA_ERROR_FILE_NOT_FOUND", "cudaErrorFileNotFound", "file not found"}},
    {invalid_handle, {"CUDA_ERROR_INVALID_HANDLE", "cudaErrorInvalidResourceHandle", "invalid resource handle"}},
    {illegal_state, {"CUDA_ERROR_ILLEGAL_STATE", "cudaErrorIllegalState", "not allowed in this state"}},
    {not_found, {"CUDA_ERROR_NOT_FOUND", "cudaErrorSymbolNotFound", "named symbol not found"}},
    {not_ready, {"CUDA_ERROR_NOT_READY", "cudaErrorNotReady", "device not ready"}},
    {peer_access_already_enabled,
     {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"}},
    {peer_access_not_enabled, {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"}},
    {primary_context_active, {"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cudaErrorSetOnActiveProcess", "the device is already in use"}},
    {context_is_destroyed, {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "cudaErrorContextIsDestroyed", "context is destroyed"}},
    {host_memory_already_registered,
     {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "cudaErrorHostMemoryAlreadyRegistered", "host memory is already registered"}},
    {host_memory_not_registered,
     {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "cudaErrorHostMemoryNotRegistered", "host memory is not registered"}},
    {not_permitted, {"CUDA_ERROR_NOT_PERMITTED", "cudaErrorNotPermitted", "operation not permitted"}},
    {not_supported, {"CUDA_ERROR_NOT_SUPPORTED", "cudaErrorNotSupported", "operation not supported"}},
    {capture_unsupported,
     {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"}},
    {capture_invalidated,
     {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "cudaErrorStreamCaptureInvalidated", "the capture failed because of an earlier error"}},
    {capture_merge, {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "cudaErrorStreamCaptureMerge", "would merge two captures"}},
    {capture_unmatched,
     {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "cudaErrorStreamCaptureUnmatched", "the capture was not begun in this stream"}},
    {capture_unjoined,
     {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "cudaErrorStreamCaptureUnjoined", "a stream of the capture was not joined to its origin"}},
    {capture_isolation,
     {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "cudaErrorStreamCaptureIsolation", "would make the capture depend on work outside it"}},
    {capture_implicit,
     {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "cudaErrorStreamCaptureImplicit", "would make the legacy stream depend on a capture"}},
    {captured_event, {"CUDA_ERROR_CAPTURED_EVENT", "cudaErrorCapturedEvent", "the event was recorded in a capture"}},
    {capture_wrong_thread,
     {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "cudaErrorStreamCaptureWrongThread", "the capture was begun by another thread"}},
    {graph_update_failure,
     {"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "cudaErrorGraphExecUpdateFailure", "the graph differs too much for an update"}},
    {unknown, {"CUDA_ERROR_UNKNOWN", "cudaErrorUnknown", "unknown error"}},
};

}  // namespace

const ErrorWords* words_of(int error) {
  const auto* row =
      std::lower_bound(std::begin(rows), std::end(rows), error, [](const Row& left, int number) { return left.number < number; });
  return row != std::end(rows) && row->number == error ? &row->words : nullptr;
}

}  // namespace standin
