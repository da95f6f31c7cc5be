// A restricted reader of Python pickles, protocols 2 to 5: plain data only.
//
// A pickle is a program for a small stack machine. Of its instructions those that name, call or build an object of a program, or fetch
// one from elsewhere (GLOBAL, REDUCE, BUILD, PERSID, EXT1, ...), are refused where they stand; nothing is ever executed. What is left
// makes numbers, texts, lists, tuples, dicts and sets. There is no recursion: neither deep nesting nor a list that contains itself costs
// more than its bytes. Every length is checked against what is left of the file before room is made for it.
//
// All values lie in one array of 16 bytes each and name each other by index; texts stay where they are in the file. A value that the
// file shares (by its memo) is shared here, so what is done once for a value is done once for all who refer to it. Memory: the file's
// size, and up to some 40 times that for a file of nothing but nested tuples; some 4 times for memory snapshots.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/trace/result.h"

namespace liveset::imports {

struct PickleLimits {
  std::uint64_t file_bytes = std::uint64_t{4} << 30;
  std::uint32_t values = 2'000'000'000;
  std::uint32_t depth = 10'000;  // lists, tuples and dicts that are begun and not ended
};

class Pickle {
 public:
  using Id = std::uint32_t;
  static constexpr Id absent = 0xffffffffU;
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    wide_integer,  // beyond 64 bits with sign: its value is not kept
    real,
    text,
    bytes,
    list,
    tuple,
    dict,
    set,
  };

  // Errors (unreadable) name the offset, and what stands there: a refused instruction, a length beyond the end, ...
  static Result<Pickle> read(const std::string& path, const PickleLimits& limits = {});
  // `name` is what errors call the file.
  static Result<Pickle> parse(std::vector<std::uint8_t> bytes, std::string name, const PickleLimits& limits = {});

  Id root() const { return root_; }
  std::uint32_t values() const { return static_cast<std::uint32_t>(values_.size()); }
  int protocol() const { return protocol_; }
  const std::string& name() const { return name_; }
  std::uint64_t file_bytes() const { return bytes_.size(); }
  // Behind the STOP of the pickle, where its file should end. They were not read.
  std::uint64_t bytes_behind() const { return bytes_behind_; }
  std::uint64_t memory_bytes() const { return bytes_.size() + values_.size() * sizeof(Value) + items_.size() * sizeof(Id); }

  // All take `absent`, which is a value of kind none.
  Kind kind(Id id) const { return id < values_.size() ? values_[id].kind : Kind::none; }
  bool is_sequence(Id id) const { return kind(id) == Kind::list || kind(id) == Kind::tuple; }
  // False where it is no integer (True and False are, as in Python) of 64 bits.
  bool integer(Id id, std::int64_t& number) const;
  // "" where it is no text.
  std::string_view text(Id id) const;
  bool truth(Id id) const;  // of a boolean; everything else is false
  // Items of a list, tuple or set, pairs of a dict; 0 of everything else.
  std::uint32_t size(Id id) const;

  // visit(item) of a list, tuple or set, in order; visit(key, value) of a dict. Both end when it returns false.
  template <class Visit>
  void for_each(Id id, Visit visit) const {
    if (kind(id) != Kind::list && kind(id) != Kind::tuple && kind(id) != Kind::set) return;
    walk(id, [&](const std::uint32_t* items, std::uint32_t count) {
      for (std::uint32_t i = 0; i < count; ++i)
        if (!visit(items[i])) return false;
      return true;
    });
  }
  template <class Visit>
  void for_each_pair(Id id, Visit visit) const {
    if (kind(id) != Kind::dict) return;
    walk(id, [&](const std::uint32_t* items, std::uint32_t count) {
      for (std::uint32_t i = 0; i + 1 < count; i += 2)
        if (!visit(items[i], items[i + 1])) return false;
      return true;
    });
  }
  // The value of a key that is a text; the last of several, as Python has it. Looks at every pair: for small dicts.
  Id find(Id dict, std::string_view key) const;

 private:
  friend class Unpickler;
  struct Value {
    Kind kind = Kind::none;
    std::uint32_t count = 0;    // of a container: entries of items_; of a text: bytes
    std::uint64_t payload = 0;  // the number, the offset in the file, or a container's first and last chunk
  };
  static_assert(sizeof(Value) == 16);
  // A chunk of items_: the next chunk's place (0: none), how many entries, the entries. Place 0 is no chunk.
  static std::uint32_t first_chunk(const Value& value) { return static_cast<std::uint32_t>(value.payload); }
  static std::uint32_t last_chunk(const Value& value) { return static_cast<std::uint32_t>(value.payload >> 32); }
  template <class Visit>
  void walk(Id id, Visit visit) const {
    for (std::uint32_t chunk = first_chunk(values_[id]); chunk != 0; chunk = items_[chunk])
      if (!visit(items_.data() + chunk + 2, items_[chunk + 1])) return;
  }

  std::vector<std::uint8_t> bytes_;
  std::vector<Value> values_;
  std::vector<std::uint32_t> items_;
  std::string name_;
  Id root_ = absent;
  int protocol_ = 0;
  std::uint64_t bytes_behind_ = 0;
};

// Whether a file that begins like this is a pickle of protocol 2 or later.
bool looks_like_pickle(std::string_view beginning);
// Of protocol 0 or 1, as Python writes a dict or a list there. These protocols have no mark of their own.
bool looks_like_old_pickle(std::string_view beginning);

}  // namespace liveset::imports
