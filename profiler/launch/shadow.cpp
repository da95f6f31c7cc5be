#include "profiler/launch/shadow.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

namespace liveset::launch {
namespace {

namespace fs = std::filesystem;

// libcublas.so.13 -> cublas; a file that is no shared library -> itself.
std::string stem_of(const std::string& library) {
  if (library.compare(0, 3, "lib") != 0) return library;
  const std::size_t end = library.find(".so");
  return end == std::string::npos ? library : library.substr(3, end - 3);
}

// Up to CUDA 12 every library has a wheel and a folder of its own; CUDA 13 has one for all that belong to the toolkit.
const std::map<std::string, std::string>& folders_of(const std::string& family) {
  static const std::map<std::string, std::string> of_12 = {{"cublas", "cublas"},
                                                           {"cublasLt", "cublas"},
                                                           {"nvblas", "cublas"},
                                                           {"cudart", "cuda_runtime"},
                                                           {"nvrtc", "cuda_nvrtc"},
                                                           {"cupti", "cuda_cupti"},
                                                           {"cudnn", "cudnn"},
                                                           {"cufft", "cufft"},
                                                           {"curand", "curand"},
                                                           {"cusolver", "cusolver"},
                                                           {"cusolverMg", "cusolver"},
                                                           {"cusparse", "cusparse"},
                                                           {"cusparseLt", "cusparselt"},
                                                           {"nccl", "nccl"},
                                                           {"nvJitLink", "nvjitlink"},
                                                           {"nvshmem_host", "nvshmem"},
                                                           {"nvrtc-builtins", "cuda_nvrtc"},
                                                           {"cufile", "cufile"},
                                                           {"nvToolsExt", "nvtx"},
                                                           {"nvtx3interop", "nvtx"}};
  static const std::map<std::string, std::string> of_13 = [] {
    std::map<std::string, std::string> folders;
    const std::set<std::string> own = {"cudnn", "nccl", "cusparselt", "nvshmem"};
    for (const auto& [stem, folder] : of_12) folders[stem] = own.count(folder) != 0 ? folder : "cu13";
    return folders;
  }();
  static const std::map<std::string, std::string> none;
  return family == "cuda12" ? of_12 : family == "cuda13" ? of_13 : none;
}

void link_to(const fs::path& target, const fs::path& link) {
  if (!fs::exists(fs::symlink_status(link))) fs::create_symlink(target, link);
}

// A real folder whose entries are links to those of `source` but the left-out ones.
void mirror(const fs::path& source, const fs::path& copy, const std::set<std::string>& left_out) {
  fs::create_directories(copy);
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    const std::string name = entry.path().filename().string();
    if (left_out.count(name) == 0) link_to(entry.path(), copy / name);
  }
}

bool is_shared_library(const std::string& name) { return name.find(".so.") != std::string::npos || fs::path(name).extension() == ".so"; }

void make_torch(const ShadowPlan& plan, const fs::path& torch) {
  mirror(plan.torch, torch, {"lib"});
  // Some builds carry NVIDIA's libraries in torch/lib.
  std::set<std::string> replaced, stems;
  for (const auto& entry : fs::directory_iterator(plan.stand_ins)) stems.insert(stem_of(entry.path().filename().string()));
  const fs::path libraries = fs::path(plan.torch) / "lib";
  for (const auto& entry : fs::directory_iterator(libraries)) {
    const std::string name = entry.path().filename().string();
    if (stems.count(stem_of(name)) != 0) replaced.insert(name);
  }
  mirror(libraries, torch / "lib", replaced);
}

// Everything of the wheels but shared libraries: headers, static libraries (nvcc links some), build files. Shared libraries without a
// stand-in are there by name, since PyTorch looks through the whole Python path for some, and would go on to the real one.
void make_wheel(const fs::path& source, const fs::path& copy, const std::string& empty) {
  const bool has_libraries = fs::is_directory(source / "lib");
  if (!has_libraries && !fs::exists(copy)) return link_to(source, copy);
  mirror(source, copy, {"lib"});
  if (!has_libraries) return;
  std::set<std::string> libraries;
  for (const auto& entry : fs::directory_iterator(source / "lib")) {
    const std::string name = entry.path().filename().string();
    if (is_shared_library(name)) libraries.insert(name);
  }
  mirror(source / "lib", copy / "lib", libraries);
  for (const std::string& name : libraries) {
    if (!empty.empty()) link_to(empty, copy / "lib" / name);
  }
}

void make_nvidia(const ShadowPlan& plan, const fs::path& nvidia) {
  fs::create_directories(nvidia);
  const std::string family = fs::path(plan.stand_ins).filename().string();
  for (const auto& entry : fs::directory_iterator(plan.stand_ins)) {
    const std::string name = entry.path().filename().string();
    const std::string folder = wheel_folder(family, name);
    if (folder.empty()) continue;
    fs::create_directories(nvidia / folder);
    link_to(entry.path(), nvidia / folder / name);
  }
  // What is there already stays: the stand-ins, and of two wheels of one name the first.
  for (const std::string& folder : plan.nvidia) {
    for (const auto& entry : fs::directory_iterator(folder)) make_wheel(entry.path(), nvidia / entry.path().filename(), plan.empty);
  }
}

std::string base_folder() {
  const char* base = std::getenv("TMPDIR");
  return base != nullptr && *base == '/' ? base : "/tmp";
}

std::string make_folder() {
  std::string folder = base_folder() + "/liveset-dryrun-XXXXXX";
  return mkdtemp(folder.data()) != nullptr ? folder : std::string();
}

}  // namespace

std::string wheel_folder(const std::string& family, const std::string& library) {
  const auto& folders = folders_of(family);
  const auto found = folders.find(stem_of(library));
  return found == folders.end() ? std::string() : found->second + "/lib";
}

Shadow::Shadow(const ShadowPlan& plan) : folder_(make_folder()) {
  if (folder_.empty()) {
    problem_ = base_folder() + ": no folder can be made there: " + std::strerror(errno) + " (TMPDIR chooses another place)";
    return;
  }
  try {
    make_torch(plan, fs::path(folder_) / "torch");
    make_nvidia(plan, fs::path(folder_) / "nvidia");
    if (!plan.site_customize.empty()) link_to(plan.site_customize, fs::path(folder_) / "sitecustomize.py");
  } catch (const fs::filesystem_error& error) {
    // With two paths the first is what a link is to, and stays as it was.
    const bool in_shadow = !error.path2().empty() || error.path1().string().compare(0, folder_.size(), folder_) == 0;
    problem_ = (in_shadow ? folder_ + ": cannot be filled: " : error.path1().string() + ": ") + error.code().message() +
               (in_shadow ? " (TMPDIR chooses another place)" : "");
  }
}

Shadow::~Shadow() {
  std::error_code ignored;
  // Processes that the job left behind may still write caches there.
  for (int tries = 0; tries < 3 && !folder_.empty(); ++tries) {
    fs::remove_all(folder_, ignored);
    if (!ignored) break;
  }
}

}  // namespace liveset::launch
