// A sink in memory that fills up on purpose.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "profiler/writer/sink.h"

namespace liveset::test {

// Outlives the sink that writes on it.
struct SmallDisk {
  std::uint64_t capacity = ~std::uint64_t{0};
  bool can_reserve = true;  // false: a file system without fallocate
  std::string content;
  std::uint64_t reserved = 0;  // bytes that are promised, beyond the content
  bool closed = false;
};

class SmallDiskSink final : public writer::Sink {
 public:
  explicit SmallDiskSink(SmallDisk& disk) : disk_(&disk) {}
  bool append(std::string_view bytes) override {
    // What is reserved can be written even when the disk is full by now.
    if (bytes.size() > disk_->reserved && disk_->content.size() + bytes.size() > disk_->capacity) return false;
    disk_->content += bytes;
    disk_->reserved -= std::min<std::uint64_t>(disk_->reserved, bytes.size());
    return true;
  }
  bool reserve(std::uint64_t bytes) override {
    if (!disk_->can_reserve || bytes <= disk_->reserved) return true;
    if (disk_->content.size() + bytes > disk_->capacity) return false;
    disk_->reserved = bytes;
    return true;
  }
  bool close() override {
    disk_->reserved = 0;
    disk_->closed = true;
    return true;
  }

 private:
  SmallDisk* disk_;
};

}  // namespace liveset::test
