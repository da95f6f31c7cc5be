#include "profiler/launch/run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "profiler/collect/wire.h"
#include "profiler/launch/collector_process.h"
#include "profiler/launch/output.h"
#include "profiler/launch/program.h"
#include "profiler/launch/report.h"

namespace liveset::launch {
namespace {

constexpr int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP};
constexpr int not_started = 2;

std::string own_path() {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return path;
}

// Beside our own program: of the build folder, or installed.
std::string find_preload() {
  const std::string folder = folder_of(own_path());
  for (const char* place : {"/../lib/libliveset_preload.so", "/../lib/liveset/libliveset_preload.so"}) {
    char* found = realpath((folder + place).c_str(), nullptr);
    if (found == nullptr) continue;
    const std::string path = found;
    std::free(found);
    return path;
  }
  return {};
}

// LD_PRELOAD takes spaces and colons as separators and knows no quotes, so a path with one is reached through a link.
std::string preloadable(const std::string& path, const CollectorProcess& collector) {
  if (path.find_first_of(" :") == std::string::npos) return path;
  const std::string link = collector.folder + "/libliveset_preload.so";
  return symlink(path.c_str(), link.c_str()) == 0 ? link : std::string();
}

void prepend_preload(const std::string& preload) {
  const char* users = std::getenv("LD_PRELOAD");
  setenv("LD_PRELOAD", users != nullptr && *users != 0 ? (preload + ":" + users).c_str() : preload.c_str(), 1);
}

struct Job {
  pid_t pid = -1;
  int start = -1;   // a byte written here lets it begin
  int failed = -1;  // errno of exec, or end of file when it worked
};

// Forks the job's process, which waits for the start and then becomes the program.
Job fork_job(const RunOptions& options, const std::string& program, const std::string& preload, const CollectorProcess& collector,
             const sigset_t& signals) {
  Job job;
  int start[2], failed[2];
  if (pipe2(start, O_CLOEXEC) != 0 || pipe2(failed, O_CLOEXEC) != 0) return job;
  job.pid = fork();
  if (job.pid == 0) {
    close(start[1]);
    char go = 0;
    while (read(start[0], &go, 1) < 0 && errno == EINTR) {
    }
    if (!preload.empty()) {
      prepend_preload(preload);
      setenv("LIVESET_SOCKET", collector.socket_path.c_str(), 1);
      setenv("LIVESET_ON_FULL", options.wait_when_full ? "wait" : "drop", 1);
    }
    sigprocmask(SIG_SETMASK, &signals, nullptr);
    std::vector<char*> arguments;
    for (const std::string& argument : options.command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    execvp(program.c_str(), arguments.data());  // runs scripts without "#!", as shells do
    const int error = errno;
    if (write(failed[1], &error, sizeof error) < 0) _exit(127);
    _exit(127);
  }
  close(start[0]);
  close(failed[1]);
  job.start = start[1];
  job.failed = failed[0];
  return job;
}

void forward(pid_t job, const signalfd_siginfo& signal) {
  const int number = static_cast<int>(signal.ssi_signo);
  // What the terminal sends, it sends to the whole foreground group, so the job has it already.
  if (signal.ssi_code == SI_KERNEL) return;
  kill(job, number);
}

// Waits for the job, passing signals on, and (as process 1 of a container must) for whatever else ends. The job's wait() status.
int wait_for_job(pid_t job, pid_t* collector, int signals) {
  for (;;) {
    pollfd asked{signals, POLLIN, 0};
    poll(&asked, 1, -1);
    signalfd_siginfo signal{};
    while (read(signals, &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
      if (signal.ssi_signo != SIGCHLD) forward(job, signal);
    }
    int status = 0;
    for (pid_t ended = 0; (ended = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
      if (ended == *collector && !WIFSTOPPED(status)) *collector = -1;
      if (ended != job) continue;
      if (!WIFSTOPPED(status)) return status;
      // The job was stopped (^Z): so are we, and our shell has the terminal again. Continued, we go on together.
      raise(SIGSTOP);
      kill(job, SIGCONT);
    }
  }
}

void wait_for_collector(pid_t collector) {
  int status = 0;
  while (collector > 0 && waitpid(collector, &status, 0) < 0 && errno == EINTR) {
  }
}

int say(const std::string& message) {
  std::fprintf(stderr, "liveset: %s\n", message.c_str());
  return not_started;
}

std::string default_output(const std::string& program, pid_t pid) {
  return program.substr(program.rfind('/') + 1) + "-" + std::to_string(pid) + ".liveset";
}

}  // namespace

int run(const RunOptions& options) {
  const Program program = find_program(options.command.front());
  if (!program.problem.empty()) return say(program.problem);
  if (options.output.empty() && access(".", W_OK | X_OK) != 0) return say(std::string("this folder: ") + std::strerror(errno) + " (choose another place with -o)");
  const Output claimed = options.output.empty() ? Output{} : claim_output(options.output);
  if (!claimed.problem.empty()) return say(claimed.problem);

  std::string trouble;  // why nothing is recorded, where that is no reason not to run the job
  std::string preload = find_preload();
  if (preload.empty()) trouble = "libliveset_preload.so is missing beside " + own_path();

  sigset_t watched, before;
  sigemptyset(&watched);
  for (const int signal : forwarded) sigaddset(&watched, signal);
  sigaddset(&watched, SIGCHLD);
  sigprocmask(SIG_BLOCK, &watched, &before);
  CollectorProcess collector = trouble.empty() ? start_collector(options.log_level, options.log_file) : CollectorProcess{};
  if (trouble.empty() && collector.pid < 0) trouble = "the collector could not be started: " + collector.problem;
  if (trouble.empty()) preload = preloadable(preload, collector);

  const Job job = fork_job(options, program.path, collector.pid > 0 ? preload : "", collector, before);
  if (job.pid < 0) {
    remove_folder(collector);
    return say(std::string("fork: ") + std::strerror(errno));
  }
  const std::string output = options.output.empty() ? default_output(program.path, job.pid) : options.output;
  if (collector.pid > 0) collect::send_fields(collector.socket, {"job", std::to_string(job.pid), output});
  const int signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (write(job.start, "", 1) < 0) return say(std::string("pipe: ") + std::strerror(errno));
  close(job.start);
  int exec_error = 0;
  ssize_t got = 0;
  do got = read(job.failed, &exec_error, sizeof exec_error);
  while (got < 0 && errno == EINTR);

  pid_t living_collector = collector.pid;
  const int status = wait_for_job(job.pid, &living_collector, signals);
  Report report;
  if (collector.pid > 0) {
    collect::send_fields(collector.socket, {"ended", std::to_string(status)});
    report = receive_report(collector.socket);
    close(collector.socket);
    if (report.complete && report.open_files() == 0) wait_for_collector(living_collector);
    if (!report.complete || report.open_files() == 0) remove_folder(collector);
  }
  if (got > 0) return say(program.path + ": " + std::strerror(exec_error));
  report.trouble = trouble;
  if (!options.quiet) std::fprintf(stderr, "liveset: %s\n", describe(report, output).c_str());
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace liveset::launch
