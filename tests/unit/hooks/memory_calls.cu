// Memory of every kind as a program that nvcc compiled takes it from the shared runtime, for the test of the driver hook on the stand-in.
// Prints the pitch that it was given, or the line that failed.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define WORKS(call)                                              \
  do {                                                           \
    const int error = static_cast<int>(call);                    \
    if (error != 0) {                                            \
      std::printf("line %d: %s: error %d\n", __LINE__, #call, error); \
      std::exit(1);                                              \
    }                                                            \
  } while (0)

extern "C" __global__ void fill(float* values) { values[threadIdx.x] = 1; }

int main() {
  void *address = nullptr, *other = nullptr;
  cudaStream_t stream = nullptr;
  WORKS(cudaStreamCreate(&stream));
  WORKS(cudaMalloc(&address, 100000));
  fill<<<1, 32, 0, stream>>>(static_cast<float*>(address));
  WORKS(cudaGetLastError());
  WORKS(cudaFree(address));
  size_t pitch = 0;
  WORKS(cudaMallocPitch(&address, &pitch, 100, 10));
  std::printf("%zu\n", pitch);
  WORKS(cudaFree(address));
  cudaPitchedPtr pitched{};
  WORKS(cudaMalloc3D(&pitched, make_cudaExtent(100, 10, 3)));
  WORKS(cudaFree(pitched.ptr));
  WORKS(cudaMallocManaged(&address, 3000));
  WORKS(cudaFree(address));
  WORKS(cudaMallocAsync(&address, 4000, stream));
  WORKS(cudaFreeAsync(address, stream));
  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  WORKS(cudaMemPoolCreate(&pool, &properties));
  WORKS(cudaMallocFromPoolAsync(&address, 5000, pool, stream));
  WORKS(cudaFreeAsync(address, stream));
  WORKS(cudaStreamSynchronize(stream));
  WORKS(cudaMemPoolDestroy(pool));
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
  WORKS(cudaMallocArray(&array, &format, 64, 32));
  WORKS(cudaFreeArray(array));
  WORKS(cudaHostAlloc(&address, 7000, cudaHostAllocDefault));
  WORKS(cudaFreeHost(address));
  WORKS(cudaMallocHost(&address, 8000));
  WORKS(cudaFreeHost(address));
  alignas(4096) static char mine[8192];
  WORKS(cudaHostRegister(mine, 8192, cudaHostRegisterDefault));
  WORKS(cudaHostUnregister(mine));
  // Of the second device, freed while the first is current.
  WORKS(cudaSetDevice(1));
  WORKS(cudaMalloc(&other, 6000));
  WORKS(cudaSetDevice(0));
  WORKS(cudaFree(other));
  // More than there is.
  if (cudaMalloc(&address, size_t{1} << 40) != cudaErrorMemoryAllocation) std::printf("too much was given\n");
  cudaGetLastError();
  if (cudaFree(mine) == cudaSuccess) std::printf("what was never given was taken\n");
  cudaGetLastError();
  // Captured: memory at the launch.
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  WORKS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  WORKS(cudaMallocAsync(&address, 9000, stream));
  WORKS(cudaFreeAsync(address, stream));
  WORKS(cudaStreamEndCapture(stream, &graph));
  WORKS(cudaGraphInstantiate(&executable, graph, 0));
  WORKS(cudaGraphLaunch(executable, stream));
  WORKS(cudaStreamSynchronize(stream));
  WORKS(cudaGraphExecDestroy(executable));
  WORKS(cudaGraphDestroy(graph));
  WORKS(cudaStreamDestroy(stream));
  WORKS(cudaMalloc(&address, 200000));
  WORKS(cudaDeviceReset());
  return 0;
}
