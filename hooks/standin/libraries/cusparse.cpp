// cuSPARSE: sparse matrices that know their size, and the two functions whose answer is the number of non-zeros of a result. That number
// depends on values, which a dry run has not: it is answered as 0 and counted as a dynamic shape. Buffers are answered as 0 by the
// generated bodies.
#include "hooks/standin/libraries/library.h"

using namespace standin;

namespace {

constexpr int invalid_value = 3;

struct Handle {
  void* stream;
  int pointer_mode;
};

// Of the format only what a caller can ask for again.
struct Matrix {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t nonzeros;
  void* values;
};

int create_matrix(Matrix** matrix, std::int64_t rows, std::int64_t columns, std::int64_t nonzeros, void* values) {
  if (const int status = create(matrix)) return status;
  **matrix = {rows, columns, nonzeros, values};
  return success;
}

}  // namespace

extern "C" {

int cusparseCreate(Handle** handle) { return create(handle); }
int cusparseGetVersion(Handle*, int* version) { return answer_release(1000, version); }
int cusparseGetProperty(int property, int* value) { return answer_property(property, value); }
int cusparseSetStream(Handle* handle, void* stream) {
  if (!handle) return bad_handle;
  handle->stream = stream;
  return success;
}
int cusparseGetStream(Handle* handle, void** stream) {
  if (!handle) return bad_handle;
  answer(stream, handle->stream);
  return success;
}
int cusparseSetPointerMode(Handle* handle, int mode) {
  if (!handle) return bad_handle;
  handle->pointer_mode = mode;
  return success;
}
int cusparseGetPointerMode(Handle* handle, int* mode) {
  if (!handle) return bad_handle;
  answer(mode, handle->pointer_mode);
  return success;
}
const char* cusparseGetErrorName(int status) { return status == success ? "CUSPARSE_STATUS_SUCCESS" : "CUSPARSE_STATUS_INVALID_VALUE"; }
const char* cusparseGetErrorString(int status) { return status == success ? "success" : "invalid value (stand-in cuSPARSE)"; }

int cusparseCreateCsr(Matrix** matrix, std::int64_t rows, std::int64_t columns, std::int64_t nonzeros, void*, void*, void* values, int, int,
                      int, int) {
  return create_matrix(matrix, rows, columns, nonzeros, values);
}
int cusparseCreateConstCsr(Matrix** matrix, std::int64_t rows, std::int64_t columns, std::int64_t nonzeros, void*, void*, void* values, int,
                           int, int, int) {
  return create_matrix(matrix, rows, columns, nonzeros, values);
}
int cusparseCreateCsc(Matrix** matrix, std::int64_t rows, std::int64_t columns, std::int64_t nonzeros, void*, void*, void* values, int, int,
                      int, int) {
  return create_matrix(matrix, rows, columns, nonzeros, values);
}
int cusparseCreateCoo(Matrix** matrix, std::int64_t rows, std::int64_t columns, std::int64_t nonzeros, void*, void*, void* values, int, int,
                      int) {
  return create_matrix(matrix, rows, columns, nonzeros, values);
}
int cusparseCreateConstCoo(Matrix** matrix, std::int64_t rows, std::int64_t columns, std::int64_t nonzeros, void*, void*, void* values, int,
                           int, int) {
  return create_matrix(matrix, rows, columns, nonzeros, values);
}
int cusparseSpMatGetSize(const Matrix* matrix, std::int64_t* rows, std::int64_t* columns, std::int64_t* nonzeros) {
  if (!matrix) return invalid_value;
  answer(rows, matrix->rows);
  answer(columns, matrix->columns);
  answer(nonzeros, matrix->nonzeros);
  return success;
}
int cusparseSpMatGetValues(const Matrix* matrix, void** values) {
  if (!matrix) return invalid_value;
  answer(values, matrix->values);
  return success;
}
int cusparseSpMatSetValues(Matrix* matrix, void* values) {
  if (!matrix) return invalid_value;
  matrix->values = values;
  return success;
}

// Products and sums of two sparse matrices.
int cusparseSpGEMM_compute(Handle*, int, int, const void*, const Matrix*, const Matrix*, const void*, Matrix* result, int, int, void*,
                           std::size_t* bytes, void*) {
  liveset_standin_estimate("dynamic_shape", "cusparseSpGEMM_compute: non-zeros of a product");
  if (!result) return invalid_value;
  result->nonzeros = 0;
  answer(bytes, 0);
  return success;
}
int cusparseXcsrgeam2Nnz(Handle*, int, int, const void*, int, const void*, const void*, const void*, int, const void*, const void*,
                         const void*, void*, int* nonzeros, void*) {
  liveset_standin_estimate("dynamic_shape", "cusparseXcsrgeam2Nnz: non-zeros of a sum");
  const int none = 0;
  if (nonzeros) liveset_standin_copy(nonzeros, &none, sizeof none);  // on the host or the device
  return success;
}
int cusparseXbsrsm2_zeroPivot(Handle*, const void*, int* position) { return answer(position, -1), success; }
int cusparseXbsrsv2_zeroPivot(Handle*, const void*, int* position) { return answer(position, -1), success; }

}  // extern "C"
