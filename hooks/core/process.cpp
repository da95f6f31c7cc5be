#include "hooks/core/process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "hooks/core/shared_memory.h"

#ifndef MADV_WIPEONFORK  // Linux 4.14
#define MADV_WIPEONFORK 18
#endif

// What pthread_atfork() calls; that one lies in a static part of glibc, this one in libc.so since 2.3.2.
extern "C" int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* dso);

namespace liveset::core {
namespace {

constexpr std::uint64_t region_bytes_with_stacks = 32U << 20;
constexpr std::uint64_t region_first_bytes = 1U << 20;

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text < '0' || *text > '9') return otherwise;
  return std::strtoull(text, nullptr, 10);
}

// Of a distributed job: a number of at most nine digits, or -1.
std::int32_t place_from(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return -1;
  std::int32_t number = 0;
  for (int digits = 0; *text != 0; ++text, ++digits) {
    if (*text < '0' || *text > '9' || digits == 9) return -1;
    number = number * 10 + (*text - '0');
  }
  return number;
}

// Reads a file of /proc whole or its first bytes.
std::size_t read_file(const char* path, char* out, std::size_t bytes) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::size_t used = 0;
  while (used < bytes) {
    const ssize_t got = read(file, out + used, bytes - used);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    used += static_cast<std::size_t>(got);
  }
  close(file);
  return used;
}

// Field 22 of /proc/self/stat: clock ticks since boot at which the process began. The name (field 2) may hold anything.
std::uint64_t start_time() {
  char text[1024];
  const std::size_t bytes = read_file("/proc/self/stat", text, sizeof text - 1);
  text[bytes] = 0;
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = std::strchr(at + 1, ' ');
  }
  return at != nullptr ? std::strtoull(at + 1, nullptr, 10) : 0;
}

// "executable 0 arguments, each ended by 0" into `out`; its length.
std::uint32_t describe(char* out, std::size_t bytes) {
  const ssize_t path = readlink("/proc/self/exe", out, 4096);
  std::size_t used = path > 0 ? static_cast<std::size_t>(path) : 0;
  out[used++] = 0;
  return static_cast<std::uint32_t>(used + read_file("/proc/self/cmdline", out + used, bytes - used));
}

}  // namespace

constinit Process process;
void (*flag_moved)(const std::atomic<std::uint32_t>* flag) = nullptr;

void Process::start() {
  const char* path = std::getenv("LIVESET_SOCKET");
  if (path == nullptr || *path == 0 || std::strlen(path) >= sizeof socket_path_) return;
  std::memcpy(socket_path_, path, std::strlen(path) + 1);
  const char* on_full = std::getenv("LIVESET_ON_FULL");
  wait_when_full = on_full == nullptr || std::strcmp(on_full, "drop") != 0;
  ring_bytes = number_from("LIVESET_RING_BYTES", ring_bytes);
  ring_total = number_from("LIVESET_RING_TOTAL", ring_total);
  const char* stacks = std::getenv("LIVESET_STACKS");
  const bool both = stacks != nullptr && std::strcmp(stacks, "both") == 0;
  python_stacks = both || (stacks != nullptr && std::strcmp(stacks, "python") == 0);
  native_stacks = both || (stacks != nullptr && std::strcmp(stacks, "native") == 0);
  if (python_stacks || native_stacks) region_bytes_ = region_bytes_with_stacks;
  pid_ = getpid();
  __register_atfork(nullptr, nullptr, &after_fork_in_child, nullptr);
  first_flag_.store(flag_wanted, std::memory_order_relaxed);
}

// The page that the kernel empties covers forks that run no handlers; the handler covers kernels without such pages and a fork
// before the first event.
void Process::after_fork_in_child() { process.turn_off(); }

void Process::turn_off() { flag_.load(std::memory_order_relaxed)->store(flag_off, std::memory_order_relaxed); }

bool Process::connect() {
  if (flag() != flag_wanted) return flag() == flag_on;
  const int error = errno;
  {
    const LockGuard guard(lock_);
    if (flag() == flag_wanted) {
      // A child that was made by a bare clone() is silent like any other.
      const bool works = getpid() == pid_ && open_region();
      if (!works) turn_off();
    }
  }
  errno = error;
  return flag() == flag_on;
}

bool Process::open_region() {
  clock = channel::best_clock();
  const SharedMemory region = make_shared(region_bytes_, region_first_bytes);
  if (region.memory == nullptr) return false;
  control_ = static_cast<channel::Control*>(region.memory);
  control_->magic = channel::region_magic;
  control_->version = channel::layout_version;
  const bool works = dictionary.attach(control_, region_bytes_, region_first_bytes) && say_hello(region.descriptor);
  close(region.descriptor);
  if (!works) return false;

  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* flag_page = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (flag_page == MAP_FAILED) return false;
  madvise(flag_page, page, MADV_WIPEONFORK);
  auto* flag = static_cast<std::atomic<std::uint32_t>*>(flag_page);
  flag->store(flag_on, std::memory_order_relaxed);
  if (flag_moved != nullptr) flag_moved(flag);
  flag_.store(flag, std::memory_order_release);
  return true;
}

bool Process::say_hello(int descriptor) {
  // Not on the stack: threads may have small ones. Under the lock, once.
  static char text[channel::max_message_text];
  channel::Message message{};
  message.type = channel::MessageType::hello;
  message.bytes = region_bytes_;
  message.pid = pid_;
  message.parent_pid = getppid();
  message.rank = place_from("RANK");
  message.world_size = place_from("WORLD_SIZE");
  message.local_rank = place_from("LOCAL_RANK");
  message.start_time = start_time();
  message.clock = clock;
  message.text_bytes = describe(text, sizeof text);
  message.start_realtime_ns = channel::clock_ns(CLOCK_REALTIME);
  message.start_monotonic_ns = channel::clock_ns(CLOCK_MONOTONIC);
  message.start_ticks = channel::read_ticks(clock);
  token_ = message.start_ticks * 0x9e3779b97f4a7c15U ^ static_cast<std::uint64_t>(pid_);
  return send(descriptor, message, text);
}

bool Process::send_ring(int descriptor, std::uint64_t bytes) {
  channel::Message message{};
  message.type = channel::MessageType::ring;
  message.bytes = bytes;
  return send(descriptor, message, nullptr);
}

// A connection to the collector, or -1 with errno set. Never blocks: a stopped collector's queue may be full.
int Process::open_socket() {
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (connection < 0) return -1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_path_, sizeof socket_path_);
  if (::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return connection;
  const int error = errno;
  close(connection);
  errno = error;
  return -1;
}

bool Process::send(int descriptor, const channel::Message& message, const char* text) {
  channel::Message header = message;
  header.magic = channel::region_magic;
  header.version = channel::layout_version;
  header.process = token_;
  iovec parts[2] = {{&header, sizeof header}, {const_cast<char*>(text), header.text_bytes}};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr packet{};
  packet.msg_iov = parts;
  packet.msg_iovlen = text != nullptr ? 2 : 1;
  packet.msg_control = space;
  packet.msg_controllen = sizeof space;
  cmsghdr* rights = CMSG_FIRSTHDR(&packet);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  const int connection = open_socket();
  if (connection < 0) return false;
  const bool sent = sendmsg(connection, &packet, MSG_NOSIGNAL) > 0;
  close(connection);
  return sent;
}

bool Process::collector_lives() {
  const int connection = open_socket();
  if (connection >= 0) close(connection);
  // Only these say that nobody listens; a full queue or no descriptors left do not.
  return connection >= 0 || (errno != ECONNREFUSED && errno != ENOENT);
}

void Process::count_lost(channel::LossReason reason) {
  if (control_ != nullptr) control_->lost[static_cast<int>(reason)].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace liveset::core
