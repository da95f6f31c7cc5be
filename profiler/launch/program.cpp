#include "profiler/launch/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

namespace liveset::launch {
namespace {

constexpr int max_interpreters = 5;  // scripts that name scripts; the kernel's limit
#if defined(__x86_64__)
constexpr int own_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int own_machine = EM_AARCH64;
#else
constexpr int own_machine = EM_NONE;
#endif

bool is_program(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string first_bytes(const std::string& path, std::size_t bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::string text(bytes, '\0');
  const ssize_t got = pread(file, text.data(), bytes, 0);
  close(file);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

// The dynamic loader that the program names; empty for a static one. `bytes` are the file's first.
std::string loader_of(const std::string& path, const std::string& bytes, const Elf64_Ehdr& header) {
  for (unsigned i = 0; i < header.e_phnum && header.e_phentsize == sizeof(Elf64_Phdr); ++i) {
    const std::size_t at = header.e_phoff + i * sizeof(Elf64_Phdr);
    if (at + sizeof(Elf64_Phdr) > bytes.size()) break;
    Elf64_Phdr part;
    std::memcpy(&part, bytes.data() + at, sizeof part);
    if (part.p_type != PT_INTERP || part.p_filesz == 0 || part.p_filesz > 4096) continue;
    const std::string all = first_bytes(path, part.p_offset + part.p_filesz);
    return all.size() > part.p_offset ? std::string(all.c_str() + part.p_offset) : std::string();
  }
  return {};
}

std::string problem_of_elf(const std::string& path, const std::string& bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr)) return "is damaged: shorter than an ELF header";
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "is a 32-bit program; liveset records 64-bit programs only";
  if (header.e_machine != own_machine) return "is built for another processor";
  const std::string loader = loader_of(path, bytes, header);
  if (loader.empty()) return "is statically linked, so nothing can be preloaded into it; use a dynamically linked build of it";
  if (loader.find("ld-musl") != std::string::npos) return "is built for musl; the recorder needs glibc";
  return {};
}

// Programs that get rights by being run ignore LD_PRELOAD. (Not when they are run by the user whose rights they get, but a command
// that works for root only is no help.)
std::string problem_of_rights(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  if ((info.st_mode & (S_ISUID | S_ISGID)) != 0) {
    return std::string("is ") + ((info.st_mode & S_ISUID) != 0 ? "setuid" : "setgid") +
           ", and such programs ignore preloaded libraries; run liveset inside it, on the program that it starts";
  }
  if (getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) {
    return "has file capabilities, and such programs ignore preloaded libraries; run a copy of it without them";
  }
  return {};
}

// The words of a "#!" line; none when there is no such line.
std::vector<std::string> interpreter_words(const std::string& bytes) {
  std::vector<std::string> words;
  if (bytes.compare(0, 2, "#!") != 0) return words;
  std::istringstream line(bytes.substr(2, bytes.find('\n') - 2));
  for (std::string word; line >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::string find_in_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* variable = std::getenv("PATH");
  const std::string folders = variable != nullptr ? variable : "/bin:/usr/bin";
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    const std::string folder = end > at ? folders.substr(at, end - at) : ".";
    if (is_program(folder + "/" + name)) return folder + "/" + name;
    at = end + 1;
  }
  return {};
}

std::vector<std::string> script_interpreter(const std::string& path) { return interpreter_words(first_bytes(path, 4096)); }

Program find_program(const std::string& name) {
  const std::string path = find_in_path(name);
  struct stat info {};
  if (path.empty()) return {"", name + ": not found in PATH"};
  if (stat(path.c_str(), &info) != 0) return {"", path + ": " + std::strerror(errno)};
  if (S_ISDIR(info.st_mode)) return {"", path + ": is a directory"};
  if (!is_program(path)) return {"", path + ": is not executable (chmod +x, or name its interpreter first)"};

  std::string judged = path;
  for (int depth = 0; depth < max_interpreters; ++depth) {
    const std::string bytes = first_bytes(judged, 4096);
    const bool is_elf = bytes.compare(0, SELFMAG, ELFMAG) == 0;
    std::string problem = is_elf ? problem_of_rights(judged) : std::string();
    if (problem.empty() && is_elf) problem = problem_of_elf(judged, bytes);
    const std::vector<std::string> words = is_elf || !problem.empty() ? std::vector<std::string>() : interpreter_words(bytes);
    const std::string interpreter = words.empty() ? std::string() : words.front();
    if (problem.empty() && !interpreter.empty() && !is_program(interpreter)) problem = "cannot be run, as the interpreter of " + path;
    if (!problem.empty()) return {"", (interpreter.empty() ? judged : interpreter) + ": " + problem};
    // An unreadable program, or a script without "#!" (the shell runs it): nothing speaks against it.
    if (interpreter.empty()) break;
    judged = interpreter;
  }
  return {path, ""};
}

}  // namespace liveset::launch
