// cuDNN's older interface: versions, handles, descriptors of tensors, filters and convolutions. The choice of an algorithm is always
// the first one with workspace 0, an assumption.
#include <algorithm>
#include <cstring>

#include "hooks/standin/libraries/cudnn_descriptors.h"
#include "hooks/standin/libraries/library.h"

using namespace standin;
using namespace standin::cudnn;

namespace {

struct Handle {
  void* stream;
};

// One entry of the answer to "which algorithm", the same for the three directions.
struct AlgorithmResult {
  int algorithm;
  int status;
  float milliseconds;
  std::size_t workspace_bytes;
  int deterministic;
  int math_type;
  int reserved[3];
};
static_assert(sizeof(AlgorithmResult) == 48);

int one_algorithm(int requested, int* count, AlgorithmResult* results) {
  liveset_standin_estimate("convolution", "cuDNN algorithm");
  if (requested < 1 || !results) return bad_parameter;
  results[0] = {};
  results[0].algorithm = 1;  // the one that needs no more than a precomputed index
  answer(count, 1);
  return success;
}

int no_workspace(const char* what, std::size_t* bytes) {
  liveset_standin_estimate("convolution", what);
  answer(bytes, 0);
  return success;
}

int output_extent(const Convolution& convolution, int dimension, int input, int window) {
  const int reach = convolution.dilation[dimension] * (window - 1) + 1;
  return 1 + (input + 2 * convolution.padding[dimension] - reach) / convolution.stride[dimension];
}

void copy_extents(int* to, const int* from, int count) {
  if (to) std::copy_n(from, count, to);
}

// Bytes from the first to the last element.
std::size_t tensor_bytes(const Tensor& tensor) {
  std::size_t last = 0;
  for (int i = 0; i < tensor.dimensions; i++)
    last += static_cast<std::size_t>(tensor.extents[i] - 1) * static_cast<std::size_t>(tensor.strides[i]);
  return tensor.dimensions == 0 ? 0 : (last + 1) * element_bytes(tensor.type);
}

}  // namespace

extern "C" {

std::size_t cudnnGetVersion() { return static_cast<std::size_t>(release_number(10000)); }
std::size_t cudnnGetMaxDeviceVersion() { return 1210; }  // compute capability 12.1
std::size_t cudnnGetCudartVersion() { return runtime_version(); }
int cudnnGetProperty(int property, int* value) { return answer_property(property, value); }
const char* cudnnGetErrorString(int status) { return status == success ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_BAD_PARAM"; }
void cudnnGetLastErrorString(char* message, std::size_t room) {
  if (message && room > 0) message[0] = 0;
}

int cudnnCreate(Handle** handle) {
  liveset_standin_estimate("library_memory", "cuDNN handle");
  return create(handle);
}
int cudnnSetStream(Handle* handle, void* stream) {
  if (!handle) return bad_parameter;
  handle->stream = stream;
  return success;
}
int cudnnGetStream(Handle* handle, void** stream) {
  if (!handle) return bad_parameter;
  answer(stream, handle->stream);
  return success;
}

// ---- tensors and filters ----
int cudnnCreateTensorDescriptor(Tensor** tensor) { return create(tensor); }
int cudnnSetTensorNdDescriptor(Tensor* tensor, int type, int dimensions, const int* extents, const int* strides) {
  if (!tensor || dimensions < 1 || dimensions > max_dimensions) return bad_parameter;
  *tensor = {type, dimensions, {}, {}};
  std::copy_n(extents, dimensions, tensor->extents);
  std::copy_n(strides, dimensions, tensor->strides);
  return success;
}
int cudnnSetTensorNdDescriptorEx(Tensor* tensor, int, int type, int dimensions, const int* extents) {
  if (!tensor || dimensions < 1 || dimensions > max_dimensions) return bad_parameter;
  set_packed(*tensor, type, dimensions, extents);
  return success;
}
int cudnnSetTensor4dDescriptor(Tensor* tensor, int, int type, int n, int c, int h, int w) {
  const int extents[] = {n, c, h, w};
  return cudnnSetTensorNdDescriptorEx(tensor, 0, type, 4, extents);
}
int cudnnSetTensor4dDescriptorEx(Tensor* tensor, int type, int n, int c, int h, int w, int n_stride, int c_stride, int h_stride,
                                 int w_stride) {
  const int extents[] = {n, c, h, w};
  const int strides[] = {n_stride, c_stride, h_stride, w_stride};
  return cudnnSetTensorNdDescriptor(tensor, type, 4, extents, strides);
}
int cudnnGetTensorNdDescriptor(const Tensor* tensor, int room, int* type, int* dimensions, int* extents, int* strides) {
  if (!tensor) return bad_parameter;
  answer(type, tensor->type);
  answer(dimensions, tensor->dimensions);
  copy_extents(extents, tensor->extents, std::min(room, tensor->dimensions));
  copy_extents(strides, tensor->strides, std::min(room, tensor->dimensions));
  return success;
}
int cudnnGetTensorSizeInBytes(const Tensor* tensor, std::size_t* bytes) {
  if (!tensor) return bad_parameter;
  answer(bytes, tensor_bytes(*tensor));
  return success;
}

int cudnnCreateFilterDescriptor(Filter** filter) { return create(filter); }
int cudnnSetFilterNdDescriptor(Filter* filter, int type, int format, int dimensions, const int* extents) {
  if (!filter || dimensions < 1 || dimensions > max_dimensions) return bad_parameter;
  *filter = {type, format, dimensions, {}};
  std::copy_n(extents, dimensions, filter->extents);
  return success;
}
int cudnnSetFilter4dDescriptor(Filter* filter, int type, int format, int k, int c, int h, int w) {
  const int extents[] = {k, c, h, w};
  return cudnnSetFilterNdDescriptor(filter, type, format, 4, extents);
}
int cudnnGetFilterNdDescriptor(const Filter* filter, int room, int* type, int* format, int* dimensions, int* extents) {
  if (!filter) return bad_parameter;
  answer(type, filter->type);
  answer(format, filter->format);
  answer(dimensions, filter->dimensions);
  copy_extents(extents, filter->extents, std::min(room, filter->dimensions));
  return success;
}
int cudnnGetFilterSizeInBytes(const Filter* filter, std::size_t* bytes) {
  if (!filter) return bad_parameter;
  std::size_t total = element_bytes(filter->type);
  for (int i = 0; i < filter->dimensions; i++) total *= static_cast<std::size_t>(filter->extents[i]);
  answer(bytes, total);
  return success;
}

// ---- convolutions ----
int cudnnCreateConvolutionDescriptor(Convolution** convolution) { return create(convolution); }
int cudnnSetConvolutionNdDescriptor(Convolution* convolution, int dimensions, const int* padding, const int* stride, const int* dilation,
                                    int mode, int compute_type) {
  if (!convolution || dimensions < 1 || dimensions > max_dimensions) return bad_parameter;
  convolution->dimensions = dimensions;
  std::copy_n(padding, dimensions, convolution->padding);
  std::copy_n(stride, dimensions, convolution->stride);
  std::copy_n(dilation, dimensions, convolution->dilation);
  convolution->mode = mode;
  convolution->compute_type = compute_type;
  return success;
}
int cudnnSetConvolution2dDescriptor(Convolution* convolution, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                                    int dilation_w, int mode, int compute_type) {
  const int padding[] = {pad_h, pad_w};
  const int stride[] = {stride_h, stride_w};
  const int dilation[] = {dilation_h, dilation_w};
  return cudnnSetConvolutionNdDescriptor(convolution, 2, padding, stride, dilation, mode, compute_type);
}
int cudnnSetConvolutionGroupCount(Convolution* convolution, int groups) {
  if (!convolution) return bad_parameter;
  convolution->groups = groups;
  return success;
}
int cudnnGetConvolutionGroupCount(const Convolution* convolution, int* groups) {
  if (!convolution) return bad_parameter;
  answer(groups, std::max(1, convolution->groups));
  return success;
}
int cudnnSetConvolutionMathType(Convolution* convolution, int math_type) {
  if (!convolution) return bad_parameter;
  convolution->math_type = math_type;
  return success;
}
int cudnnGetConvolutionMathType(const Convolution* convolution, int* math_type) {
  if (!convolution) return bad_parameter;
  answer(math_type, convolution->math_type);
  return success;
}
int cudnnGetConvolutionNdForwardOutputDim(const Convolution* convolution, const Tensor* input, const Filter* filter, int dimensions,
                                          int* extents) {
  if (!convolution || !input || !filter || !extents || dimensions < 2 || dimensions > input->dimensions) return bad_parameter;
  extents[0] = input->extents[0];
  extents[1] = filter->extents[0];
  for (int i = 2; i < dimensions; i++) extents[i] = output_extent(*convolution, i - 2, input->extents[i], filter->extents[i]);
  return success;
}
int cudnnGetConvolution2dForwardOutputDim(const Convolution* convolution, const Tensor* input, const Filter* filter, int* n, int* c, int* h,
                                          int* w) {
  int extents[4];
  if (const int status = cudnnGetConvolutionNdForwardOutputDim(convolution, input, filter, 4, extents)) return status;
  answer(n, extents[0]);
  answer(c, extents[1]);
  answer(h, extents[2]);
  answer(w, extents[3]);
  return success;
}

int cudnnGetConvolutionForwardAlgorithmMaxCount(Handle*, int* count) { return answer(count, 1), success; }
int cudnnGetConvolutionBackwardDataAlgorithmMaxCount(Handle*, int* count) { return answer(count, 1), success; }
int cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(Handle*, int* count) { return answer(count, 1), success; }
int cudnnGetConvolutionForwardAlgorithm_v7(Handle*, void*, void*, void*, void*, int requested, int* count, AlgorithmResult* results) {
  return one_algorithm(requested, count, results);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(Handle*, void*, void*, void*, void*, int requested, int* count, AlgorithmResult* results) {
  return one_algorithm(requested, count, results);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(Handle*, void*, void*, void*, void*, int requested, int* count,
                                                  AlgorithmResult* results) {
  return one_algorithm(requested, count, results);
}
int cudnnFindConvolutionForwardAlgorithm(Handle*, void*, void*, void*, void*, int requested, int* count, AlgorithmResult* results) {
  return one_algorithm(requested, count, results);
}
int cudnnFindConvolutionBackwardDataAlgorithm(Handle*, void*, void*, void*, void*, int requested, int* count, AlgorithmResult* results) {
  return one_algorithm(requested, count, results);
}
int cudnnFindConvolutionBackwardFilterAlgorithm(Handle*, void*, void*, void*, void*, int requested, int* count, AlgorithmResult* results) {
  return one_algorithm(requested, count, results);
}
int cudnnFindConvolutionForwardAlgorithmEx(Handle*, void*, void*, void*, void*, void*, void*, void*, int requested, int* count,
                                           AlgorithmResult* results) {
  return one_algorithm(requested, count, results);
}
int cudnnFindConvolutionBackwardDataAlgorithmEx(Handle*, void*, void*, void*, void*, void*, void*, void*, int requested, int* count,
                                                AlgorithmResult* results) {
  return one_algorithm(requested, count, results);
}
int cudnnFindConvolutionBackwardFilterAlgorithmEx(Handle*, void*, void*, void*, void*, void*, void*, void*, int requested, int* count,
                                                  AlgorithmResult* results) {
  return one_algorithm(requested, count, results);
}
int cudnnGetConvolutionForwardWorkspaceSize(Handle*, void*, void*, void*, void*, int, std::size_t* bytes) {
  return no_workspace("cuDNN workspace: forward", bytes);
}
int cudnnGetConvolutionBackwardDataWorkspaceSize(Handle*, void*, void*, void*, void*, int, std::size_t* bytes) {
  return no_workspace("cuDNN workspace: gradient of the input", bytes);
}
int cudnnGetConvolutionBackwardFilterWorkspaceSize(Handle*, void*, void*, void*, void*, int, std::size_t* bytes) {
  return no_workspace("cuDNN workspace: gradient of the filter", bytes);
}

}  // extern "C"
