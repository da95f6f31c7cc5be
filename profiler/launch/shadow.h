// A folder in front of a job's Python path that holds PyTorch once more, as links, with the stand-in libraries where NVIDIA's are.
//
// PyTorch finds NVIDIA's libraries by the run path of its own (../../nvidia/*/lib from torch/lib), which comes before everything that
// an environment variable can say. So the folder has `torch`, whose files are links, in real folders as far as run paths start there,
// and `nvidia`, laid out as the wheels of its CUDA family are, with the stand-ins in the lib folders and links to all else (headers).
// The loader goes by the path through which a library was opened, not by what a link points to, and so never sees the real ones.
#pragma once
#include <string>
#include <vector>

namespace liveset::launch {

struct ShadowPlan {
  std::string torch;                // the folder of the package
  std::vector<std::string> nvidia;  // the folders of the package nvidia, first wins; may be empty
  std::string stand_ins;            // .../standin/cuda13, or the folder of another family
  std::string empty;                // a library of nothing, for those that have no stand-in; may be left out
  std::string site_customize;       // a sitecustomize.py for the job's interpreters; empty: none
};

// Where the wheels of a CUDA family put a library: libcublas.so.12 of cuda12 -> "cublas/lib". Empty when not known.
std::string wheel_folder(const std::string& family, const std::string& library);

// The folder is removed with the object.
class Shadow {
 public:
  explicit Shadow(const ShadowPlan& plan);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  const std::string& problem() const { return problem_; }  // empty when it was made
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_, problem_;
};

}  // namespace liveset::launch
