#include "profiler/launch/run.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
#include "profiler/launch/library_folder.h"
#include "profiler/launch/output.h"
#include "profiler/launch/program.h"
#include "profiler/launch/report.h"
#include "profiler/launch/signals.h"

namespace liveset::launch {
namespace {

constexpr int not_started = 2;

int say(const std::string& message) {
  std::fprintf(stderr, "liveset: %s\n", message.c_str());
  return not_started;
}

// LD_PRELOAD takes spaces and colons as separators and knows no quotes, so a path with one is reached through a link.
std::string preloadable(const std::string& path, const CollectorProcess& collector) {
  if (path.find_first_of(" :") == std::string::npos) return path;
  const std::string link = preload_link(collector);
  return symlink(path.c_str(), link.c_str()) == 0 ? link : std::string();
}

void prepend_preload(const std::string& preload) {
  const char* users = std::getenv("LD_PRELOAD");
  setenv("LD_PRELOAD", users != nullptr && *users != 0 ? (preload + ":" + users).c_str() : preload.c_str(), 1);
}

// A closed one would be given to a file of ours. The job gets it closed, as the user had it.
void open_standard_descriptors() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(standard, F_GETFD) < 0) open("/dev/null", O_RDWR | O_CLOEXEC);
  }
}

// Between the launcher and the job's process: a byte lets it begin, and it answers with the errno of exec, or closes when that worked.
struct Link {
  int ours = -1, jobs = -1;
};

// Forks the job's process, which waits for the start and then becomes the program. Without a link it begins at once.
pid_t fork_job(const RunOptions& options, const std::string& program, const std::string& preload, const CollectorProcess& collector,
               const HeldSignals& signals, const Link& link) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  if (link.jobs >= 0) {
    close(link.ours);
    char go = 0;
    ssize_t got = 0;
    do got = recv(link.jobs, &go, 1, 0);
    while (got < 0 && errno == EINTR);
    if (got != 1) _exit(127);  // the launcher is gone
  }
  if (!preload.empty()) {
    prepend_preload(preload);
    setenv("LIVESET_SOCKET", collector.socket_path.c_str(), 1);
    setenv("LIVESET_ON_FULL", options.wait_when_full ? "wait" : "drop", 1);
    if (options.kernel_launches) setenv("LIVESET_KERNELS", "launches", 1);
  }
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  signals.as_before();
  std::vector<char*> arguments;
  for (const std::string& argument : options.command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(program.c_str(), arguments.data());  // runs scripts without "#!", as shells do
  const int error = errno;
  if (send(link.jobs, &error, sizeof error, MSG_NOSIGNAL) < 0) say(program + ": " + std::strerror(error));
  _exit(not_started);
}

// Lets the job begin. The errno of exec, 0 when it worked (or the job was killed before).
int begin(Link& link) {
  if (link.ours < 0) return 0;
  close(link.jobs);
  send(link.ours, "", 1, MSG_NOSIGNAL);
  int error = 0;
  ssize_t got = 0;
  do got = recv(link.ours, &error, sizeof error, 0);
  while (got < 0 && errno == EINTR);
  close(link.ours);
  return got == static_cast<ssize_t>(sizeof error) ? error : 0;
}

void forward(pid_t job, const siginfo_t& signal) {
  // What the terminal sends, it sends to the whole foreground group, so the job has it already.
  if (signal.si_code != SI_KERNEL) kill(job, signal.si_signo);
}

bool stopped_by_terminal(int status) {
  return WIFSTOPPED(status) && (WSTOPSIG(status) == SIGTSTP || WSTOPSIG(status) == SIGTTIN || WSTOPSIG(status) == SIGTTOU);
}

// Waits for the job, passing signals on, and (as process 1 of a container must) for whatever else ends. The job's wait() status.
int wait_for_job(pid_t job, pid_t* collector, const sigset_t& watched) {
  for (;;) {
    int status = 0;
    for (pid_t ended = 0; (ended = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
      if (ended == *collector && !WIFSTOPPED(status)) *collector = -1;
      if (ended != job) continue;
      if (!WIFSTOPPED(status)) return status;
      // ^Z: we stop too, and our shell has the terminal again. Continued, we go on together. Any other stop is between the job and
      // whoever stopped it.
      if (!stopped_by_terminal(status)) continue;
      raise(SIGSTOP);
      kill(job, SIGCONT);
    }
    siginfo_t signal{};
    if (sigwaitinfo(&watched, &signal) > 0 && signal.si_signo != SIGCHLD) forward(job, signal);
  }
}

void wait_for_collector(pid_t collector) {
  int status = 0;
  while (collector > 0 && waitpid(collector, &status, 0) < 0 && errno == EINTR) {
  }
}

std::string default_output(const std::string& program, pid_t pid) {
  return program.substr(program.rfind('/') + 1) + "-" + std::to_string(pid) + ".liveset";
}

// Changes when the file is made anew.
std::string mark_of(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  return std::to_string(info.st_ino) + " " + std::to_string(info.st_ctim.tv_sec) + " " + std::to_string(info.st_ctim.tv_nsec);
}

}  // namespace

RunResult run(const RunOptions& options) {
  const HeldSignals signals;
  return run(options, signals);
}

RunResult run(const RunOptions& options, const HeldSignals& signals) {
  open_standard_descriptors();
  const Program program = find_program(options.command.front());
  if (!program.problem.empty()) return {say(program.problem)};
  if (options.output.empty() && access(".", W_OK | X_OK) != 0)
    return {say(std::string("this folder: ") + std::strerror(errno) + " (choose another place with -o)")};
  const Output claimed = options.output.empty() ? Output{} : claim_output(options.output);
  if (!claimed.problem.empty()) return {say(claimed.problem)};

  std::string trouble;  // why nothing is recorded, where that is no reason not to run the job
  Link link;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
    link = {pair[0], pair[1]};
  } else {
    trouble = std::string("socketpair: ") + std::strerror(errno);
  }
  std::string preload = find_own("libliveset_preload.so");
  if (preload.empty()) trouble = "libliveset_preload.so is missing beside " + own_path();

  CollectorProcess collector = trouble.empty() ? start_collector(options.log, claimed.claim) : CollectorProcess{};
  if (trouble.empty() && collector.pid < 0) trouble = "the collector could not be started: " + collector.problem;
  if (!trouble.empty()) say("the job will not be recorded: " + trouble);
  if (!collector.log_problem.empty()) say("the collector keeps no log: " + collector.log_problem);
  if (trouble.empty()) preload = preloadable(preload, collector);

  const pid_t job = fork_job(options, program.path, collector.pid > 0 ? preload : "", collector, signals, link);
  if (job < 0) {
    const int error = errno;
    remove_folder(collector);
    return {say(std::string("fork: ") + std::strerror(error))};
  }
  signal(SIGPIPE, SIG_IGN);  // of what we say at the end
  const std::string output = options.output.empty() ? default_output(program.path, job) : options.output;
  const std::string mark = mark_of(output);
  if (collector.pid > 0) collect::send_fields(collector.socket, {"job", std::to_string(job), output});
  const int exec_error = begin(link);

  pid_t living_collector = collector.pid;
  const int status = wait_for_job(job, &living_collector, signals.watched());
  Report report;
  if (collector.pid > 0) {
    collect::send_fields(collector.socket, {"ended", std::to_string(status)});
    report = receive_report(collector.socket);
    close(collector.socket);
    if (report.complete && report.open_files() == 0) wait_for_collector(living_collector);
    if (!report.complete || report.open_files() == 0) remove_folder(collector);
  }
  if (exec_error != 0) return {say(program.path + ": " + std::strerror(exec_error))};
  report.trouble = trouble;
  report.stale = !mark.empty() && mark_of(output) == mark;
  const std::string line = describe(report, output);
  if (!options.quiet) say(line);
  struct stat info {};
  const bool recorded = !report.stale && stat(output.c_str(), &info) == 0;
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), recorded ? output : "", line};
}

}  // namespace liveset::launch
