#include "hooks/standin/model/streams.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace standin {
namespace {

// Of the calling thread, never given twice.
std::uint64_t thread_number() {
  static std::atomic<std::uint64_t> next{1};
  thread_local const std::uint64_t number = next.fetch_add(1);
  return number;
}

void sleep_until(Nanoseconds time) {
  const auto rest = time - now();
  if (rest > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(rest));
}

}  // namespace

Nanoseconds now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Stream* Streams::find(StreamReference reference) {
  const bool legacy = reference.handle == nullptr || reference.handle == legacy_stream;
  if (!legacy && reference.handle != thread_stream) {
    auto found = streams_.find(reference.handle);
    return found == streams_.end() ? nullptr : found->second.get();
  }
  const auto key = static_cast<std::uint64_t>(reference.device) | (legacy ? 0 : thread_number()) << 8;
  auto& stream = implicit_[key];
  if (!stream) {
    stream = std::make_unique<Stream>();
    stream->device = reference.device;
    stream->legacy = legacy;
    stream->id = next_id_++;
  }
  return stream.get();
}

Error Streams::create(int device, unsigned flags, int priority, void** handle) {
  if (handle == nullptr || flags > 1) return invalid_value;
  auto stream = std::make_unique<Stream>();
  stream->device = device;
  stream->flags = flags;
  stream->priority = std::clamp(priority, -5, 0);
  *handle = stream.get();
  std::lock_guard lock(mutex_);
  stream->id = next_id_++;
  streams_[*handle] = std::move(stream);
  return success;
}

Error Streams::destroy(void* handle) {
  std::lock_guard lock(mutex_);
  auto found = streams_.find(handle);
  if (found == streams_.end()) return invalid_handle;
  if (auto* capture = found->second->capture) {
    capture->invalid = true;
    std::erase(capture->streams, found->second.get());
    if (capture->origin == found->second.get()) {
      leave_capture(*capture);
      captures_.erase(capture->id);
    }
  }
  streams_.erase(found);
  return success;
}

Error Streams::facts(StreamReference reference, Stream* stream) {
  std::lock_guard lock(mutex_);
  const auto* found = find(reference);
  if (found == nullptr) return invalid_handle;
  *stream = *found;
  return success;
}

Error Streams::enter(StreamReference reference, bool* capturing) {
  std::lock_guard lock(mutex_);
  auto* stream = find(reference);
  if (stream == nullptr) return invalid_handle;
  *capturing = stream->capture != nullptr;
  if (*capturing) return stream->capture->invalid ? capture_invalidated : success;
  stream->unobserved_work = true;
  return success;
}

Error Streams::add_node(StreamReference reference, std::unique_ptr<Node> node) {
  std::lock_guard lock(mutex_);
  auto* stream = find(reference);
  if (stream == nullptr || stream->capture == nullptr) return invalid_handle;
  node->dependencies = stream->frontier;
  stream->frontier = {node.get()};
  stream->capture->graph->nodes.push_back(std::move(node));
  return success;
}

// The legacy stream and the streams that do not refuse it wait for each other.
Nanoseconds Streams::free_at(const Stream& stream) const {
  if (latest_ == 0) return 0;
  auto time = stream.busy_until;
  if (stream.legacy) {
    for (const auto& [handle, other] : streams_)
      if (other->device == stream.device && (other->flags & 1) == 0) time = std::max(time, other->busy_until);
  } else if ((stream.flags & 1) == 0) {
    auto legacy = implicit_.find(static_cast<std::uint64_t>(stream.device));
    if (legacy != implicit_.end()) time = std::max(time, legacy->second->busy_until);
  }
  return time;
}

void Streams::occupy(StreamReference reference, Nanoseconds duration) {
  std::lock_guard lock(mutex_);
  auto* stream = find(reference);
  if (stream == nullptr) return;
  stream->busy_until = std::max(now(), free_at(*stream)) + duration;
  latest_ = std::max(latest_, stream->busy_until);
}

Error Streams::query(StreamReference reference) {
  std::lock_guard lock(mutex_);
  auto* stream = find(reference);
  if (stream == nullptr) return invalid_handle;
  if (stream->capture) {
    stream->capture->invalid = true;
    return capture_unsupported;
  }
  return latest_ > 0 && free_at(*stream) > now() ? not_ready : success;
}

Error Streams::synchronize(StreamReference reference) {
  Nanoseconds time = 0;
  {
    std::lock_guard lock(mutex_);
    auto* stream = find(reference);
    if (stream == nullptr) return invalid_handle;
    if (stream->capture) {
      stream->capture->invalid = true;
      return capture_unsupported;
    }
    stream->unobserved_work = false;
    time = free_at(*stream);
  }
  sleep_until(time);
  return success;
}

Error Streams::synchronize_device(int device) {
  Nanoseconds time = 0;
  {
    std::lock_guard lock(mutex_);
    auto look_at = [&](Stream& stream) {
      if (stream.device != device) return;
      time = std::max(time, stream.busy_until);
      stream.unobserved_work = false;
    };
    for (auto& [handle, stream] : streams_) look_at(*stream);
    for (auto& [key, stream] : implicit_) look_at(*stream);
  }
  sleep_until(time);
  return success;
}

Event* Streams::find_event(void* handle) {
  auto found = events_.find(handle);
  return found == events_.end() ? nullptr : found->second.get();
}

Error Streams::create_event(int device, unsigned flags, void** handle) {
  constexpr unsigned without_timing = 2, between_processes = 4;
  if (handle == nullptr || flags > 7 || ((flags & between_processes) && !(flags & without_timing))) return invalid_value;
  auto event = std::make_unique<Event>();
  event->device = device;
  event->flags = flags;
  *handle = event.get();
  std::lock_guard lock(mutex_);
  events_[*handle] = std::move(event);
  return success;
}

Error Streams::destroy_event(void* handle) {
  std::lock_guard lock(mutex_);
  return events_.erase(handle) > 0 ? success : invalid_handle;
}

Error Streams::record(void* handle, StreamReference reference) {
  std::lock_guard lock(mutex_);
  auto* event = find_event(handle);
  auto* stream = find(reference);
  if (event == nullptr || stream == nullptr) return invalid_handle;
  if (stream->capture) {
    event->capture = stream->capture->id;
    event->nodes = stream->frontier;
    return success;
  }
  const bool timed = (event->flags & 2) == 0;
  event->recorded = true;
  event->capture = 0;
  event->nodes.clear();
  event->unobserved = stream->unobserved_work;
  event->time = latest_ > 0 || timed ? std::max(now(), free_at(*stream)) : 0;
  return success;
}

Error Streams::wait(StreamReference reference, void* handle) {
  std::lock_guard lock(mutex_);
  auto* event = find_event(handle);
  auto* stream = find(reference);
  if (event == nullptr || stream == nullptr) return invalid_handle;
  if (event->capture == 0) {
    if (stream->capture && event->recorded) {
      stream->capture->invalid = true;
      return capture_isolation;
    }
    if (event->time > stream->busy_until && event->time > now()) stream->busy_until = event->time;
    return success;
  }
  auto capture = captures_.find(event->capture);
  if (capture == captures_.end()) return captured_event;
  if (stream->capture && stream->capture != capture->second.get()) return capture_merge;
  if (stream->legacy && !stream->capture) return capture_implicit;
  if (!stream->capture) {
    stream->capture = capture->second.get();
    stream->frontier.clear();
    capture->second->streams.push_back(stream);
  }
  for (auto* node : event->nodes)
    if (std::find(stream->frontier.begin(), stream->frontier.end(), node) == stream->frontier.end()) stream->frontier.push_back(node);
  return success;
}

Error Streams::query_event(void* handle, bool* early) {
  std::lock_guard lock(mutex_);
  auto* event = find_event(handle);
  *early = false;
  if (event == nullptr) return invalid_handle;
  if (event->capture != 0) return captured_event;
  if (event->time > 0 && latest_ > 0 && event->time > now()) return not_ready;
  *early = std::exchange(event->unobserved, false);
  return success;
}

Error Streams::synchronize_event(void* handle) {
  Nanoseconds time = 0;
  {
    std::lock_guard lock(mutex_);
    auto* event = find_event(handle);
    if (event == nullptr) return invalid_handle;
    if (event->capture != 0) return captured_event;
    event->unobserved = false;
    time = event->time;
  }
  sleep_until(time);
  return success;
}

Error Streams::elapsed(void* begin, void* end, float* milliseconds) {
  std::lock_guard lock(mutex_);
  const auto* from = find_event(begin);
  const auto* to = find_event(end);
  if (from == nullptr || to == nullptr || !from->recorded || !to->recorded || ((from->flags | to->flags) & 2) != 0) return invalid_handle;
  if (milliseconds == nullptr) return invalid_value;
  if (std::max(from->time, to->time) > now()) return not_ready;
  *milliseconds = static_cast<float>(static_cast<double>(to->time - from->time) / 1e6);
  return success;
}

Error Streams::event_flags(void* handle, unsigned* flags) {
  std::lock_guard lock(mutex_);
  const auto* event = find_event(handle);
  if (event == nullptr) return invalid_handle;
  *flags = event->flags;
  return success;
}

Error Streams::begin_capture(StreamReference reference, Graph* into, int mode) {
  if (mode < 0 || mode > 2 || (into != nullptr && !graphs_.is_graph(into))) return invalid_value;
  std::lock_guard lock(mutex_);
  auto* stream = find(reference);
  if (stream == nullptr) return invalid_handle;
  if (stream->legacy) return capture_unsupported;
  if (stream->capture) return illegal_state;
  auto capture = std::make_unique<Capture>();
  capture->id = next_id_++;
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = thread_number();
  capture->own_graph = into == nullptr;
  capture->graph = into == nullptr ? graphs_.create() : into;
  capture->streams = {stream};
  stream->capture = capture.get();
  stream->frontier.clear();
  captures_[capture->id] = std::move(capture);
  return success;
}

void Streams::leave_capture(Capture& capture) {
  for (auto* stream : capture.streams) {
    stream->capture = nullptr;
    stream->frontier.clear();
  }
}

namespace {

// Whether everything that the streams captured lies before the origin's last nodes.
bool is_joined(const Capture& capture) {
  std::unordered_set<const Node*> reached;
  std::vector<const Node*> open(capture.origin->frontier.begin(), capture.origin->frontier.end());
  while (!open.empty()) {
    const auto* node = open.back();
    open.pop_back();
    if (reached.insert(node).second) open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
  for (const auto* stream : capture.streams)
    for (const auto* node : stream->frontier)
      if (reached.count(node) == 0) return false;
  return true;
}

}  // namespace

Error Streams::end_capture(StreamReference reference, Graph** graph) {
  if (graph == nullptr) return invalid_value;
  *graph = nullptr;
  auto result = success;
  std::unique_ptr<Capture> ended;
  {
    std::lock_guard lock(mutex_);
    auto* stream = find(reference);
    if (stream == nullptr) return invalid_handle;
    if (stream->capture == nullptr) return illegal_state;
    if (stream->capture->origin != stream) return capture_unmatched;
    if (stream->capture->mode != 2 && stream->capture->thread != thread_number()) return capture_wrong_thread;
    auto found = captures_.find(stream->capture->id);
    ended = std::move(found->second);
    captures_.erase(found);
    const bool joined = is_joined(*ended);
    leave_capture(*ended);
    if (!ended->invalid && joined) {
      *graph = ended->graph;
      return success;
    }
    result = ended->invalid ? capture_invalidated : capture_unjoined;
  }
  if (ended->own_graph) (void)graphs_.destroy(ended->graph);
  return result;
}

Error Streams::capture_info(StreamReference reference, CaptureInfo* info) {
  std::lock_guard lock(mutex_);
  const auto* stream = find(reference);
  if (stream == nullptr) return invalid_handle;
  *info = {};
  if (stream->capture == nullptr) return success;
  info->status = stream->capture->invalid ? CaptureStatus::invalidated : CaptureStatus::active;
  info->id = stream->capture->id;
  info->graph = stream->capture->graph;
  info->dependencies = stream->frontier;
  return success;
}

Error Streams::set_dependencies(StreamReference reference, const std::vector<Node*>& nodes, bool add) {
  std::lock_guard lock(mutex_);
  auto* stream = find(reference);
  if (stream == nullptr) return invalid_handle;
  if (stream->capture == nullptr) return illegal_state;
  if (!add) stream->frontier.clear();
  stream->frontier.insert(stream->frontier.end(), nodes.begin(), nodes.end());
  return success;
}

Error Streams::forbid_while_capturing(int thread_mode) {
  std::lock_guard lock(mutex_);
  if (captures_.empty() || thread_mode == 2) return success;
  auto result = success;
  for (auto& [id, capture] : captures_) {
    const bool own = capture->thread == thread_number() && capture->mode != 2;
    if (!own && !(capture->mode == 0 && thread_mode == 0)) continue;
    capture->invalid = true;
    result = capture_unsupported;
  }
  return result;
}

}  // namespace standin
