// A small program that reports through liveset.h, in many ways, for the tests of recording. Links to nothing of liveset.
//
//   job hello                    one step with a value, a block and a region; exits with 7
//   job blocks N                 N allocations and their frees
//   job churn N                  N times one allocation and its free
//   job count FILE               allocates and frees for ever, counting returned calls in FILE (a mapped u64)
//   job fill N                   N allocations, then prints "filled", reads a line, N frees, prints how many ms the allocations took
//   job cross THREADS N          threads that free each other's blocks
//   job threads N                N threads one after the other, 16 at a time, each one block
//   job together N               N threads that live at the same time, a block each
//   job fork                     a block, a fork whose child reports (silently) 1000 blocks, a block
//   job exec PROGRAM ARGS...     a block, then becomes PROGRAM
//   job _exit N | abort          a block, then ends that way
//   job running-threads          threads that still report while main returns
//   job stdio                    echoes stdin to stdout, reports a block
//   job spawn N                  starts N copies of "job blocks 10" and waits for them
//   job late                     reports from a thread's key destructor
//   job sleep-after              a block, prints "ready", waits for the end of stdin
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hooks/api/liveset.hpp"

namespace {

// Addresses that look like blocks; nothing is allocated.
const void* address(std::uint64_t number) { return reinterpret_cast<const void*>(0x100000 + number * 64); }

int hello() {
  liveset::Arena arena("cpu/arena");
  liveset::Step step(0);
  {
    liveset::Phase forward(LIVESET_FORWARD);
    liveset::Module outer("net");
    liveset::Module inner("layer0");
    void* memory = arena.allocate(128);
    liveset::Value input("x"), value("h0", "hidden", 0);
    value.create(128, arena.heap(), memory, {input});
    value.retain();
  }
  liveset::Region region("chunk");
  region.attribute("stage", "\"encode\"");
  liveset_counter(arena.heap(), "rows", 12);
  return 7;
}

void blocks(liveset_heap heap, std::uint64_t begin, std::uint64_t count) {
  for (std::uint64_t i = begin; i < begin + count; ++i) liveset_alloc(heap, address(i), 32, 0);
  for (std::uint64_t i = begin; i < begin + count; ++i) liveset_free(heap, address(i));
}

liveset_heap heap() { return liveset_heap_open("cpu/test", LIVESET_CPU, 0); }

int churn(std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) blocks(heap(), i, 1);
  return 0;
}

// Some work between two calls: a ring must not fill while the collector waits for a processor on a busy machine.
void work() {
  for (int i = 0; i < 1000; ++i) asm volatile("" ::: "memory");
}

int count_returned_calls(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT, 0644);
  if (file < 0 || ftruncate(file, 4096) != 0) return 1;
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return 1;
  auto* returned = static_cast<std::atomic<std::uint64_t>*>(memory);
  const liveset_heap own = heap();
  for (std::uint64_t i = 0;; ++i) {
    liveset_alloc(own, address(i % 1000), 32, 0);
    returned->store(2 * i + 1, std::memory_order_relaxed);
    work();
    liveset_free(own, address(i % 1000));
    returned->store(2 * i + 2, std::memory_order_relaxed);
  }
}

int fill(std::uint64_t count) {
  const liveset_heap own = heap();
  liveset_alloc(own, address(count), 32, 0);
  std::puts("ready");
  std::fflush(stdout);
  char line[16];
  if (std::fgets(line, sizeof line, stdin) == nullptr) return 1;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < count; ++i) liveset_alloc(own, address(i), 32, 0);
  const auto took = std::chrono::steady_clock::now() - begin;
  std::printf("filled %lld\n", static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  std::fflush(stdout);
  if (std::fgets(line, sizeof line, stdin) == nullptr) return 1;
  for (std::uint64_t i = 0; i < count; ++i) liveset_free(own, address(i));
  liveset_free(own, address(count));
  return 0;
}

// Every block is freed by a thread that takes it from a common queue, mostly not by the one that made it, and freed addresses are
// given out again at once: as an allocator would.
int cross(std::uint64_t threads, std::uint64_t count) {
  const liveset_heap own = heap();
  std::mutex mutex;
  std::vector<std::uint64_t> unused;
  std::deque<std::uint64_t> handed;
  for (std::uint64_t i = 0; i < threads * 4; ++i) unused.push_back(i);
  const auto take = [&](auto& from, std::uint64_t* taken) {
    const std::lock_guard<std::mutex> guard(mutex);
    if (from.empty()) return false;
    *taken = from.back();
    from.pop_back();
    return true;
  };
  std::vector<std::thread> running;
  for (std::uint64_t t = 0; t < threads; ++t) {
    running.emplace_back([&] {
      std::uint64_t taken = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        while (!take(unused, &taken)) std::this_thread::yield();
        liveset_alloc(own, address(taken), 32 + 16 * (taken % 8), 0);
        {
          const std::lock_guard<std::mutex> guard(mutex);
          handed.push_front(taken);
        }
        if (!take(handed, &taken)) continue;
        liveset_free(own, address(taken));
        const std::lock_guard<std::mutex> guard(mutex);
        unused.push_back(taken);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  for (const std::uint64_t taken : handed) liveset_free(own, address(taken));
  return 0;
}

int short_threads(std::uint64_t count) {
  const liveset_heap own = heap();
  for (std::uint64_t done = 0; done < count;) {
    std::vector<std::thread> running;
    for (int i = 0; i < 16 && done < count; ++i, ++done) {
      running.emplace_back([own, done] { blocks(own, done, 1); });
    }
    for (std::thread& thread : running) thread.join();
  }
  return 0;
}

int together(std::ptrdiff_t count) {
  const liveset_heap own = heap();
  std::barrier all(count);
  std::vector<std::thread> running;
  for (std::ptrdiff_t t = 0; t < count; ++t) {
    running.emplace_back([&all, own, t] {
      liveset_alloc(own, address(static_cast<std::uint64_t>(t)), 32, 0);
      all.arrive_and_wait();
      liveset_free(own, address(static_cast<std::uint64_t>(t)));
    });
  }
  for (std::thread& thread : running) thread.join();
  return 0;
}

int fork_child() {
  const liveset_heap own = heap();
  blocks(own, 0, 1);
  const pid_t child = fork();
  if (child == 0) {
    blocks(own, 1, 1000);
    _exit(liveset_recording() != 0 ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  blocks(own, 1, 1);
  return WEXITSTATUS(status);
}

int spawn(int count, char* self) {
  for (int i = 0; i < count; ++i) {
    if (fork() == 0) {
      execl(self, self, "blocks", "10", nullptr);
      _exit(127);
    }
  }
  while (wait(nullptr) > 0) {
  }
  return 0;
}

int running_threads() {
  const liveset_heap own = heap();
  static std::atomic<int> begun{0};
  for (int t = 0; t < 4; ++t) {
    std::thread([own, t] {
      for (std::uint64_t i = 0;; ++i) {
        blocks(own, 1000U * static_cast<unsigned>(t) + i % 100, 1);
        if (i == 100) ++begun;
      }
    }).detach();
  }
  while (begun < 4) std::this_thread::yield();
  return 3;
}

int late() {
  static const liveset_heap own = heap();
  pthread_key_t key;
  // Keys' destructors run in rounds, ours among them: this one reports after the recorder gave the thread's ring away.
  if (pthread_key_create(&key, [](void*) { blocks(own, 1, 1); }) != 0) return 1;
  for (int i = 0; i < 3; ++i) {
    std::thread([key] {
      blocks(own, 0, 1);
      pthread_setspecific(key, &own);
    }).join();
  }
  return 0;
}

int stdio() {
  blocks(heap(), 0, 1);
  char line[256];
  while (std::fgets(line, sizeof line, stdin) != nullptr) std::fputs(line, stdout);
  return 0;
}

int sleep_after() {
  blocks(heap(), 0, 1);
  std::puts("ready");
  std::fflush(stdout);
  char line[16];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int index) { return argc > index ? std::strtoull(argv[index], nullptr, 10) : 0; };
  if (what == "hello") return hello();
  if (what == "blocks") return blocks(heap(), 0, number(2)), 0;
  if (what == "churn") return churn(number(2));
  if (what == "count") return count_returned_calls(argv[2]);
  if (what == "fill") return fill(number(2));
  if (what == "cross") return cross(number(2), number(3));
  if (what == "threads") return short_threads(number(2));
  if (what == "together") return together(static_cast<std::ptrdiff_t>(number(2)));
  if (what == "fork") return fork_child();
  if (what == "exec") return blocks(heap(), 0, 1), execvp(argv[2], argv + 2);
  if (what == "_exit") blocks(heap(), 0, 1), _exit(static_cast<int>(number(2)));
  if (what == "abort") blocks(heap(), 0, 1), std::abort();
  if (what == "running-threads") return running_threads();
  if (what == "stdio") return stdio();
  if (what == "spawn") return spawn(static_cast<int>(number(2)), argv[0]);
  if (what == "late") return late();
  if (what == "sleep-after") return sleep_after();
  std::fprintf(stderr, "job: what?\n");
  return 99;
}
