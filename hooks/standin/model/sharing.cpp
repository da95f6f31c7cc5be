#include "hooks/standin/model/sharing.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace standin {
namespace {

enum class Content : std::uint32_t { memory = 0x4d454d31, event = 0x45565431 };

struct Written {
  Content content;
  std::int32_t process;
  std::int32_t device;
  std::uint32_t padding;
  std::uint64_t id;
  std::uint64_t bytes;
};
static_assert(sizeof(Written) <= sizeof(HandleBytes));

HandleBytes write(const Written& written) {
  HandleBytes handle{};
  std::memcpy(handle.data(), &written, sizeof written);
  return handle;
}

Error read(const HandleBytes& handle, Content content, Written* written) {
  std::memcpy(written, handle.data(), sizeof *written);
  if (written->content != content) return invalid_value;
  return written->process == getpid() ? invalid_context : success;
}

}  // namespace

Error Sharing::export_memory(Address address, HandleBytes* handle) {
  auto found = memory_.find(address);
  if (handle == nullptr || !found || found->kind != Kind::device) return invalid_value;
  *handle = write({Content::memory, getpid(), found->device, 0, found->id, found->bytes});
  return success;
}

Error Sharing::open_memory(const HandleBytes& handle, Address* address) {
  Written written;
  if (auto error = read(handle, Content::memory, &written); error != success) return error;
  std::lock_guard lock(mutex_);
  auto [found, is_new] = opened_.try_emplace(handle, Opened{0, written.bytes, 0});
  if (is_new) {
    if (auto error = memory_.allocate_uncounted(written.device, written.bytes, Kind::imported, &found->second.address); error != success) {
      opened_.erase(found);
      return error;
    }
  }
  ++found->second.references;
  *address = found->second.address;
  return success;
}

Error Sharing::close_memory(Address address) {
  std::lock_guard lock(mutex_);
  auto found = std::find_if(opened_.begin(), opened_.end(), [address](const auto& entry) { return entry.second.address == address; });
  if (found == opened_.end()) return invalid_value;
  if (--found->second.references > 0) return success;
  memory_.free_uncounted(address, found->second.bytes);
  opened_.erase(found);
  return success;
}

Error Sharing::export_event(void* event, HandleBytes* handle) {
  unsigned flags = 0;
  if (handle == nullptr) return invalid_value;
  if (auto error = streams_.event_flags(event, &flags); error != success) return error;
  constexpr unsigned between_processes = 4;
  if ((flags & between_processes) == 0) return invalid_value;
  *handle = write({Content::event, getpid(), 0, 0, reinterpret_cast<std::uint64_t>(event), flags});
  return success;
}

// What the other process recorded cannot be seen from here: an opened event has passed.
Error Sharing::open_event(const HandleBytes& handle, int device, void** event) {
  Written written;
  if (auto error = read(handle, Content::event, &written); error != success) return error;
  return streams_.create_event(device, static_cast<unsigned>(written.bytes), event);
}

}  // namespace standin
