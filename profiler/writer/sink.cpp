#include "profiler/writer/sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace liveset::writer {
namespace {

class FileSink final : public Sink {
 public:
  explicit FileSink(int fd) : fd_(fd) {}
  ~FileSink() override { close_now(); }

  bool append(std::string_view bytes) override {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t written = pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(size_ + done));
      if (written > 0) {
        done += static_cast<std::size_t>(written);
      } else if (written == 0 || errno != EINTR) {
        // The part that did go in must not look like a torn packet.
        cut();
        return false;
      }
    }
    size_ += bytes.size();
    return true;
  }

  // KEEP_SIZE: the room is taken from the disk, but the file does not grow, so that a reader never sees zeros at its
  // end.
  bool reserve(std::uint64_t bytes) override {
    if (!can_reserve_) return true;
    int result = 0;
    do {
      result = fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(size_), static_cast<off_t>(bytes));
    } while (result != 0 && errno == EINTR);
    if (result == 0) return true;
    can_reserve_ = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return !can_reserve_;
  }

  bool close() override { return close_now(); }

 private:
  void cut() {
    while (ftruncate(fd_, static_cast<off_t>(size_)) != 0 && errno == EINTR) {
    }
  }
  bool close_now() {
    if (fd_ < 0) return true;
    cut();
    const int fd = std::exchange(fd_, -1);
    return ::close(fd) == 0;
  }

  int fd_;
  std::uint64_t size_ = 0;
  bool can_reserve_ = true;
};

}  // namespace

std::unique_ptr<Sink> open_file_sink(const std::string& path, std::string* error) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    if (error != nullptr) *error = path + ": cannot be written: " + std::strerror(errno);
    return nullptr;
  }
  return std::make_unique<FileSink>(fd);
}

}  // namespace liveset::writer
