#include "profiler/launch/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace liveset::launch {
namespace {

// The bytes of a file, mapped. Every read is checked against its length.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info {};
    if (file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
      void* mapped = mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file, 0);
      if (mapped != MAP_FAILED) {
        bytes_ = static_cast<const char*>(mapped);
        size_ = static_cast<std::size_t>(info.st_size);
      }
    }
    if (file >= 0) close(file);
  }
  ~MappedFile() {
    if (bytes_ != nullptr) munmap(const_cast<char*>(bytes_), size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  template <class T>
  bool read(std::uint64_t offset, T& out) const {
    if (offset > size_ || size_ - offset < sizeof(T)) return false;
    std::memcpy(&out, bytes_ + offset, sizeof(T));
    return true;
  }
  // A text that ends in the file; empty otherwise.
  std::string text(std::uint64_t offset) const {
    if (offset >= size_) return {};
    const std::size_t length = strnlen(bytes_ + offset, size_ - offset);
    return offset + length < size_ ? std::string(bytes_ + offset, length) : std::string();
  }

 private:
  const char* bytes_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace

std::optional<ElfFile> read_elf(const std::string& path) {
  const MappedFile file(path);
  Elf64_Ehdr header;
  if (!file.read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_shentsize != sizeof(Elf64_Shdr))
    return std::nullopt;
  const auto section = [&](std::size_t index, Elf64_Shdr& out) {
    return index < header.e_shnum && file.read(header.e_shoff + index * sizeof(Elf64_Shdr), out);
  };
  Elf64_Shdr names;
  if (!section(header.e_shstrndx, names)) return std::nullopt;
  ElfFile found;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr part, strings;
    if (!section(i, part)) return std::nullopt;
    if (file.text(names.sh_offset + part.sh_name) == ".nv_fatbin") found.has_device_code = true;
    if (part.sh_type != SHT_DYNAMIC || !section(part.sh_link, strings)) continue;
    Elf64_Dyn entry;
    for (std::uint64_t at = 0; at < part.sh_size && file.read(part.sh_offset + at, entry) && entry.d_tag != DT_NULL; at += sizeof entry) {
      if (entry.d_tag == DT_NEEDED) found.needed.push_back(file.text(strings.sh_offset + entry.d_un.d_val));
    }
  }
  return found;
}

}  // namespace liveset::launch
