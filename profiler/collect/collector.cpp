#include "profiler/collect/collector.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "profiler/collect/output_files.h"
#include "profiler/collect/wire.h"

namespace liveset::collect {
namespace {

using channel::ClockKind;
using channel::Message;
using channel::MessageType;

constexpr std::uint64_t second_ns = 1'000'000'000;
// After the job's end, processes that it left behind get this long to end before the report is made without them.
constexpr std::uint64_t patience_ns = 2 * second_ns;

int open_process(std::int64_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)); }

bool has_ended(int process) {
  pollfd asked{process, POLLIN, 0};
  return poll(&asked, 1, 0) > 0;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "executable 0 argument 0 argument 0 ..."
void split_text(std::string_view text, writer::HeaderInfo& header) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (parts.empty()) return;
  header.executable = parts.front();
  header.command.assign(parts.begin() + 1, parts.end());
}

// Start time of a living process (field 22 of its stat), 0 when there is none.
std::uint64_t start_time_of(std::int64_t pid) {
  const std::string stat = first_line(("/proc/" + std::to_string(pid) + "/stat").c_str());
  std::size_t at = stat.rfind(')');
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = stat.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(stat.c_str() + at + 1, nullptr, 10);
}

}  // namespace

Collector::Collector(int listener, int launcher)
    : listener_(listener),
      launcher_(launcher),
      until_stopped_(launcher < 0),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      text_(channel::max_message_text),
      started_(read_clock_pair(channel::best_clock())),
      boot_id_(first_line("/proc/sys/kernel/random/boot_id")) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  host_ = name;
  const std::uint64_t now = started_.monotonic_ns;
  monotonic_.start({now, now}, {now + second_ns, now + second_ns});
  watch(listener_, static_cast<std::uint64_t>(listener_));
  watch(wake_, static_cast<std::uint64_t>(wake_));
  if (launcher_ >= 0) watch(launcher_, static_cast<std::uint64_t>(launcher_));
}

Collector::~Collector() {
  for (const int descriptor : {listener_, launcher_, epoll_, wake_, job_process_}) {
    if (descriptor >= 0) close(descriptor);
  }
  for (const Connection& connection : connections_) close(connection.descriptor);
  for (auto& client : clients_) {
    if (client.second.process >= 0) close(client.second.process);
  }
}

void Collector::watch(int descriptor, std::uint64_t what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = what;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0) SPDLOG_WARN("epoll_ctl: {}", std::strerror(errno));
}

void Collector::stop() {
  const std::uint64_t one = 1;
  if (write(wake_, &one, sizeof one) < 0) SPDLOG_WARN("wake: {}", std::strerror(errno));
}

// How long may the rings be left alone?
int Collector::wait_ms() const {
  const std::uint64_t idle_ns = channel::clock_ns(CLOCK_MONOTONIC) - last_event_ns_;
  if (clients_.empty()) return job_ended_ && !reported_ ? 20 : connections_.empty() ? -1 : 1000;
  if (busiest_percent_ > 10) return 1;
  if (job_ended_ && !reported_) return 5;
  if (idle_ns < second_ns / 10) return 5;
  return idle_ns < second_ns ? 20 : idle_ns < 10 * second_ns ? 200 : 1000;
}

void Collector::run() {
  while (!stop_ && !over()) {
    epoll_event events[64];
    const int count = epoll_wait(epoll_, events, 64, wait_ms());
    if (count < 0 && errno != EINTR) {
      SPDLOG_ERROR("epoll_wait: {}", std::strerror(errno));
      break;
    }
    for (int i = 0; i < count; ++i) stop_ = stop_ || events[i].data.u64 == static_cast<std::uint64_t>(wake_);
    pass();
  }
  for (auto& client : clients_) {
    if (!client.second.ended) client.second.end = "unknown";
    finish(client.second);
  }
  clients_.clear();
  report_when_due();
}

// One round. The order matters: who is dead is looked at first, so that all that a dead process did is taken; the time is read
// before the sockets, so that a ring that is not known yet holds nothing older.
void Collector::pass() {
  read_launcher();
  note_ends();
  const std::uint64_t tsc = channel::read_ticks(channel::best_clock());
  const std::uint64_t ns = channel::clock_ns(CLOCK_MONOTONIC);
  for (auto& client : clients_) {
    Recording& recording = *client.second.recording;
    const bool by_tsc = recording.identity().header.clock_kind != static_cast<int>(ClockKind::monotonic);
    recording.begin_pass(by_tsc ? tsc : ns);
  }
  accept_all();
  if (ns - last_second_ns_ > second_ns) each_second();
  busiest_percent_ = 0;
  for (auto& client : clients_) {
    Recording& recording = *client.second.recording;
    if (recording.drain() != 0) last_event_ns_ = ns;
    busiest_percent_ = std::max(busiest_percent_, recording.fullest_ring_percent());
  }
  finish_ended();
  report_when_due();
}

void Collector::each_second() {
  const ClockPair pair = read_clock_pair(channel::best_clock());
  if (clock_ready_) tsc_.add(pair);
  last_second_ns_ = pair.monotonic_ns;
  for (auto& client : clients_) {
    const bool by_tsc = client.second.recording->identity().header.clock_kind != static_cast<int>(ClockKind::monotonic);
    if (by_tsc) client.second.recording->calibrate(pair);
    client.second.recording->flush();
  }
}

// ---- Processes

void Collector::note_ends() {
  if (job_process_ >= 0 && has_ended(job_process_)) {
    close(job_process_);
    job_process_ = -1;
  }
  for (auto& entry : clients_) {
    Client& client = entry.second;
    if (client.ended || !is_dead(client)) continue;
    client.ended = true;
    client.end = client.recording->exiting() ? "exit" : "unknown";
    forget_process(client);  // epoll would report it again and again
  }
}

bool Collector::is_dead(const Client& client) const {
  if (client.process >= 0) return has_ended(client.process);
  if (client.gone) return true;
  // No pidfd on this kernel.
  return kill(static_cast<pid_t>(client.recording->pid()), 0) != 0 && errno == ESRCH;
}

void Collector::finish_ended() {
  for (auto entry = clients_.begin(); entry != clients_.end();) {
    Client& client = entry->second;
    const bool is_job = client.recording->pid() == job_pid_ && launcher_ >= 0;
    // How the job itself ended, only the launcher knows: it tells as soon as it does.
    if (!client.ended || (is_job && !job_ended_ && std::strcmp(client.end, "exec") != 0)) {
      ++entry;
      continue;
    }
    if (is_job && std::strcmp(client.end, "exec") != 0) client.end = WIFSIGNALED(job_status_) ? "killed" : "exit";
    finish(client);
    entry = clients_.erase(entry);
  }
}

void Collector::finish(Client& client) {
  Recording& recording = *client.recording;
  recording.finish(client.end);
  SPDLOG_INFO("process {} ended ({}): {} events, {} lost, {}", recording.pid(), client.end, recording.events(), recording.lost(),
              recording.path().empty() ? "no file" : recording.path());
  if (!recording.error().empty()) SPDLOG_ERROR("process {}: {}", recording.pid(), recording.error());
  if (recording.events() != 0 || recording.lost() != 0 || !recording.error().empty()) finished_.push_back(report_of(recording, false));
  forget_process(client);
}

void Collector::forget_process(Client& client) {
  if (client.process >= 0) close(client.process);
  client.process = -1;
}

// ---- Messages of jobs

void Collector::accept_all() {
  for (;;) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) break;
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool known = getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    if (!known || (peer.uid != geteuid() && peer.uid != 0 && geteuid() != 0)) {
      close(connection);
      continue;
    }
    watch(connection, static_cast<std::uint64_t>(connection));
    connections_.push_back({connection, channel::clock_ns(CLOCK_MONOTONIC)});
  }
  const std::uint64_t now = channel::clock_ns(CLOCK_MONOTONIC);
  const auto done = [&](const Connection& connection) {
    // A job sends what it has at once; whoever keeps silent is none, and costs a look at every pass.
    const bool open = read_connection(connection.descriptor) && now - std::min(now, connection.since_ns) < patience_ns;
    if (!open) close(connection.descriptor);
    return !open;
  };
  connections_.erase(std::remove_if(connections_.begin(), connections_.end(), done), connections_.end());
}

// False when nothing will come any more.
bool Collector::read_connection(int connection) {
  for (;;) {
    Message message{};
    iovec parts[2] = {{&message, sizeof message}, {text_.data(), text_.size()}};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr packet{};
    packet.msg_iov = parts;
    packet.msg_iovlen = 2;
    packet.msg_control = space;
    packet.msg_controllen = sizeof space;
    const ssize_t got = recvmsg(connection, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) return false;
    int descriptor = -1;
    const cmsghdr* rights = CMSG_FIRSTHDR(&packet);
    if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    const auto bytes = static_cast<std::size_t>(got);
    const std::string_view text(text_.data(), bytes > sizeof message ? bytes - sizeof message : 0);
    if (bytes < sizeof message || !handle(message, text, descriptor)) {
      if (descriptor >= 0) close(descriptor);
      SPDLOG_WARN("a message that is none of ours was ignored");
    }
  }
}

// True when the descriptor was taken over.
bool Collector::handle(const Message& message, std::string_view text, int descriptor) {
  if (message.magic != channel::region_magic || message.version != channel::layout_version || descriptor < 0) return false;
  if (message.type == MessageType::hello && message.bytes >= channel::dictionary_offset) {
    hello(message, text, descriptor);
    return true;
  }
  const auto client = clients_.find(message.process);
  if (message.type != MessageType::ring || client == clients_.end()) return false;
  if (!client->second.recording->add_ring(Mapping::open(descriptor, message.bytes)))
    SPDLOG_ERROR("process {}: a ring that cannot be read", client->second.recording->pid());
  return true;
}

void Collector::hello(const Message& message, std::string_view text, int descriptor) {
  Mapping region = Mapping::open(descriptor, message.bytes);
  if (region.memory() == nullptr || clients_.count(message.process) != 0) return;
  if (!clock_ready_) {
    tsc_.start(started_, read_clock_pair(channel::best_clock()));
    clock_ready_ = true;
  }
  // The same process as another program: what it was before has ended.
  for (auto& entry : clients_) {
    const writer::HeaderInfo& other = entry.second.recording->identity().header;
    if (other.pid != message.pid || other.start_time != message.start_time) continue;
    entry.second.ended = true;
    entry.second.end = "exec";
    entry.second.recording->drain();  // its file is the earlier one, also when both are found in one round
  }
  Recording::Identity identity;
  writer::HeaderInfo& header = identity.header;
  header.tool_version = LIVESET_VERSION;
  header.clock_kind = static_cast<int>(message.clock);
  header.start_ticks = message.start_ticks;
  header.start_monotonic_ns = message.start_monotonic_ns;
  header.start_realtime_ns = message.start_realtime_ns;
  header.boot_id = boot_id_;
  header.host = host_;
  header.pid = message.pid;
  header.parent_pid = message.parent_pid;
  header.rank = message.rank;
  header.world_size = message.world_size;
  header.local_rank = message.local_rank;
  header.start_time = message.start_time;
  header.exec_count = programs_[{message.pid, message.start_time}]++;
  split_text(text, header);

  Client client;
  // The pid may belong to somebody else by now.
  errno = ESRCH;
  if (start_time_of(message.pid) == message.start_time) client.process = open_process(message.pid);
  if (client.process >= 0) {
    watch(client.process, static_cast<std::uint64_t>(client.process));
  } else {
    // Dead already. Its rings may still be on their way here, so its end is noted in the next round only.
    client.gone = errno != ENOSYS;
  }
  SPDLOG_INFO("process {} records: {}", header.pid, header.executable);
  const ClockMap& clock = message.clock == ClockKind::monotonic ? monotonic_ : tsc_;
  client.recording = std::make_unique<Recording>(std::move(identity), std::move(region), clock,
                                                 [this](const Recording::Identity& who) { return choose_path(who); });
  clients_.emplace(message.process, std::move(client));
}

std::string Collector::choose_path(const Recording::Identity& identity) {
  const std::uint32_t sequence = files_++;
  if (sequence == 0) return make_way(output_);
  return further_path(output_, sequence, identity.header.pid, identity.header.start_time);
}

// ---- The launcher

void Collector::read_launcher() {
  while (launcher_ >= 0) {
    const std::vector<std::string> fields = receive_fields(launcher_, false);
    if (fields.empty()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
      SPDLOG_INFO("the launcher is gone");
      close(launcher_);
      launcher_ = -1;
      return;
    }
    if (fields[0] == "job" && fields.size() == 3) {
      job_pid_ = std::strtoll(fields[1].c_str(), nullptr, 10);
      output_ = fields[2];
      job_process_ = open_process(job_pid_);
      if (job_process_ >= 0) watch(job_process_, static_cast<std::uint64_t>(job_process_));
    } else if (fields[0] == "ended" && fields.size() == 2) {
      job_ended_ = true;
      job_status_ = static_cast<int>(std::strtol(fields[1].c_str(), nullptr, 10));
      job_ended_ns_ = channel::clock_ns(CLOCK_MONOTONIC);
    }
  }
}

Collector::FileReport Collector::report_of(const Recording& recording, bool open) const {
  return {recording.path(), recording.error(), recording.events(), recording.lost(), recording.lost_in_rings(), open};
}

void Collector::report_when_due() {
  if (!job_ended_ || reported_ || launcher_ < 0) return;
  const bool impatient = stop_ || channel::clock_ns(CLOCK_MONOTONIC) - job_ended_ns_ > patience_ns;
  if (!clients_.empty() && !impatient) return;
  reported_ = true;
  std::vector<FileReport> files = finished_;
  for (const auto& client : clients_) files.push_back(report_of(*client.second.recording, true));
  for (const FileReport& file : files) {
    const char* state = file.open ? "open" : file.path.empty() ? "none" : "closed";
    send_fields(launcher_, {"file", file.path, std::to_string(file.events), std::to_string(file.lost), std::to_string(file.lost_in_rings),
                            state, file.error});
  }
  send_fields(launcher_, {"done"});
}

bool Collector::over() const { return !until_stopped_ && clients_.empty() && job_process_ < 0 && (launcher_ < 0 || reported_); }

}  // namespace liveset::collect
