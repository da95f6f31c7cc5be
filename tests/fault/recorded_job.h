// Runs jobs under `liveset run`, with a hand on their input, their output and their collector.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/run_program.h"
#include "tests/support/temporary_folder.h"
#include "viewer/trace/trace_file.h"

namespace liveset::test {

inline const std::string liveset_program = std::string(LIVESET_BIN_DIR) + "/liveset";
inline const std::string job_program = std::string(LIVESET_TEST_BIN_DIR) + "/job";

// Waits for something that must come, however busy the machine is; false after a minute.
template <class Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

inline std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// A program that runs, with pipes to its input and from its output.
class Running {
 public:
  explicit Running(const std::vector<std::string>& command, const std::string& error_file) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      const int error = open(error_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      dup2(error, STDERR_FILENO);
      std::vector<char*> arguments;
      for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
      arguments.push_back(nullptr);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = fdopen(out[0], "r");
  }
  ~Running() {
    close_input();
    std::fclose(out_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  std::string line() {
    char text[256] = {};
    return std::fgets(text, sizeof text, out_) != nullptr ? text : "";
  }
  void say() { EXPECT_EQ(write(in_, "\n", 1), 1); }
  void close_input() {
    if (in_ >= 0) close(in_);
    in_ = -1;
  }
  // As a shell sees it.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }
  // The child of this name.
  pid_t child(const std::string& name) const {
    pid_t found = 0;
    eventually([&] {
      std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children");
      for (pid_t child = 0; file >> child;) {
        if (first_line_of("/proc/" + std::to_string(child) + "/comm") == name) found = child;
      }
      return found != 0;
    });
    return found;
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  FILE* out_ = nullptr;
};

// What a trace holds, counted.
struct Counted {
  std::uint64_t events = 0, allocs = 0, frees = 0, unmatched = 0, lost = 0;
  std::map<std::uint32_t, std::uint64_t> by_thread;
  trace::Header header;
  bool has_footer = false;
  std::vector<trace::Loss> losses;
};

inline std::optional<Counted> count_trace(const std::string& path) {
  auto file = trace::TraceFile::open(path);
  if (!file) {
    ADD_FAILURE() << file.error().message();
    return std::nullopt;
  }
  Counted counted;
  counted.header = file->header();
  counted.lost = file->health().lost_events;
  counted.has_footer = file->health().has_footer;
  counted.losses = file->health().losses;
  const Status read = trace::for_each_event(*file, [&](const trace::Event& event) {
    ++counted.events;
    counted.allocs += event.kind == trace::Kind::alloc;
    counted.frees += event.kind == trace::Kind::free_requested;
    counted.unmatched += event.kind == trace::Kind::free_unmatched;
    ++counted.by_thread[event.thread];
    return true;
  });
  if (!read) ADD_FAILURE() << read.error().message();
  return counted;
}

// A folder with one recording.
class RecordedJob : public testing::Test {
 protected:
  std::string trace() const { return folder.file("job.liveset"); }
  std::string error() const { return read_file(folder.file("error")); }
  std::vector<std::string> command(const std::vector<std::string>& job, const std::vector<std::string>& options = {}) const {
    std::vector<std::string> all = {liveset_program, "run", "-o", trace()};
    all.insert(all.end(), options.begin(), options.end());
    all.push_back("--");
    all.insert(all.end(), job.begin(), job.end());
    return all;
  }
  Ran run_job(const std::string& arguments) const {
    return run_command(liveset_program + " run -o " + trace() + " -- " + job_program + " " + arguments);
  }
  // The later processes' traces, by name.
  std::vector<std::string> further() const {
    std::vector<std::string> paths;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(trace() + ".d", ignored)) paths.push_back(entry.path().string());
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  TemporaryFolder folder;
};

}  // namespace liveset::test
