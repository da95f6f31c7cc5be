// cuGetProcAddress: a name, the CUDA version that the caller was made for and a flag for streams of threads name one exported symbol.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "hooks/standin/driver/state.h"

using namespace standin;

// Made by hooks/standin/generate.py: every exported function, sorted by name.
struct StandinSymbol {
  const char* name;
  void* function;
};
extern "C" const StandinSymbol liveset_standin_symbols[];
extern "C" const unsigned liveset_standin_symbol_count;

namespace {

void* symbol(const std::string& name) {
  const auto* end = liveset_standin_symbols + liveset_standin_symbol_count;
  const auto* found = std::lower_bound(liveset_standin_symbols, end, name,
                                       [](const StandinSymbol& left, const std::string& right) { return left.name < right; });
  return found != end && found->name == name ? found->function : nullptr;
}

// Names with several forms that are still in use: from which CUDA version on a name means which symbol. Newest first.
struct Form {
  std::string_view name;
  int since;
  const char* symbol;
};
constexpr Form forms[] = {
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"},
    {"cuCtxGetDevice", 2000, "cuCtxGetDevice"},
    {"cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"},
    {"cuCtxSynchronize", 2000, "cuCtxSynchronize"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
    {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
    {"cuDevicePrimaryCtxRelease", 7000, "cuDevicePrimaryCtxRelease"},
    {"cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2"},
    {"cuDevicePrimaryCtxReset", 7000, "cuDevicePrimaryCtxReset"},
    {"cuDevicePrimaryCtxSetFlags", 11000, "cuDevicePrimaryCtxSetFlags_v2"},
    {"cuDevicePrimaryCtxSetFlags", 7000, "cuDevicePrimaryCtxSetFlags"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuEventElapsedTime", 2000, "cuEventElapsedTime"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGetProcAddress", 11030, "cuGetProcAddress"},
    {"cuGraphAddDependencies", 12030, "cuGraphAddDependencies_v2"},
    {"cuGraphAddDependencies", 10000, "cuGraphAddDependencies"},
    {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"},
    {"cuGraphAddKernelNode", 10000, "cuGraphAddKernelNode"},
    {"cuGraphAddNode", 12030, "cuGraphAddNode_v2"},
    {"cuGraphAddNode", 12020, "cuGraphAddNode"},
    {"cuGraphExecKernelNodeSetParams", 12000, "cuGraphExecKernelNodeSetParams_v2"},
    {"cuGraphExecKernelNodeSetParams", 10010, "cuGraphExecKernelNodeSetParams"},
    {"cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"},
    {"cuGraphExecUpdate", 10020, "cuGraphExecUpdate"},
    {"cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"},
    {"cuGraphGetEdges", 10000, "cuGraphGetEdges"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2"},
    {"cuGraphInstantiate", 10000, "cuGraphInstantiate"},
    {"cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"},
    {"cuGraphKernelNodeGetParams", 10000, "cuGraphKernelNodeGetParams"},
    {"cuGraphKernelNodeSetParams", 12000, "cuGraphKernelNodeSetParams_v2"},
    {"cuGraphKernelNodeSetParams", 10000, "cuGraphKernelNodeSetParams"},
    {"cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"},
    {"cuGraphNodeGetDependencies", 10000, "cuGraphNodeGetDependencies"},
    {"cuGraphNodeGetDependentNodes", 12030, "cuGraphNodeGetDependentNodes_v2"},
    {"cuGraphNodeGetDependentNodes", 10000, "cuGraphNodeGetDependentNodes"},
    {"cuGraphRemoveDependencies", 12030, "cuGraphRemoveDependencies_v2"},
    {"cuGraphRemoveDependencies", 10000, "cuGraphRemoveDependencies"},
    {"cuIpcOpenMemHandle", 11000, "cuIpcOpenMemHandle_v2"},
    {"cuIpcOpenMemHandle", 4010, "cuIpcOpenMemHandle"},
    {"cuMemAdvise", 12020, "cuMemAdvise_v2"},
    {"cuMemAdvise", 8000, "cuMemAdvise"},
    {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
    {"cuMemPrefetchAsync", 8000, "cuMemPrefetchAsync"},
    {"cuMemcpy3DBatchAsync", 13000, "cuMemcpy3DBatchAsync_v2"},
    {"cuMemcpy3DBatchAsync", 12080, "cuMemcpy3DBatchAsync"},
    {"cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2"},
    {"cuMemcpyBatchAsync", 12080, "cuMemcpyBatchAsync"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
    {"cuStreamBeginCapture", 10000, "cuStreamBeginCapture"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamGetCaptureInfo", 10010, "cuStreamGetCaptureInfo"},
    {"cuStreamGetCtx", 12050, "cuStreamGetCtx_v2"},
    {"cuStreamGetCtx", 9020, "cuStreamGetCtx"},
    {"cuStreamUpdateCaptureDependencies", 12030, "cuStreamUpdateCaptureDependencies_v2"},
    {"cuStreamUpdateCaptureDependencies", 11030, "cuStreamUpdateCaptureDependencies"},
    {"cuStreamWaitValue32", 11070, "cuStreamWaitValue32_v2"},
    {"cuStreamWaitValue32", 8000, "cuStreamWaitValue32"},
    {"cuStreamWaitValue64", 11070, "cuStreamWaitValue64_v2"},
    {"cuStreamWaitValue64", 9000, "cuStreamWaitValue64"},
    {"cuStreamWriteValue32", 11070, "cuStreamWriteValue32_v2"},
    {"cuStreamWriteValue32", 8000, "cuStreamWriteValue32"},
    {"cuStreamWriteValue64", 11070, "cuStreamWriteValue64_v2"},
    {"cuStreamWriteValue64", 9000, "cuStreamWriteValue64"},
};

constexpr int found = 0, no_such_symbol = 1, version_too_low = 2;  // of the look-up's status

// The symbol's name, empty when the version is too low for every form.
std::string form_of(const char* name, int version) {
  bool listed = false;
  for (const auto& form : forms) {
    if (form.name != name) continue;
    listed = true;
    if (version >= form.since) return form.symbol;
  }
  if (listed) return {};
  for (const char* suffix : {"_v4", "_v3", "_v2"})
    if (symbol(name + std::string(suffix)) != nullptr) return name + std::string(suffix);
  return name;
}

int look_up(const char* name, void** function, int version, std::uint64_t flags, int* status) {
  if (name == nullptr || function == nullptr || flags > 3) return invalid_value;
  constexpr std::uint64_t streams_of_threads = 2;
  *function = nullptr;
  const auto exported = form_of(name, version);
  if (!exported.empty()) {
    if ((flags & streams_of_threads) != 0) *function = symbol(exported + "_ptsz");
    if ((flags & streams_of_threads) != 0 && *function == nullptr) *function = symbol(exported + "_ptds");
    if (*function == nullptr) *function = symbol(exported);
  }
  if (status != nullptr) *status = *function != nullptr ? found : exported.empty() ? version_too_low : no_such_symbol;
  return *function != nullptr ? success : not_found;
}

}  // namespace

STANDIN_EXPORT int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags, int* status) {
  return look_up(name, function, version, flags, status);
}
STANDIN_EXPORT int cuGetProcAddress_v2_ptsz(const char* name, void** function, int version, std::uint64_t flags, int* status) {
  return look_up(name, function, version, flags == 0 ? 2 : flags, status);
}
STANDIN_EXPORT int cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
  return look_up(name, function, version, flags, nullptr);
}

// NVIDIA's own runtime asks its driver for private tables, which a stand-in has none of: a program with the runtime inside cannot run.
// Most often it is a shared library, which can be named.
STANDIN_EXPORT int cuGetExportTable(const void**, const void*) {
  refuse_real_libraries();
  refuse("a program or library carries NVIDIA's CUDA runtime inside (static cudart)", "it cannot run on the stand-in device");
}
