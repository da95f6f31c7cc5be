#include "viewer/trace/symbols.h"

#include <cxxabi.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "viewer/trace/file_bytes.h"

namespace liveset::trace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t max_table_bytes = 256U << 20;
constexpr std::uint64_t max_name_bytes = 4096;
constexpr std::uint64_t piece_bytes = 1U << 20;

// A 64-bit ELF file of this machine's byte order. Nothing in it is trusted.
class ElfFile {
 public:
  static std::optional<ElfFile> open(const std::string& path) {
    Result<FileBytes> file = FileBytes::open(path);
    if (!file) return std::nullopt;
    ElfFile elf(std::move(*file));
    if (!elf.read_at(0, elf.header_) || std::memcmp(elf.header_.e_ident, ELFMAG, SELFMAG) != 0 ||
        elf.header_.e_ident[EI_CLASS] != ELFCLASS64 || elf.header_.e_shentsize != sizeof(Elf64_Shdr) ||
        elf.header_.e_phentsize != sizeof(Elf64_Phdr))
      return std::nullopt;
    return elf;
  }

  std::string build_id() const {
    for (unsigned i = 0; i < header_.e_phnum; ++i) {
      Elf64_Phdr segment;
      if (!read_at(header_.e_phoff + i * sizeof segment, segment)) return "";
      if (segment.p_type != PT_NOTE) continue;
      if (std::string id = build_id_of(segment.p_offset, std::min<std::uint64_t>(segment.p_filesz, 65536)); !id.empty()) return id;
    }
    return "";
  }

  // Calls visit(begin, end, offset of the name) for each function. False when it ended because the time is over.
  template <class Visit>
  bool for_each_function(Clock::time_point end, const Visit& visit) const {
    for (unsigned i = 0; i < header_.e_shnum; ++i) {
      Elf64_Shdr table, names;
      if (!read_at(header_.e_shoff + i * sizeof table, table)) return true;
      if ((table.sh_type != SHT_SYMTAB && table.sh_type != SHT_DYNSYM) || table.sh_link >= header_.e_shnum) continue;
      if (!read_at(header_.e_shoff + table.sh_link * sizeof names, names)) continue;
      if (!for_each_in(table.sh_offset, std::min(table.sh_size, max_table_bytes), names.sh_offset, end, visit)) return false;
    }
    return true;
  }

  std::string name_at(std::uint64_t offset) const {
    const std::uint64_t length = offset < file_.size() ? std::min(max_name_bytes, file_.size() - offset) : 0;
    PaddedBuffer buffer;
    Result<Bytes> bytes = file_.read(offset, length, buffer);
    if (!bytes) return "";
    const auto end = std::find(bytes->begin(), bytes->end(), std::uint8_t{0});
    return {bytes->begin(), end == bytes->end() ? bytes->begin() : end};
  }

 private:
  explicit ElfFile(FileBytes file) : file_(std::move(file)) {}

  template <class T>
  bool read_at(std::uint64_t offset, T& out) const {
    if (offset > file_.size() || file_.size() - offset < sizeof out) return false;
    PaddedBuffer buffer;
    Result<Bytes> bytes = file_.read(offset, sizeof out, buffer);
    if (bytes) std::memcpy(&out, bytes->data(), sizeof out);
    return static_cast<bool>(bytes);
  }

  std::string build_id_of(std::uint64_t offset, std::uint64_t bytes) const {
    PaddedBuffer buffer;
    if (offset > file_.size() || file_.size() - offset < bytes) return "";
    Result<Bytes> notes = file_.read(offset, bytes, buffer);
    if (!notes) return "";
    std::size_t at = 0;
    Elf64_Nhdr note;
    while (notes->size() - at >= sizeof note) {
      std::memcpy(&note, notes->data() + at, sizeof note);
      const std::uint64_t name = at + sizeof note, text = name + (note.n_namesz + 3ULL) / 4 * 4,
                          end = text + (note.n_descsz + 3ULL) / 4 * 4;
      if (end > notes->size()) return "";
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes->data() + name, "GNU", 4) == 0) {
        std::string id;
        for (std::uint32_t i = 0; i < note.n_descsz; ++i) {
          id += "0123456789abcdef"[(*notes)[text + i] >> 4];
          id += "0123456789abcdef"[(*notes)[text + i] & 15];
        }
        return id;
      }
      at = end;
    }
    return "";
  }

  template <class Visit>
  bool for_each_in(std::uint64_t offset, std::uint64_t bytes, std::uint64_t names, Clock::time_point end, const Visit& visit) const {
    PaddedBuffer buffer;
    constexpr std::uint64_t piece = piece_bytes / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
    for (std::uint64_t done = 0; done < bytes; done += piece) {
      if (Clock::now() > end) return false;
      const std::uint64_t length = std::min(piece, bytes - done) / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
      if (offset + done > file_.size() || file_.size() - offset - done < length) return true;
      Result<Bytes> symbols = file_.read(offset + done, length, buffer);
      if (!symbols) return true;
      for (std::uint64_t at = 0; at < length; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        std::memcpy(&symbol, symbols->data() + at, sizeof symbol);
        const unsigned type = ELF64_ST_TYPE(symbol.st_info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0) continue;
        visit(symbol.st_value, symbol.st_value + symbol.st_size, names + symbol.st_name);
      }
    }
    return true;
  }

  FileBytes file_;
  Elf64_Ehdr header_{};
};

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text != nullptr ? std::string(text.get()).substr(0, max_name_bytes) : name;
}

struct Wanted {
  std::uint64_t offset = 0;
  Frame* frame = nullptr;
};

// False when the time is over.
bool name_frames(const ElfFile& elf, std::vector<Wanted>& wanted, Dictionary& dictionary, Clock::time_point end, Symbols& result) {
  std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) { return a.offset < b.offset; });
  std::map<std::uint64_t, std::uint32_t> names;  // by their offset in the file
  return elf.for_each_function(end, [&](std::uint64_t first, std::uint64_t last, std::uint64_t name) {
    auto at =
        std::lower_bound(wanted.begin(), wanted.end(), first, [](const Wanted& one, std::uint64_t offset) { return one.offset < offset; });
    for (; at != wanted.end() && at->offset < last; ++at) {
      if (at->frame->function != 0) continue;
      auto [known, is_new] = names.try_emplace(name, 0);
      if (is_new) {
        const std::string text = elf.name_at(name);
        if (!text.empty()) {
          dictionary.strings.push_back(demangled(text));
          known->second = static_cast<std::uint32_t>(dictionary.strings.size() - 1);
        }
      }
      at->frame->function = known->second;
      result.named += known->second != 0 ? 1 : 0;
    }
  });
}

}  // namespace

Symbols name_native_frames(Dictionary& dictionary, std::chrono::milliseconds budget) {
  const Clock::time_point end = Clock::now() + budget;
  Symbols result;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Wanted>> files;  // by file and build id
  for (Frame& frame : dictionary.frames) {
    if (frame.offset == 0 || frame.file == 0) continue;
    ++result.frames;
    if (frame.function == 0 && frame.build_id != 0) files[{frame.file, frame.build_id}].push_back({frame.offset, &frame});
  }
  std::vector<std::pair<std::pair<std::uint32_t, std::uint32_t>, std::vector<Wanted>>> order(files.begin(), files.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  if (!order.empty() && dictionary.strings.empty()) dictionary.strings.emplace_back();
  for (auto& [key, wanted] : order) {
    if ((result.out_of_time = Clock::now() > end)) break;
    const std::optional<ElfFile> elf = ElfFile::open(std::string(dictionary.string(key.first)));
    if (!elf || elf->build_id() != dictionary.string(key.second)) {
      ++result.files_missing;
      continue;
    }
    if ((result.out_of_time = !name_frames(*elf, wanted, dictionary, end, result))) break;
  }
  return result;
}

}  // namespace liveset::trace
