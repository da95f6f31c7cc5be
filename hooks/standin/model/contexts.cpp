#include "hooks/standin/model/contexts.h"

namespace standin {

Contexts::Contexts(Memory& memory, const Configuration& configuration) : memory_(memory), configuration_(configuration) {
  for (int device = 0; device < configuration.devices; ++device) {
    primaries_.push_back(std::make_unique<Primary>());
    primaries_.back()->context.device = device;
    primaries_.back()->context.primary = true;
    primaries_.back()->context.id = next_id_++;
  }
}

Error Contexts::retain_primary(int device, Context** context, bool* first) {
  std::lock_guard lock(mutex_);
  auto& primary = *primaries_[static_cast<std::size_t>(device)];
  *first = primary.references == 0;
  if (*first)
    if (auto error = memory_.charge(device, configuration_.context_bytes); error != success) return error;
  ++primary.references;
  *context = &primary.context;
  return success;
}

Error Contexts::release_primary(int device) {
  std::lock_guard lock(mutex_);
  auto& primary = *primaries_[static_cast<std::size_t>(device)];
  if (primary.references == 0) return invalid_context;
  if (--primary.references == 0) end_primary(device);
  return success;
}

Error Contexts::reset_primary(int device) {
  std::lock_guard lock(mutex_);
  auto& primary = *primaries_[static_cast<std::size_t>(device)];
  if (primary.references > 0) end_primary(device);
  primary.references = 0;
  return success;
}

void Contexts::end_primary(int device) {
  memory_.free_all(primaries_[static_cast<std::size_t>(device)]->context.id);
  memory_.discharge(device, configuration_.context_bytes);
}

bool Contexts::is_primary_active(int device) const {
  std::lock_guard lock(mutex_);
  return primaries_[static_cast<std::size_t>(device)]->references > 0;
}

Error Contexts::set_primary_flags(int device, unsigned flags) {
  std::lock_guard lock(mutex_);
  primaries_[static_cast<std::size_t>(device)]->context.flags = flags;
  return success;
}

unsigned Contexts::primary_flags(int device) const {
  std::lock_guard lock(mutex_);
  return primaries_[static_cast<std::size_t>(device)]->context.flags;
}

Error Contexts::create(int device, unsigned flags, Context** context) {
  if (context == nullptr) return invalid_value;
  if (auto error = memory_.charge(device, configuration_.context_bytes); error != success) return error;
  std::lock_guard lock(mutex_);
  auto made = std::make_unique<Context>(Context{device, false, flags, next_id_++});
  *context = made.get();
  created_[*context] = std::move(made);
  return success;
}

Error Contexts::destroy(Context* context) {
  std::lock_guard lock(mutex_);
  auto found = created_.find(context);
  if (found == created_.end()) return invalid_context;
  memory_.free_all(context->id);
  memory_.discharge(context->device, configuration_.context_bytes);
  created_.erase(found);
  return success;
}

bool Contexts::is_context(const Context* context) const {
  std::lock_guard lock(mutex_);
  if (created_.count(context) > 0) return true;
  for (const auto& primary : primaries_)
    if (&primary->context == context) return primary->references > 0;
  return false;
}

Error Contexts::enable_peer(const Context* context, const Context* peer) {
  std::lock_guard lock(mutex_);
  return peers_.emplace(context, peer).second ? success : peer_access_already_enabled;
}

Error Contexts::disable_peer(const Context* context, const Context* peer) {
  std::lock_guard lock(mutex_);
  return peers_.erase({context, peer}) > 0 ? success : peer_access_not_enabled;
}

}  // namespace standin
