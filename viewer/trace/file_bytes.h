// A file's bytes by offset. Read with pread, not mapped: a file that shrinks while we look must not end in SIGBUS.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "viewer/trace/result.h"
#include "viewer/trace/wire_reader.h"

namespace liveset::trace {

// A buffer that can be read 8 bytes past its content, so that decoders may load whole words. Growing does not clear it.
class PaddedBuffer {
 public:
  std::uint8_t* make_room(std::size_t bytes) {
    if (bytes + padding > storage_.size()) storage_.resize(bytes + padding);
    return storage_.data();
  }

 private:
  static constexpr std::size_t padding = 8;
  std::vector<std::uint8_t> storage_;
};

class FileBytes {
 public:
  static Result<FileBytes> open(const std::string& path);
  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();

  const std::string& path() const { return path_; }
  void rename(std::string path) { path_ = std::move(path); }  // what path() and errors say
  std::uint64_t size() const { return size_; }                // when it was opened
  // Bytes [offset, offset + length), in `buffer`. An error when the file has become shorter.
  Result<Bytes> read(std::uint64_t offset, std::size_t length, PaddedBuffer& buffer) const;
  // The whole file, of at most `limit` bytes.
  Result<std::vector<std::uint8_t>> read_all(std::uint64_t limit) const;
  Error error(std::uint64_t offset, std::string what, std::string hint = {}) const;

 private:
  FileBytes(std::string path, int fd, std::uint64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  Status fill(std::uint64_t offset, std::uint8_t* data, std::size_t length) const;
  std::string path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace liveset::trace
