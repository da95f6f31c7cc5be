// NVRTC: programs compile to nothing. Names of kernels stay as they are written, so that a launch can be named.
#include <cstring>
#include <new>
#include <set>
#include <string>

#include "hooks/standin/libraries/library.h"

using standin::success;

namespace {

constexpr int invalid_input = 3;
constexpr int invalid_program = 4;

struct Program {
  std::set<std::string> names;
};

// Code of a stand-in device: the stand-in driver loads anything.
constexpr char code[] = "// compiled by a stand-in";

int code_size(const Program* program, std::size_t* bytes) {
  if (!program) return invalid_program;
  standin::answer(bytes, sizeof code);
  return success;
}
int copy_code(const Program* program, char* to) {
  if (!program) return invalid_program;
  if (to) std::memcpy(to, code, sizeof code);
  return success;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  standin::answer(major, liveset_standin_release[0]);
  standin::answer(minor, liveset_standin_release[1]);
  return success;
}
const char* nvrtcGetErrorString(int result) { return result == success ? "NVRTC_SUCCESS" : "NVRTC_ERROR_INVALID_PROGRAM"; }

int nvrtcGetNumSupportedArchs(int* count) { return standin::answer(count, 1), success; }
int nvrtcGetSupportedArchs(int* capabilities) {
  if (capabilities) capabilities[0] = static_cast<int>(liveset_standin_number("capability", 90));
  return success;
}

int nvrtcCreateProgram(Program** program, const char*, const char*, int, const char* const*, const char* const*) {
  if (!program) return invalid_input;
  *program = new Program;
  return success;
}
int nvrtcDestroyProgram(Program** program) {
  if (!program || !*program) return invalid_program;
  delete *program;
  *program = nullptr;
  return success;
}
int nvrtcAddNameExpression(Program* program, const char* name) {
  if (!program) return invalid_program;
  program->names.insert(name);
  return success;
}
int nvrtcGetLoweredName(Program* program, const char* name, const char** lowered) {
  if (!program || !lowered) return invalid_program;
  *lowered = program->names.insert(name).first->c_str();
  return success;
}

int nvrtcGetPTXSize(Program* program, std::size_t* bytes) { return code_size(program, bytes); }
int nvrtcGetPTX(Program* program, char* to) { return copy_code(program, to); }
int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) { return code_size(program, bytes); }
int nvrtcGetCUBIN(Program* program, char* to) { return copy_code(program, to); }
int nvrtcGetLTOIRSize(Program* program, std::size_t* bytes) { return code_size(program, bytes); }
int nvrtcGetLTOIR(Program* program, char* to) { return copy_code(program, to); }

int nvrtcGetProgramLogSize(Program* program, std::size_t* bytes) {
  if (!program) return invalid_program;
  standin::answer(bytes, std::size_t{1});
  return success;
}
int nvrtcGetProgramLog(Program* program, char* to) {
  if (!program) return invalid_program;
  standin::answer(to, 0);
  return success;
}

}  // extern "C"
