// Values of a descriptor by the number of the attribute, kept as the caller gave them and given back when asked for.
#pragma once
#include <cstddef>
#include <cstring>
#include <map>
#include <vector>

namespace standin {

class Attributes {
 public:
  void set(int attribute, const void* value, std::size_t bytes) {
    const auto* first = static_cast<const unsigned char*>(value);
    values_[attribute].assign(first, first + bytes);
  }

  template <class Value>
  void set_value(int attribute, Value value) {
    set(attribute, &value, sizeof value);
  }

  // The value, cut or filled with zeros to `room` bytes: an attribute that was never set is 0. Returns the bytes of the value.
  std::size_t get(int attribute, void* value, std::size_t room) const {
    std::memset(value, 0, room);
    const auto found = values_.find(attribute);
    if (found == values_.end()) return room;
    std::memcpy(value, found->second.data(), found->second.size() < room ? found->second.size() : room);
    return found->second.size();
  }

 private:
  std::map<int, std::vector<unsigned char>> values_;
};

}  // namespace standin
