// The collector: one process for a job and all programs that it starts. It outlives both the job and the launcher.
//
// It sleeps in epoll; while something is recorded it looks into the rings every 1 to 20 ms, depending on how full it found them. A job
// whose ring is full wakes it by connecting. Every second it takes the time and flushes.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/collect/clock_map.h"
#include "profiler/collect/recording.h"

namespace liveset::collect {

class Collector {
 public:
  // `listener`: a bound, listening SOCK_SEQPACKET socket. `launcher`: see wire.h; -1 for none. Takes both.
  Collector(int listener, int launcher);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // False when the system gave it too few descriptors to work.
  bool ready() const { return epoll_ >= 0 && wake_ >= 0; }
  // Output when no launcher says it.
  void set_output(const std::string& output) { output_ = output; }
  // Until there is no launcher, no job and nothing that is recorded (made without a launcher: for ever); or until stop().
  void run();
  // From any thread: run() finishes all files and returns.
  void stop();

 private:
  struct Client {
    std::unique_ptr<Recording> recording;
    int process = -1;   // pidfd; -1: none to be had, or dead already
    bool gone = false;  // was dead when its hello was read
    bool ended = false;
    const char* end = "";
  };
  struct Connection {
    int descriptor;
    std::uint64_t since_ns;
  };
  struct FileReport {
    std::string path, error;
    std::uint64_t events = 0, lost = 0, lost_in_rings = 0;
    bool open = false;
  };

  void watch(int descriptor, std::uint64_t what);
  int wait_ms() const;
  void pass();
  void read_launcher();
  void accept_all();
  bool read_connection(int connection);
  bool handle(const channel::Message& message, std::string_view text, int descriptor);
  void hello(const channel::Message& message, std::string_view text, int descriptor);
  void note_ends();
  bool is_dead(const Client& client) const;
  void finish(Client& client);
  static void forget_process(Client& client);
  void finish_ended();
  void each_second();
  std::string choose_path(const Recording::Identity& identity);
  void report_when_due();
  FileReport report_of(const Recording& recording, bool open) const;
  bool over() const;

  int listener_, launcher_;
  bool until_stopped_;
  int epoll_, wake_;
  std::vector<Connection> connections_;
  std::vector<char> text_;                   // of the message being read
  std::map<std::uint64_t, Client> clients_;  // by token
  std::vector<FileReport> finished_;
  ClockMap tsc_, monotonic_;
  ClockPair started_;
  bool clock_ready_ = false;
  std::uint64_t last_second_ns_ = 0, last_event_ns_ = 0;
  std::uint64_t busiest_percent_ = 0;
  std::string output_ = "job.liveset";
  std::uint32_t files_ = 0;
  std::map<std::pair<std::int64_t, std::uint64_t>, std::uint32_t> programs_;  // recorded so far, by (pid, start time)
  std::int64_t job_pid_ = 0;
  int job_process_ = -1;
  bool job_ended_ = false, reported_ = false;
  int job_status_ = 0;
  std::uint64_t job_ended_ns_ = 0;
  std::string boot_id_, host_;
  bool stop_ = false;
};

}  // namespace liveset::collect
