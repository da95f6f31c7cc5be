#include "profiler/launch/collector_process.h"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>

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

// The collector must not keep the job's input and output open (somebody may wait for their end), nor the launcher's other files.
void detach(bool keep_stderr) {
  const int null = open("/dev/null", O_RDWR);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (null >= 0 && (standard != STDERR_FILENO || !keep_stderr)) dup2(null, standard);
  }
  if (null > STDERR_FILENO) close(null);
  setsid();
  prctl(PR_SET_NAME, "liveset-collect");
  // Only SIGKILL and SIGTERM end it before its time; what it holds must reach the disk.
  for (const int ignored : {SIGINT, SIGQUIT, SIGHUP, SIGPIPE, SIGXFSZ, SIGTSTP, SIGUSR1, SIGUSR2}) signal(ignored, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

int collector_main(int listener, int launcher, const std::string& level, const std::string& file) {
  const bool logs = level != "off";
  detach(logs && file.empty());
  try {
    if (logs) {
      start_log(level, file);
    } else {
      spdlog::set_level(spdlog::level::off);
    }
    collect::Collector(listener, launcher).run();
  } catch (const std::exception& error) {
    SPDLOG_CRITICAL("{}", error.what());
    return 1;
  }
  return 0;
}

}  // namespace

CollectorProcess start_collector(const std::string& log_level, const std::string& log_file) {
  CollectorProcess made;
  const char* base = std::getenv("TMPDIR");
  std::string folder = std::string(base != nullptr && *base == '/' && std::strlen(base) < 60 ? base : "/tmp") + "/liveset-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    made.problem = folder + ": " + std::strerror(errno);
    return made;
  }
  made.folder = folder;
  made.socket_path = folder + "/collector";
  const int listener = collect::listen_at(made.socket_path);
  int pair[2] = {-1, -1};
  if (listener < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    made.problem = made.socket_path + ": " + std::strerror(errno);
    if (listener >= 0) close(listener);
    remove_folder(made);
    return made;
  }
  made.pid = fork();
  if (made.pid == 0) {
    close(pair[0]);
    _exit(collector_main(listener, pair[1], log_level, log_file));
  }
  if (made.pid < 0) made.problem = std::string("fork: ") + std::strerror(errno);
  close(listener);
  close(pair[1]);
  made.socket = pair[0];
  return made;
}

void remove_folder(const CollectorProcess& collector) {
  if (collector.folder.empty()) return;
  unlink(collector.socket_path.c_str());
  rmdir(collector.folder.c_str());
}

}  // namespace liveset::launch
