#include "hooks/core/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1U
#endif
#ifndef MADV_POPULATE_WRITE  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif
#ifndef O_TMPFILE
#define O_TMPFILE (020000000 | O_DIRECTORY)
#endif

namespace liveset::core {
namespace {

int open_file() {
  const long memory_file = syscall(SYS_memfd_create, "liveset", MFD_CLOEXEC);
  if (memory_file >= 0) return static_cast<int>(memory_file);
  const char* folder = std::getenv("TMPDIR");
  return open(folder != nullptr && *folder != 0 ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

// A file above RLIMIT_FSIZE raises SIGXFSZ, which would kill the job: rather record nothing.
bool allowed(std::uint64_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes);
}

bool allocate(int file, std::uint64_t bytes) {
  int status = 0;
  do status = fallocate(file, 0, 0, static_cast<off_t>(bytes));
  while (status != 0 && errno == EINTR);
  return status == 0;
}

}  // namespace

bool populate(void* memory, std::uint64_t bytes) { return madvise(memory, bytes, MADV_POPULATE_WRITE) == 0; }

SharedMemory make_shared(std::uint64_t bytes, std::uint64_t first_bytes) {
  SharedMemory made;
  if (!allowed(bytes)) return made;
  const int file = open_file();
  if (file < 0) return made;
  void* memory = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const bool whole = memory != MAP_FAILED && ((first_bytes < bytes && populate(memory, first_bytes)) || allocate(file, bytes));
  if (!whole) {
    if (memory != MAP_FAILED) munmap(memory, bytes);
    close(file);
    return made;
  }
  made.memory = memory;
  made.descriptor = file;
  return made;
}

}  // namespace liveset::core
