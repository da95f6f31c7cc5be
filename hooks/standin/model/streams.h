// Streams, events and captures. Work takes no time, but for the kernel that spins on purpose (torch.cuda._sleep): it occupies its
// stream, and what waits for the stream waits as long. Thread-safe.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "hooks/standin/model/graphs.h"

namespace standin {

using Nanoseconds = std::int64_t;
Nanoseconds now();

// Handles of streams that need not be made: the legacy one, also called 0, and the calling thread's own.
inline void* const legacy_stream = reinterpret_cast<void*>(std::uintptr_t{1});
inline void* const thread_stream = reinterpret_cast<void*>(std::uintptr_t{2});

struct Capture;

struct Stream {
  int device = 0;
  unsigned flags = 0;  // 1: does not wait for the legacy stream
  int priority = 0;
  std::uint64_t id = 0;
  bool legacy = false;
  Nanoseconds busy_until = 0;
  bool unobserved_work = false;  // enqueued since somebody last waited for this stream
  Capture* capture = nullptr;
  std::vector<Node*> frontier;  // of a capture: what the next node depends on
};

struct Capture {
  std::uint64_t id = 0;
  Stream* origin = nullptr;
  int mode = 0;  // 0 global, 1 of this thread, 2 relaxed
  std::uint64_t thread = 0;
  bool invalid = false;
  Graph* graph = nullptr;
  bool own_graph = false;        // made by the capture, not given by the program
  std::vector<Stream*> streams;  // that take part, the origin included
};

struct Event {
  int device = 0;
  unsigned flags = 0;  // 2: no timing, 4: for other processes
  bool recorded = false;
  bool unobserved = false;  // recorded behind work, and nobody waited for it or asked since
  Nanoseconds time = 0;     // when its stream reaches it
  std::uint64_t capture = 0;
  std::vector<Node*> nodes;  // of that capture
};

enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };
struct CaptureInfo {
  CaptureStatus status = CaptureStatus::none;
  std::uint64_t id = 0;
  Graph* graph = nullptr;
  std::vector<Node*> dependencies;
};

// A stream as a function got it: its handle, and the device that is current where the handle names none.
struct StreamReference {
  void* handle;
  int device;
};

class Streams {
 public:
  explicit Streams(Graphs& graphs) : graphs_(graphs) {}

  Error create(int device, unsigned flags, int priority, void** handle);
  Error destroy(void* handle);
  // The facts of a stream, by value.
  Error facts(StreamReference reference, Stream* stream);

  // Called for each piece of work before it is done. Capturing: nothing may be done, `add_node` instead.
  Error enter(StreamReference reference, bool* capturing);
  Error add_node(StreamReference reference, std::unique_ptr<Node> node);
  // The stream is occupied that long from when it is next free.
  void occupy(StreamReference reference, Nanoseconds duration);

  Error query(StreamReference reference);
  Error synchronize(StreamReference reference);
  Error synchronize_device(int device);

  Error create_event(int device, unsigned flags, void** handle);
  Error destroy_event(void* handle);
  Error record(void* event, StreamReference reference);
  Error wait(StreamReference reference, void* event);
  // `early`: in reality the work before the event might still have run.
  Error query_event(void* event, bool* early);
  Error synchronize_event(void* event);
  Error elapsed(void* begin, void* end, float* milliseconds);
  Error event_flags(void* event, unsigned* flags);

  Error begin_capture(StreamReference reference, Graph* into, int mode);
  Error end_capture(StreamReference reference, Graph** graph);
  Error capture_info(StreamReference reference, CaptureInfo* info);
  Error set_dependencies(StreamReference reference, const std::vector<Node*>& nodes, bool add);
  // What no capture can hold (allocating, freeing, waiting for a device) invalidates captures of this thread and, unless
  // the thread relaxed it (mode 2), those that were begun as global. Success when there is none.
  Error forbid_while_capturing(int thread_mode);

 private:
  Stream* find(StreamReference reference);
  Event* find_event(void* handle);
  Nanoseconds free_at(const Stream& stream) const;
  static void leave_capture(Capture& capture);

  Graphs& graphs_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, std::unique_ptr<Stream>> streams_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Stream>> implicit_;  // legacy and threads' streams by device and thread
  std::unordered_map<void*, std::unique_ptr<Event>> events_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Capture>> captures_;
  std::uint64_t next_id_ = 10;
  Nanoseconds latest_ = 0;  // no stream is busy beyond it
};

}  // namespace standin
