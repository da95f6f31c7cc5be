// A program as nvcc makes it, with the shared runtime: kernels do nothing on a stand-in but through their host twins, everything else is
// as on a GPU. Ends with status 1 and a line where something is not.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

static int failures = 0;
#define CHECK(condition)                                                                \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      std::printf("%s:%d: not so: %s (last error %d)\n", __FILE__, __LINE__, #condition, cudaPeekAtLastError()); \
      ++failures;                                                                       \
    }                                                                                   \
  } while (0)

__constant__ float factor;
__device__ int counter;

extern "C" __global__ void scale(float* values, int count, float by) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] *= by;
}

extern "C" void liveset_host_twin_scale(void** arguments, const unsigned grid[3], const unsigned block[3]) {
  auto* values = *static_cast<float**>(arguments[0]);
  const int count = *static_cast<int*>(arguments[1]);
  const float by = *static_cast<float*>(arguments[2]);
  CHECK(grid[0] == 4 && block[0] == 32);
  for (int i = 0; i < count; ++i) values[i] *= by;
}

static void devices_and_errors() {
  int count = 0, value = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess && count == 2);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CHECK(std::strcmp(properties.name, "Test GPU") == 0 && properties.totalGlobalMem == 1073741824);
  CHECK(properties.major == 9 && properties.minor == 0 && properties.multiProcessorCount == 8 && properties.warpSize == 32);
  CHECK(properties.maxThreadsPerMultiProcessor == 2048 && properties.sharedMemPerBlockOptin == 232448 && properties.managedMemory == 1);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1) == cudaSuccess && value == 8);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess);
  CHECK(std::strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);
}

static void memory() {
  void *first = nullptr, *second = nullptr;
  std::size_t before = 0, after = 0, total = 0;
  CHECK(cudaMemGetInfo(&before, &total) == cudaSuccess && total - before == 16777216);
  CHECK(cudaMalloc(&first, 3 << 20) == cudaSuccess);
  CHECK(cudaMemGetInfo(&after, &total) == cudaSuccess && before - after == 4 << 20);
  CHECK(cudaMalloc(&second, std::size_t{2} << 30) == cudaErrorMemoryAllocation && second == nullptr);
  CHECK(cudaMalloc(&second, 0) == cudaSuccess && second == nullptr);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, static_cast<char*>(first) + 100) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
  CHECK(cudaPointerGetAttributes(&attributes, &total) == cudaSuccess && attributes.type == cudaMemoryTypeUnregistered);
  CHECK(cudaFree(first) == cudaSuccess && cudaFree(first) == cudaErrorInvalidValue && cudaFree(nullptr) == cudaSuccess);
  CHECK(cudaMallocHost(&first, 100) == cudaSuccess);
  CHECK(cudaPointerGetAttributes(&attributes, first) == cudaSuccess && attributes.type == cudaMemoryTypeHost);
  CHECK(cudaFreeHost(first) == cudaSuccess && cudaFreeHost(first) == cudaErrorInvalidValue);
  CHECK(cudaMallocAsync(&first, 1000, nullptr) == cudaSuccess && cudaFreeAsync(first, nullptr) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaMemGetInfo(&after, &total) == cudaSuccess && before == after);
  (void)cudaGetLastError();
}

static void kernels() {
  float host[100], *device = nullptr;
  for (int i = 0; i < 100; ++i) host[i] = static_cast<float>(i);
  CHECK(cudaMalloc(&device, sizeof host) == cudaSuccess);
  CHECK(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice) == cudaSuccess);
  scale<<<4, 32>>>(device, 100, 3.0f);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(host[0] == 0.0f && host[1] == 3.0f && host[99] == 297.0f);
  scale<<<4, 2048>>>(device, 100, 3.0f);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue || cudaGetLastError() == cudaErrorInvalidConfiguration);
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, scale) == cudaSuccess && attributes.maxThreadsPerBlock == 1024 && attributes.binaryVersion == 90);
  int blocks = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 1024, 0) == cudaSuccess && blocks == 2);
  CHECK(cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024) == cudaSuccess);
  CHECK(cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 300 * 1024) == cudaErrorInvalidValue);
  CHECK(cudaFree(device) == cudaSuccess);
  (void)cudaGetLastError();
}

static void symbols() {
  float value = 2.5f, back = 0;
  void* address = nullptr;
  std::size_t bytes = 0;
  CHECK(cudaMemcpyToSymbol(factor, &value, sizeof value) == cudaSuccess);
  CHECK(cudaMemcpyFromSymbol(&back, factor, sizeof back) == cudaSuccess && back == 2.5f);
  CHECK(cudaGetSymbolAddress(&address, counter) == cudaSuccess && address != nullptr);
  CHECK(cudaGetSymbolSize(&bytes, counter) == cudaSuccess && bytes == sizeof(int));
  CHECK(cudaGetSymbolSize(&bytes, static_cast<const void*>(&value)) == cudaErrorInvalidSymbol);
  (void)cudaGetLastError();
}

static void streams_and_graphs() {
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess);
  CHECK(cudaEventRecord(begin, stream) == cudaSuccess && cudaEventRecord(end, stream) == cudaSuccess);
  float milliseconds = -1;
  CHECK(cudaEventSynchronize(end) == cudaSuccess && cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess && milliseconds >= 0);

  float host[32] = {1}, *device = nullptr;
  CHECK(cudaMalloc(&device, sizeof host) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  scale<<<1, 32, 0, stream>>>(device, 32, 2.0f);
  CHECK(cudaMemcpyAsync(device, host, sizeof host, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusActive);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  std::size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess && nodes == 2);
  CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess && cudaGraphLaunch(executable, stream) == cudaSuccess);
  host[0] = 0;
  CHECK(cudaMemcpy(host, device, sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess && host[0] == 1.0f);

  // What a capture cannot hold spoils it.
  void* other = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaMalloc(&other, 100) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && graph == nullptr);
  (void)cudaGetLastError();
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess && cudaFree(device) == cudaSuccess);
  CHECK(cudaEventDestroy(begin) == cudaSuccess && cudaEventDestroy(begin) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

static void boxes_and_arrays() {
  const cudaExtent size = make_cudaExtent(100, 4, 3);
  char host[1200], back[1200] = {};
  for (int i = 0; i < 1200; ++i) host[i] = static_cast<char>(i % 127);
  cudaPitchedPtr device;
  CHECK(cudaMalloc3D(&device, size) == cudaSuccess && device.pitch == 512);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(host, 100, 100, 4);
  copy.dstPtr = device;
  copy.extent = size;
  copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy) == cudaSuccess);
  copy.srcPtr = device;
  copy.dstPtr = make_cudaPitchedPtr(back, 100, 100, 4);
  copy.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&copy) == cudaSuccess && std::memcmp(host, back, sizeof host) == 0);
  char row[100] = {};
  CHECK(cudaMemcpy2D(row, 100, static_cast<char*>(device.ptr) + 512, 512, 100, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(std::memcmp(row, host + 100, 100) == 0);
  CHECK(cudaMemcpy2D(row, 50, device.ptr, 512, 100, 1, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(cudaFree(device.ptr) == cudaSuccess);

  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  std::size_t before = 0, after = 0, total = 0;
  CHECK(cudaMemGetInfo(&before, &total) == cudaSuccess && cudaMallocArray(&array, &format, 1024, 1024) == cudaSuccess);
  CHECK(cudaMemGetInfo(&after, &total) == cudaSuccess && before - after == 4 << 20);
  CHECK(cudaFreeArray(array) == cudaSuccess);
  (void)cudaGetLastError();
}

static void entry_points() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status;
  CHECK(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 12000, cudaEnableDefault, &status) == cudaSuccess);
  CHECK(function != nullptr && status == cudaDriverEntryPointSuccess);
  CHECK(cudaGetDriverEntryPointByVersion("cuNothing", &function, 12000, cudaEnableDefault, &status) == cudaSuccess);
  CHECK(function == nullptr && status == cudaDriverEntryPointSymbolNotFound);
}

static void reset() {
  void* left = nullptr;
  std::size_t available = 0, total = 0;
  CHECK(cudaMalloc(&left, 8 << 20) == cudaSuccess && cudaDeviceReset() == cudaSuccess);
  CHECK(cudaMemGetInfo(&available, &total) == cudaSuccess && total - available == 16777216);
}

int main() {
  devices_and_errors();
  memory();
  kernels();
  symbols();
  streams_and_graphs();
  boxes_and_arrays();
  entry_points();
  reset();
  std::printf("%d failures\n", failures);
  return failures != 0;
}
