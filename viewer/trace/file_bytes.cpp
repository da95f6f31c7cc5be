#include "viewer/trace/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace liveset::trace {
namespace {

Error cannot_open(const std::string& path, int reason) {
  const bool missing = reason == ENOENT || reason == ENOTDIR;
  return {ErrorKind::unreadable,
          path,
          {},
          missing ? "no such file" : "cannot be opened: " + std::string(std::strerror(reason)),
          missing ? "check the name; `liveset run` prints where it wrote the trace" : ""};
}

}  // namespace

Result<FileBytes> FileBytes::open(const std::string& path) {
  // O_NONBLOCK: a pipe must not make us wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return cannot_open(path, errno);
  FileBytes file(path, fd, 0);
  struct stat status {};
  if (fstat(fd, &status) != 0) return cannot_open(path, errno);
  if (S_ISDIR(status.st_mode)) {
    return Error{ErrorKind::unreadable, path, {}, "is a directory", "name a *.liveset file in it"};
  }
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorKind::unreadable, path, {}, "is not a regular file", "copy the trace to a file first"};
  }
  file.size_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

FileBytes::FileBytes(FileBytes&& other) noexcept { *this = std::move(other); }

FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

FileBytes::~FileBytes() {
  if (fd_ >= 0) close(fd_);
}

Status FileBytes::fill(std::uint64_t offset, std::uint8_t* data, std::size_t length) const {
  std::size_t done = 0;
  while (done < length) {
    const ssize_t got = pread(fd_, data + done, length - done, static_cast<off_t>(offset + done));
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0) {
      return error(offset + done, "the file has become shorter while it was read", "is it being written or copied?");
    } else if (errno != EINTR) {
      return error(offset + done, std::string("cannot be read: ") + std::strerror(errno));
    }
  }
  return Done{};
}

Result<Bytes> FileBytes::read(std::uint64_t offset, std::size_t length, PaddedBuffer& buffer) const {
  std::uint8_t* data = buffer.make_room(length);
  if (Status status = fill(offset, data, length); !status) return status.take_error();
  return Bytes(data, length);
}

Result<std::vector<std::uint8_t>> FileBytes::read_all(std::uint64_t limit) const {
  if (size_ > limit)
    return Error{ErrorKind::unreadable,
                 path_,
                 {},
                 "has " + std::to_string(size_) + " bytes",
                 "at most " + std::to_string(limit) + " can be read at once"};
  std::vector<std::uint8_t> bytes(size_);
  if (Status status = fill(0, bytes.data(), bytes.size()); !status) return status.take_error();
  return bytes;
}

Error FileBytes::error(std::uint64_t offset, std::string what, std::string hint) const {
  return {ErrorKind::unreadable, path_, offset, std::move(what), std::move(hint)};
}

}  // namespace liveset::trace
