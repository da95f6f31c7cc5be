// Our declarations of the driver's and the runtime's structures beside a toolkit's headers: same sizes, same places. Read from the
// headers of CUDA 13 alone; that CUDA 12's differ where we say so is known from a table of ours (hooks/standin/runtime/properties.cpp).
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "hooks/standin/driver/types.h"
#include "hooks/standin/runtime/properties.h"

// What properties.cpp asks of the runtime; nothing of it is called here.
extern "C" const int liveset_standin_family = 13;
namespace standin {
struct Driver;
const Driver& driver() { std::abort(); }
}  // namespace standin

namespace standin {
namespace {

template <class Ours, class Theirs>
constexpr bool same = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);

static_assert(same<Location, CUmemLocation> && same<AllocationProperties, CUmemAllocationProp> && same<AccessDescription, CUmemAccessDesc>);
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(same<PoolProperties, CUmemPoolProps> && offsetof(PoolProperties, most_bytes) == offsetof(CUmemPoolProps, maxSize));
static_assert(same<SharedHandle, CUipcMemHandle> && same<SharedHandle, CUipcEventHandle> && same<Uuid, CUuuid>);
static_assert(same<LaunchAttribute, CUlaunchAttribute> && offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(same<LaunchConfiguration, CUlaunchConfig> && offsetof(LaunchConfiguration, stream) == offsetof(CUlaunchConfig, hStream) &&
              offsetof(LaunchConfiguration, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
static_assert(same<KernelNodeParameters, CUDA_KERNEL_NODE_PARAMS_v2> &&
              offsetof(KernelNodeParameters, arguments) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kernelParams) &&
              offsetof(KernelNodeParameters, kernel) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kern));
static_assert(same<MemsetNodeParameters, CUDA_MEMSET_NODE_PARAMS_v1> &&
              offsetof(MemsetNodeParameters, columns) == offsetof(CUDA_MEMSET_NODE_PARAMS_v1, width));
static_assert(same<HostNodeParameters, CUDA_HOST_NODE_PARAMS_v1>);
static_assert(same<AllocationNodeParameters, CUDA_MEM_ALLOC_NODE_PARAMS_v1> &&
              offsetof(AllocationNodeParameters, bytes) == offsetof(CUDA_MEM_ALLOC_NODE_PARAMS_v1, bytesize) &&
              offsetof(AllocationNodeParameters, address) == offsetof(CUDA_MEM_ALLOC_NODE_PARAMS_v1, dptr));
static_assert(same<Copy2D, CUDA_MEMCPY2D> && offsetof(Copy2D, to) == offsetof(CUDA_MEMCPY2D, dstXInBytes) &&
              offsetof(Copy2D, width) == offsetof(CUDA_MEMCPY2D, WidthInBytes));
static_assert(same<Copy3D, CUDA_MEMCPY3D> && offsetof(Copy3D, to) == offsetof(CUDA_MEMCPY3D, dstXInBytes) &&
              offsetof(Copy3D, width) == offsetof(CUDA_MEMCPY3D, WidthInBytes));
static_assert(same<ArrayDescription, CUDA_ARRAY_DESCRIPTOR> && same<ArrayDescription3D, CUDA_ARRAY3D_DESCRIPTOR>);
static_assert(offsetof(CUgraphNodeParams, kernel) == 16);

TEST(Layouts, PropertiesOfCuda13) {
  EXPECT_EQ(size_of_properties(13), sizeof(cudaDeviceProp));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxSharedMemoryPerBlock), offsetof(cudaDeviceProp, sharedMemPerBlock));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxRegistersPerBlock), offsetof(cudaDeviceProp, regsPerBlock));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrWarpSize), offsetof(cudaDeviceProp, warpSize));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxGridDimZ), offsetof(cudaDeviceProp, maxGridSize[2]));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrComputeCapabilityMinor), offsetof(cudaDeviceProp, minor));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrTexturePitchAlignment), offsetof(cudaDeviceProp, texturePitchAlignment));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMultiProcessorCount), offsetof(cudaDeviceProp, multiProcessorCount));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrCanMapHostMemory), offsetof(cudaDeviceProp, canMapHostMemory));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxTexture1DWidth), offsetof(cudaDeviceProp, maxTexture1D));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxTexture2DLinearPitch), offsetof(cudaDeviceProp, maxTexture2DLinear[2]));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxTexture3DDepth), offsetof(cudaDeviceProp, maxTexture3D[2]));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxSurfaceCubemapLayeredLayers), offsetof(cudaDeviceProp, maxSurfaceCubemapLayered[1]));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrSurfaceAlignment), offsetof(cudaDeviceProp, surfaceAlignment));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrConcurrentKernels), offsetof(cudaDeviceProp, concurrentKernels));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrPciBusId), offsetof(cudaDeviceProp, pciBusID));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrAsyncEngineCount), offsetof(cudaDeviceProp, asyncEngineCount));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrL2CacheSize), offsetof(cudaDeviceProp, l2CacheSize));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxPersistingL2CacheSize), offsetof(cudaDeviceProp, persistingL2CacheMaxSize));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxThreadsPerMultiProcessor), offsetof(cudaDeviceProp, maxThreadsPerMultiProcessor));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrLocalL1CacheSupported), offsetof(cudaDeviceProp, localL1CacheSupported));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxSharedMemoryPerMultiprocessor), offsetof(cudaDeviceProp, sharedMemPerMultiprocessor));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrHostNativeAtomicSupported), offsetof(cudaDeviceProp, hostNativeAtomicSupported));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrCanUseHostPointerForRegisteredMem),
            offsetof(cudaDeviceProp, canUseHostPointerForRegisteredMem));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrCooperativeLaunch), offsetof(cudaDeviceProp, cooperativeLaunch));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxSharedMemoryPerBlockOptin), offsetof(cudaDeviceProp, sharedMemPerBlockOptin));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMaxBlocksPerMultiprocessor), offsetof(cudaDeviceProp, maxBlocksPerMultiProcessor));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrReservedSharedMemoryPerBlock), offsetof(cudaDeviceProp, reservedSharedMemPerBlock));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrHostRegisterSupported), offsetof(cudaDeviceProp, hostRegisterSupported));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMemoryPoolsSupported), offsetof(cudaDeviceProp, memoryPoolsSupported));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrMemoryPoolSupportedHandleTypes), offsetof(cudaDeviceProp, memoryPoolSupportedHandleTypes));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrIpcEventSupport), offsetof(cudaDeviceProp, ipcEventSupported));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrClusterLaunch), offsetof(cudaDeviceProp, clusterLaunch));
  EXPECT_EQ(place_in_properties(13, cudaDevAttrHostNumaId), offsetof(cudaDeviceProp, hostNumaId));
}

// Public: 1,032 bytes since CUDA 12.0, the capability at byte 360, as programs of CUDA 12 read it.
TEST(Layouts, PropertiesOfCuda12) {
  EXPECT_EQ(size_of_properties(12), 1032u);
  EXPECT_EQ(place_in_properties(12, 75), 360u);
}

}  // namespace
}  // namespace standin
