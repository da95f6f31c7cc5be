#include "profiler/launch/collector_process.h"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "profiler/collect/collector.h"
#include "profiler/collect/wire.h"

namespace liveset::launch {
namespace {

void start_log(const std::string& level, const std::string& file) {
  spdlog::sink_ptr sink;
  if (!file.empty()) {
    sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  }
  auto logger = std::make_shared<spdlog::logger>("liveset", std::move(sink));
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

void close_between(unsigned first, unsigned last) {
  if (first > last || syscall(SYS_close_range, first, last, 0) == 0) return;
  const long end = sysconf(_SC_OPEN_MAX);  // a kernel before 5.9
  for (unsigned descriptor = first; descriptor <= last && static_cast<long>(descriptor) < end; ++descriptor)
    close(static_cast<int>(descriptor));
}

// The collector must not keep the job's input and output open (somebody may wait for their end), nor the launcher's other files.
void detach(bool keep_stderr, std::vector<int> kept) {
  const int null = open("/dev/null", O_RDWR);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (null >= 0 && (standard != STDERR_FILENO || !keep_stderr)) dup2(null, standard);
  }
  std::sort(kept.begin(), kept.end());
  unsigned from = STDERR_FILENO + 1;
  for (const int descriptor : kept) {
    if (descriptor < 0) continue;
    close_between(from, static_cast<unsigned>(descriptor) - 1);
    from = static_cast<unsigned>(descriptor) + 1;
  }
  close_between(from, ~0U);
  rlimit files{};  // it needs some for each process that it records
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  setsid();
  prctl(PR_SET_NAME, "liveset-collect");
  // Only SIGKILL and SIGTERM end it before its time; what it holds must reach the disk.
  for (const int ignored : {SIGINT, SIGQUIT, SIGHUP, SIGPIPE, SIGXFSZ, SIGTSTP, SIGUSR1, SIGUSR2}) signal(ignored, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Says "ready" or what is in the way.
int collector_main(int listener, int launcher, int claim, const CollectorProcess& own, const LogOptions& log) {
  detach(log.level != "off" && log.file.empty(), {listener, launcher, claim});
  int status = 0;
  try {
    if (log.level != "off") {
      start_log(log.level, log.file);
    } else {
      spdlog::set_level(spdlog::level::off);
    }
    collect::Collector collector(listener, launcher);
    collect::send_fields(launcher, {collector.ready() ? "ready" : "it has too few open files (ulimit -n)"});
    if (collector.ready()) collector.run();
  } catch (const std::exception& error) {
    SPDLOG_CRITICAL("{}", error.what());
    status = 1;
  }
  remove_folder(own);  // the launcher may be gone
  return status;
}

std::string make_folder() {
  const char* base = std::getenv("TMPDIR");
  if (base != nullptr && *base == '/' && std::strlen(base) < 60) {
    std::string folder = std::string(base) + "/liveset-XXXXXX";
    if (mkdtemp(folder.data()) != nullptr) return folder;
  }
  std::string folder = "/tmp/liveset-XXXXXX";
  return mkdtemp(folder.data()) != nullptr ? folder : std::string();
}

// What is wrong with the log's file, or empty. (spdlog would make its folders.)
std::string problem_of_log(const std::string& file) {
  const int log = file.empty() ? -1 : open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log >= 0) close(log);
  return file.empty() || log >= 0 ? std::string() : file + ": " + std::strerror(errno);
}

}  // namespace

CollectorProcess start_collector(LogOptions log, int claim) {
  CollectorProcess made;
  if (log.level.empty()) log.level = log.file.empty() ? "off" : "info";
  made.log_problem = problem_of_log(log.file);
  if (!made.log_problem.empty()) log = {"off", ""};
  made.folder = make_folder();
  if (made.folder.empty()) {
    made.problem = std::string("no folder in $TMPDIR or /tmp: ") + std::strerror(errno);
    return made;
  }
  made.socket_path = made.folder + "/collector";
  const int listener = collect::listen_at(made.socket_path);
  int pair[2] = {-1, -1};
  if (listener < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    made.problem = made.socket_path + ": " + std::strerror(errno);
  } else {
    made.pid = fork();
    if (made.pid == 0) _exit(collector_main(listener, pair[1], claim, made, log));
    if (made.pid < 0) made.problem = std::string("fork: ") + std::strerror(errno);
  }
  if (listener >= 0) close(listener);
  if (pair[1] >= 0) close(pair[1]);
  made.socket = pair[0];
  if (made.pid > 0) {
    const std::vector<std::string> answer = collect::receive_fields(made.socket, true);
    if (!answer.empty() && answer[0] == "ready") return made;
    made.problem = answer.empty() ? "it ended at once" : answer[0];
    while (waitpid(made.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    made.pid = -1;
  }
  if (made.socket >= 0) close(made.socket);
  remove_folder(made);
  return made;
}

std::string preload_link(const CollectorProcess& collector) { return collector.folder + "/libliveset_preload.so"; }

void remove_folder(const CollectorProcess& collector) {
  if (collector.folder.empty()) return;
  unlink(collector.socket_path.c_str());
  unlink(preload_link(collector).c_str());
  rmdir(collector.folder.c_str());
}

}  // namespace liveset::launch
