#include "viewer/model/offload.h"

#include <algorithm>

namespace liveset::model {

using trace::Phase;

Offloads::Offloads(const Model& model, const std::vector<Offload>& stated, const std::vector<bool>& stays) : model_(model) {
  if (stated.empty()) return;
  windows_.resize(stated.size());
  places_.resize(model.tensors.size());
  begins_.resize(model.ops.size());
  for (std::uint32_t index = 0; index < stated.size(); ++index) {
    windows_[index].size = stated[index].window;
    for (const std::uint32_t tensor : stated[index].tensors)
      if (stays[tensor]) places_[tensor].window = index;
  }
  std::vector<std::uint32_t> last(model.tensors.size(), none);  // op before backward that makes or reads it
  for (std::uint32_t index = 0; index < model.ops.size(); ++index) {
    const Op& op = model.ops[index];
    const bool is_before = is_forward(op.phase);
    for (const Slice slice : {op.writes, op.reads})
      for (const std::uint32_t tensor : model.list(slice)) {
        Place& place = places_[tensor];
        if (place.window == none) continue;
        if (is_before) {
          last[tensor] = index;
        } else if (place.rank == none) {
          place.rank = static_cast<std::uint32_t>(windows_[place.window].order.size());
          windows_[place.window].order.push_back(tensor);
        }
      }
  }
  for (std::uint32_t tensor = 0; tensor < last.size(); ++tensor)
    if (last[tensor] != none) begins_[last[tensor]].push_back(tensor);
}

const std::vector<Offloads::Moved>& Offloads::leave_after(std::uint32_t op, std::uint32_t microbatch) {
  moved_.clear();
  for (const std::uint32_t tensor : begins_[op]) {
    Window& window = windows_[places_[tensor].window];
    window.copying.push_back({tensor, microbatch});
    if (window.copying.size() <= window.size) continue;
    moved_.push_back(window.copying.front());
    window.copying.pop_front();
  }
  return moved_;
}

const std::vector<Offloads::Moved>& Offloads::return_before(std::uint32_t op, std::uint32_t microbatch) {
  moved_.clear();
  for (const std::uint32_t tensor : model_.list(model_.ops[op].reads)) {
    const Place& place = places_[tensor];
    if (place.window == none) continue;
    moved_.push_back({tensor, microbatch});
    if (place.rank == none) continue;
    std::uint64_t& needed = windows_[place.window].needed[microbatch];
    needed = std::max<std::uint64_t>(needed, place.rank + 1);
  }
  for (Window& window : windows_) {
    std::uint64_t& back = window.back[microbatch];
    const std::uint64_t end = std::min<std::uint64_t>(window.order.size(), window.needed[microbatch] + window.size);
    for (; back < end; ++back) moved_.push_back({window.order[back], microbatch});
  }
  return moved_;
}

}  // namespace liveset::model
