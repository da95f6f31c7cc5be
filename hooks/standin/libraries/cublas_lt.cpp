// cuBLASLt: descriptors that keep their attributes, and one algorithm for every product. The algorithm asks for no workspace; callers
// that we know of allocate the same workspace whatever the answer (PyTorch: a size by compute capability, its own fact).
#include <cstring>

#include "hooks/standin/libraries/attributes.h"
#include "hooks/standin/libraries/library.h"

using standin::Attributes;
using standin::success;

namespace {

constexpr int invalid_value = 7;

// Caller-owned structures, by their documented sizes.
struct Algorithm {
  std::uint64_t opaque[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

enum LayoutAttribute { layout_type = 0, layout_rows = 2, layout_columns = 3, layout_leading_dimension = 4, layout_batches = 5 };
enum ProductAttribute { product_compute_type = 0, product_scale_type = 1 };

int create(Attributes** descriptor) {
  if (!descriptor) return invalid_value;
  *descriptor = new Attributes;
  return success;
}

int destroy(Attributes* descriptor) {
  delete descriptor;
  return success;
}

int set(Attributes* descriptor, int attribute, const void* value, std::size_t bytes) {
  if (!descriptor || !value) return invalid_value;
  descriptor->set(attribute, value, bytes);
  return success;
}

int get(const Attributes* descriptor, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  if (!descriptor) return invalid_value;
  if (!value) {
    standin::answer(written, bytes);
    return success;
  }
  standin::answer(written, descriptor->get(attribute, value, bytes));
  return success;
}

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() { return static_cast<std::size_t>(standin::release_number(10000)); }
std::size_t cublasLtGetCudartVersion() { return standin::runtime_version(); }
int cublasLtGetProperty(int property, int* value) { return standin::answer_property(property, value); }
const char* cublasLtGetStatusName(int status) { return status == success ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_INVALID_VALUE"; }
const char* cublasLtGetStatusString(int status) { return status == success ? "success" : "invalid value (stand-in cuBLASLt)"; }

int cublasLtMatrixLayoutCreate(Attributes** layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading_dimension) {
  if (const int status = create(layout)) return status;
  (*layout)->set_value(layout_type, type);
  (*layout)->set_value(layout_rows, rows);
  (*layout)->set_value(layout_columns, columns);
  (*layout)->set_value(layout_leading_dimension, leading_dimension);
  (*layout)->set_value(layout_batches, 1);
  return success;
}
int cublasLtMatrixLayoutDestroy(Attributes* layout) { return destroy(layout); }
int cublasLtMatrixLayoutSetAttribute(Attributes* layout, int attribute, const void* value, std::size_t bytes) {
  return set(layout, attribute, value, bytes);
}
int cublasLtMatrixLayoutGetAttribute(Attributes* layout, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  return get(layout, attribute, value, bytes, written);
}

int cublasLtMatmulDescCreate(Attributes** product, int compute_type, int scale_type) {
  if (const int status = create(product)) return status;
  (*product)->set_value(product_compute_type, compute_type);
  (*product)->set_value(product_scale_type, scale_type);
  return success;
}
int cublasLtMatmulDescDestroy(Attributes* product) { return destroy(product); }
int cublasLtMatmulDescSetAttribute(Attributes* product, int attribute, const void* value, std::size_t bytes) {
  return set(product, attribute, value, bytes);
}
int cublasLtMatmulDescGetAttribute(Attributes* product, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  return get(product, attribute, value, bytes, written);
}

int cublasLtMatrixTransformDescCreate(Attributes** transform, int scale_type) {
  if (const int status = create(transform)) return status;
  (*transform)->set_value(0, scale_type);
  return success;
}
int cublasLtMatrixTransformDescDestroy(Attributes* transform) { return destroy(transform); }
int cublasLtMatrixTransformDescSetAttribute(Attributes* transform, int attribute, const void* value, std::size_t bytes) {
  return set(transform, attribute, value, bytes);
}
int cublasLtMatrixTransformDescGetAttribute(Attributes* transform, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  return get(transform, attribute, value, bytes, written);
}

int cublasLtEmulationDescCreate(Attributes** emulation) { return create(emulation); }
int cublasLtEmulationDescDestroy(Attributes* emulation) { return destroy(emulation); }
int cublasLtEmulationDescSetAttribute(Attributes* emulation, int attribute, const void* value, std::size_t bytes) {
  return set(emulation, attribute, value, bytes);
}
int cublasLtEmulationDescGetAttribute(Attributes* emulation, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  return get(emulation, attribute, value, bytes, written);
}

int cublasLtMatmulPreferenceCreate(Attributes** preference) { return create(preference); }
int cublasLtMatmulPreferenceDestroy(Attributes* preference) { return destroy(preference); }
int cublasLtMatmulPreferenceSetAttribute(Attributes* preference, int attribute, const void* value, std::size_t bytes) {
  return set(preference, attribute, value, bytes);
}
int cublasLtMatmulPreferenceGetAttribute(Attributes* preference, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  return get(preference, attribute, value, bytes, written);
}

int cublasLtMatmulAlgoGetHeuristic(void*, Attributes*, Attributes*, Attributes*, Attributes*, Attributes*, Attributes*, int requested,
                                   HeuristicResult* results, int* count) {
  const bool wanted = requested > 0 && results;
  if (wanted) {
    results[0] = {};
    results[0].waves = 1;
  }
  standin::answer(count, wanted ? 1 : 0);
  return wanted ? success : invalid_value;
}

int cublasLtMatmulAlgoGetIds(void*, int, int, int, int, int, int, int requested, int* ids, int* count) {
  const bool wanted = requested > 0 && ids;
  if (wanted) ids[0] = 0;
  standin::answer(count, wanted ? 1 : 0);
  return success;
}

int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int identifier, Algorithm* algorithm) {
  if (!algorithm) return invalid_value;
  *algorithm = {};
  algorithm->opaque[0] = static_cast<std::uint64_t>(identifier);
  return success;
}

int cublasLtMatmulAlgoCheck(void*, Attributes*, Attributes*, Attributes*, Attributes*, Attributes*, const Algorithm* algorithm,
                            HeuristicResult* result) {
  if (!result) return invalid_value;
  *result = {};
  if (algorithm) result->algorithm = *algorithm;
  result->waves = 1;
  return success;
}

// Capabilities and settings of the one algorithm: all 0, the setting that needs nothing special.
int cublasLtMatmulAlgoCapGetAttribute(const Algorithm*, int, void* value, std::size_t bytes, std::size_t* written) {
  if (value) std::memset(value, 0, bytes);
  standin::answer(written, bytes);
  return success;
}
int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm*, int, void* value, std::size_t bytes, std::size_t* written) {
  if (value) std::memset(value, 0, bytes);
  standin::answer(written, bytes);
  return success;
}
int cublasLtMatmulAlgoConfigSetAttribute(Algorithm*, int, const void*, std::size_t) { return success; }

}  // extern "C"
