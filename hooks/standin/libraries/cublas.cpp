// cuBLAS: a handle with its settings. Products change values only, so the generated bodies do for them. PyTorch brings its own
// workspace; what a handle allocates for itself on a real GPU is not modelled and said to be so.
#include "hooks/standin/libraries/library.h"

namespace {

struct Handle {
  int math_mode;
  int pointer_mode;
  int atomics_mode;
  int multiprocessors;
  void* stream;
};

}  // namespace

using namespace standin;

extern "C" {

int cublasCreate_v2(Handle** handle) {
  liveset_standin_estimate("library_memory", "cuBLAS handle");
  return create(handle);
}

int cublasGetVersion_v2(Handle*, int* version) { return answer_release(10000, version); }
int cublasGetProperty(int property, int* value) { return answer_property(property, value); }
std::size_t cublasGetCudartVersion() { return runtime_version(); }

int cublasSetStream_v2(Handle* handle, void* stream) {
  if (!handle) return bad_handle;
  handle->stream = stream;
  return success;
}
int cublasGetStream_v2(Handle* handle, void** stream) {
  if (!handle) return bad_handle;
  answer(stream, handle->stream);
  return success;
}

int cublasSetMathMode(Handle* handle, int mode) {
  if (!handle) return bad_handle;
  handle->math_mode = mode;
  return success;
}
int cublasGetMathMode(Handle* handle, int* mode) {
  if (!handle) return bad_handle;
  answer(mode, handle->math_mode);
  return success;
}

int cublasSetPointerMode_v2(Handle* handle, int mode) {
  if (!handle) return bad_handle;
  handle->pointer_mode = mode;
  return success;
}
int cublasGetPointerMode_v2(Handle* handle, int* mode) {
  if (!handle) return bad_handle;
  answer(mode, handle->pointer_mode);
  return success;
}

int cublasSetAtomicsMode(Handle* handle, int mode) {
  if (!handle) return bad_handle;
  handle->atomics_mode = mode;
  return success;
}
int cublasGetAtomicsMode(Handle* handle, int* mode) {
  if (!handle) return bad_handle;
  answer(mode, handle->atomics_mode);
  return success;
}

int cublasSetSmCountTarget(Handle* handle, int multiprocessors) {
  if (!handle) return bad_handle;
  handle->multiprocessors = multiprocessors;
  return success;
}
int cublasGetSmCountTarget(Handle* handle, int* multiprocessors) {
  if (!handle) return bad_handle;
  answer(multiprocessors, handle->multiprocessors);
  return success;
}

const char* cublasGetStatusName(int status) { return status == success ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_INITIALIZED"; }
const char* cublasGetStatusString(int status) { return status == success ? "success" : "the stand-in cuBLAS was given no handle"; }

}  // extern "C"
