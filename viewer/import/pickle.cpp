#include "viewer/import/pickle.h"

#include <bit>
#include <limits>

#include "viewer/trace/file_bytes.h"

namespace liveset::imports {
namespace {

enum Opcode : std::uint8_t {
  op_mark = '(',
  op_stop = '.',
  op_pop = '0',
  op_pop_mark = '1',
  op_dup = '2',
  op_binary_float = 'G',
  op_integer4 = 'J',
  op_integer1 = 'K',
  op_integer2 = 'M',
  op_none = 'N',
  op_string4 = 'T',
  op_string1 = 'U',
  op_unicode4 = 'X',
  op_bytes4 = 'B',
  op_bytes1 = 'C',
  op_append = 'a',
  op_dict = 'd',
  op_appends = 'e',
  op_get1 = 'h',
  op_get4 = 'j',
  op_list = 'l',
  op_put1 = 'q',
  op_put4 = 'r',
  op_set_item = 's',
  op_tuple = 't',
  op_set_items = 'u',
  op_empty_tuple = ')',
  op_empty_list = ']',
  op_empty_dict = '}',
  op_protocol = 0x80,
  op_tuple1 = 0x85,
  op_tuple2 = 0x86,
  op_tuple3 = 0x87,
  op_true = 0x88,
  op_false = 0x89,
  op_long1 = 0x8a,
  op_long4 = 0x8b,
  op_unicode1 = 0x8c,
  op_unicode8 = 0x8d,
  op_bytes8 = 0x8e,
  op_empty_set = 0x8f,
  op_add_items = 0x90,
  op_frozen_set = 0x91,
  op_memoize = 0x94,
  op_frame = 0x95,
  op_byte_array8 = 0x96,
};

// What Python's pickle module calls the instructions that are not carried out, and why.
const char* refusal(std::uint8_t opcode) {
  switch (opcode) {
    case 'c': return "GLOBAL, which names code of a program";
    case 0x93: return "STACK_GLOBAL, which names code of a program";
    case 'R': return "REDUCE, which calls code of a program";
    case 'b': return "BUILD, which sets the state of an object";
    case 'o': return "OBJ, which makes an object of a program";
    case 'i': return "INST, which makes an object of a program";
    case 0x81: return "NEWOBJ, which makes an object of a program";
    case 0x92: return "NEWOBJ_EX, which makes an object of a program";
    case 'P': return "PERSID, which fetches an object from elsewhere";
    case 'Q': return "BINPERSID, which fetches an object from elsewhere";
    case 0x82: return "EXT1, which names code of a program";
    case 0x83: return "EXT2, which names code of a program";
    case 0x84: return "EXT4, which names code of a program";
    case 0x97: return "NEXT_BUFFER, which takes data from outside the file";
    case 0x98: return "READONLY_BUFFER, which takes data from outside the file";
    default: return nullptr;
  }
}

// Instructions with a text that ends with its line, which protocols from 2 on need no more.
const char* old_name(std::uint8_t opcode) {
  switch (opcode) {
    case 'I': return "INT";
    case 'L': return "LONG";
    case 'F': return "FLOAT";
    case 'S': return "STRING";
    case 'V': return "UNICODE";
    case 'g': return "GET";
    case 'p': return "PUT";
    default: return nullptr;
  }
}
constexpr const char* write_it_again =
    "protocols 2 to 5 are read; Python writes it again, if you trust it, for loading a pickle runs what it names: "
    "pickle.dump(pickle.load(open('old.pickle', 'rb')), open('new.pickle', 'wb'), protocol=4)";

}  // namespace

class Unpickler {
 public:
  using Kind = Pickle::Kind;
  using Value = Pickle::Value;
  using Id = Pickle::Id;

  Unpickler(Pickle& out, const PickleLimits& limits) : out_(out), limits_(limits) {}

  Status run() {
    // None, True and False are one value each, and so are the numbers of one byte.
    for (const Kind kind : {Kind::none, Kind::boolean, Kind::boolean}) out_.values_.push_back({kind});
    out_.values_[2].payload = 1;
    for (std::uint64_t number = 0; number < 256; ++number) out_.values_.push_back({Kind::integer, 0, number});
    out_.items_.push_back(0);  // so that place 0 is no chunk
    if (looks_like_old_pickle({reinterpret_cast<const char*>(out_.bytes_.data()), out_.bytes_.size()}))
      return error("a pickle of protocol 0 or 1", write_it_again);
    while (!stopped_) {
      begin_ = at_;
      if (at_ == out_.bytes_.size()) return error("the pickle ends without its STOP", "is it a part of a file?");
      if (!step(out_.bytes_[at_++])) return problem_;
    }
    return Done{};
  }

 private:
  static constexpr Id id_none = 0, id_false = 1, id_true = 2, id_numbers = 3;

  Error error(std::string what, std::string hint = "the file is damaged, or no pickle") const {
    return {ErrorKind::unreadable, out_.name_, begin_, std::move(what), std::move(hint)};
  }
  bool fail(std::string what, std::string hint = "the file is damaged, or no pickle") {
    problem_ = error(std::move(what), std::move(hint));
    return false;
  }

  std::uint64_t left() const { return out_.bytes_.size() - at_; }
  // A number of `width` bytes, little endian.
  bool number(unsigned width, std::uint64_t& value) {
    if (left() < width) return fail("the pickle ends inside of an instruction", "is it a part of a file?");
    value = 0;
    for (unsigned i = 0; i < width; ++i) value |= std::uint64_t{out_.bytes_[at_ + i]} << (8 * i);
    at_ += width;
    return true;
  }

  bool make(Value value) {
    if (out_.values_.size() >= limits_.values)
      return fail("the pickle has more than " + std::to_string(limits_.values) + " values", "this version reads no more at once");
    out_.values_.push_back(value);
    return push(static_cast<Id>(out_.values_.size() - 1));
  }
  bool push(Id id) {
    stack_.push_back(id);
    return true;
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  // `count` values above the last mark?
  bool has(std::size_t count) { return stack_.size() - floor() >= count || fail("an instruction finds too few values on the stack"); }
  bool has_mark() { return !marks_.empty() || fail("an instruction finds no mark on the stack"); }

  // A text or bytes of a length of `width` bytes that stands before it.
  bool stretch(Kind kind, unsigned width) {
    std::uint64_t length = 0;
    if (!number(width, length)) return false;
    if (length > left())
      return fail("a length of " + std::to_string(length) + " bytes where " + std::to_string(left()) + " are left",
                  "the file is damaged or torn");
    if (length > std::numeric_limits<std::uint32_t>::max()) return fail("a text of more than 4 GiB", "this version reads none that long");
    const std::uint64_t offset = at_;
    at_ += length;
    return make({kind, static_cast<std::uint32_t>(length), offset});
  }

  bool long_integer(unsigned width) {
    std::uint64_t length = 0;
    if (!number(width, length)) return false;
    if (length > left())
      return fail("a length of " + std::to_string(length) + " bytes where " + std::to_string(left()) + " are left",
                  "the file is damaged or torn");
    const std::uint8_t* bytes = out_.bytes_.data() + at_;
    at_ += length;
    while (length > 8 && bytes[length - 1] == (bytes[length - 2] >= 0x80 ? 0xff : 0)) --length;
    if (length > 8) return make({Kind::wide_integer});
    std::uint64_t value = length != 0 && bytes[length - 1] >= 0x80 ? ~std::uint64_t{0} : 0;  // the sign
    for (std::uint64_t i = length; i-- > 0;) value = value << 8 | bytes[i];
    return make({Kind::integer, 0, value});
  }

  bool real() {
    if (left() < 8) return fail("the pickle ends inside of an instruction", "is it a part of a file?");
    std::uint64_t bits = 0;
    for (unsigned i = 0; i < 8; ++i) bits = bits << 8 | out_.bytes_[at_ + i];
    at_ += 8;
    return make({Kind::real, 0, bits});
  }

  // Adds the stack's values from `first` on to a container.
  bool add(Id id, std::size_t first) {
    const std::size_t count = stack_.size() - first;
    std::vector<std::uint32_t>& items = out_.items_;
    if (items.size() + count + 2 > std::numeric_limits<std::uint32_t>::max())
      return fail("the pickle has too many items", "this version reads up to 4,294,967,295");
    Value& value = out_.values_[id];
    if (count > std::numeric_limits<std::uint32_t>::max() - value.count) return fail("a list that is too long", "this version reads none");
    if (count != 0) {
      const std::uint32_t last = Pickle::last_chunk(value);
      if (last != 0 && last + 2 + items[last + 1] == items.size()) {
        items[last + 1] += static_cast<std::uint32_t>(count);
      } else {
        const auto chunk = static_cast<std::uint32_t>(items.size());
        items.push_back(0);
        items.push_back(static_cast<std::uint32_t>(count));
        if (last != 0) items[last] = chunk;
        value.payload = std::uint64_t{chunk} << 32 | (last == 0 ? chunk : Pickle::first_chunk(value));
      }
      items.insert(items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
      value.count += static_cast<std::uint32_t>(count);
    }
    stack_.resize(first);
    return true;
  }
  // A container of what lies above `first`, in its place.
  bool collect(Kind kind, std::size_t first) {
    if (kind == Kind::dict && (stack_.size() - first) % 2 != 0) return fail("a dict with a key and no value");
    if (out_.values_.size() >= limits_.values) return make({});
    const auto id = static_cast<Id>(out_.values_.size());
    out_.values_.push_back({kind});
    return add(id, first) && push(id);
  }
  bool collect_from_mark(Kind kind) {
    if (!has_mark()) return false;
    const std::size_t first = marks_.back();
    marks_.pop_back();
    return collect(kind, first);
  }
  // To the container that lies below `first`.
  bool extend(Kind kind, std::size_t first) {
    if (first == floor() || first == 0) return fail("an instruction finds too few values on the stack");
    const Id id = stack_[first - 1];
    if (out_.values_[id].kind != kind) return fail("items are added to what takes none");
    if (kind == Kind::dict && (stack_.size() - first) % 2 != 0) return fail("a dict with a key and no value");
    return add(id, first);
  }
  bool extend_from_mark(Kind kind) {
    if (!has_mark()) return false;
    const std::size_t first = marks_.back();
    marks_.pop_back();
    return extend(kind, first);
  }

  bool remember(std::uint64_t place) {
    if (!has(1)) return false;
    // Python numbers them 0, 1, 2, ...: there are never more than instructions.
    if (place >= out_.bytes_.size()) return fail("memo " + std::to_string(place) + " in a file of fewer bytes");
    if (place >= memo_.size()) memo_.resize(place + 1, Pickle::absent);
    remembered_ += memo_[place] == Pickle::absent;
    memo_[place] = stack_.back();
    return true;
  }
  bool recall(std::uint64_t place) {
    if (place >= memo_.size() || memo_[place] == Pickle::absent) return fail("memo " + std::to_string(place) + " holds nothing");
    return push(memo_[place]);
  }

  bool begin_mark() {
    if (marks_.size() >= limits_.depth)
      return fail("values are nested deeper than " + std::to_string(limits_.depth), "a memory snapshot is some five deep");
    marks_.push_back(stack_.size());
    return true;
  }

  bool stop() {
    if (!marks_.empty()) return fail("the pickle stops inside of a list, tuple or dict");
    if (!has(1)) return false;
    out_.root_ = stack_.back();
    out_.bytes_behind_ = left();
    stopped_ = true;
    return true;
  }

  bool framing(std::uint8_t opcode) {
    std::uint64_t value = 0;
    if (!number(opcode == op_protocol ? 1 : 8, value)) return false;
    if (opcode == op_frame)
      return value <= left() || fail("a frame of " + std::to_string(value) + " bytes where " + std::to_string(left()) + " are left",
                                     "the file is damaged or torn");
    if (value > 5) return fail("protocol " + std::to_string(value), "this version reads 2 to 5");
    out_.protocol_ = static_cast<int>(value);
    return true;
  }

  bool integer(unsigned width) {
    std::uint64_t value = 0;
    if (!number(width, value)) return false;
    if (width == 4) value = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(value)});
    return width == 1 ? push(id_numbers + static_cast<Id>(value)) : make({Kind::integer, 0, value});
  }

  bool step(std::uint8_t opcode) {
    std::uint64_t value = 0;
    switch (opcode) {
      case op_protocol:
      case op_frame: return framing(opcode);
      case op_stop: return stop();
      case op_mark: return begin_mark();
      case op_none: return push(id_none);
      case op_false: return push(id_false);
      case op_true: return push(id_true);
      case op_integer1: return integer(1);
      case op_integer2: return integer(2);
      case op_integer4: return integer(4);
      case op_long1: return long_integer(1);
      case op_long4: return long_integer(4);
      case op_binary_float: return real();
      case op_string1:
      case op_unicode1: return stretch(Kind::text, 1);
      case op_string4:
      case op_unicode4: return stretch(Kind::text, 4);
      case op_unicode8: return stretch(Kind::text, 8);
      case op_bytes1: return stretch(Kind::bytes, 1);
      case op_bytes4: return stretch(Kind::bytes, 4);
      case op_bytes8:
      case op_byte_array8: return stretch(Kind::bytes, 8);
      case op_empty_list: return make({Kind::list});
      case op_empty_tuple: return make({Kind::tuple});
      case op_empty_dict: return make({Kind::dict});
      case op_empty_set: return make({Kind::set});
      case op_list: return collect_from_mark(Kind::list);
      case op_tuple: return collect_from_mark(Kind::tuple);
      case op_dict: return collect_from_mark(Kind::dict);
      case op_frozen_set: return collect_from_mark(Kind::set);
      case op_tuple1:
      case op_tuple2:
      case op_tuple3: {
        const std::size_t count = opcode - op_tuple1 + 1U;
        return has(count) && collect(Kind::tuple, stack_.size() - count);
      }
      case op_append: return has(2) && extend(Kind::list, stack_.size() - 1);
      case op_set_item: return has(3) && extend(Kind::dict, stack_.size() - 2);
      case op_appends: return extend_from_mark(Kind::list);
      case op_set_items: return extend_from_mark(Kind::dict);
      case op_add_items: return extend_from_mark(Kind::set);
      case op_put1: return number(1, value) && remember(value);
      case op_put4: return number(4, value) && remember(value);
      case op_memoize: return remember(remembered_);
      case op_get1: return number(1, value) && recall(value);
      case op_get4: return number(4, value) && recall(value);
      case op_dup: return has(1) && push(stack_.back());
      case op_pop:
        if (stack_.size() == floor() && !marks_.empty()) {
          marks_.pop_back();
          return true;
        }
        if (!has(1)) return false;
        stack_.pop_back();
        return true;
      case op_pop_mark:
        if (!has_mark()) return false;
        stack_.resize(marks_.back());
        marks_.pop_back();
        return true;
      default: break;
    }
    if (const char* what = refusal(opcode))
      return fail("refused: " + std::string(what), "plain data needs none of it; nothing was executed");
    if (const char* what = old_name(opcode))
      return fail("refused: " + std::string(what) + ", an instruction of protocols 0 and 1", write_it_again);
    constexpr char digits[] = "0123456789abcdef";
    return fail(std::string("0x") + digits[opcode >> 4] + digits[opcode & 15] + " is no instruction of a pickle");
  }

  Pickle& out_;
  const PickleLimits& limits_;
  std::vector<Id> stack_, memo_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::uint64_t at_ = 0, begin_ = 0, remembered_ = 0;
  bool stopped_ = false;
  Error problem_;
};

Result<Pickle> Pickle::parse(std::vector<std::uint8_t> bytes, std::string name, const PickleLimits& limits) {
  Pickle pickle;
  pickle.bytes_ = std::move(bytes);
  pickle.name_ = std::move(name);
  if (Status status = Unpickler(pickle, limits).run(); !status) return status.take_error();
  return pickle;
}

Result<Pickle> Pickle::read(const std::string& path, const PickleLimits& limits) {
  Result<trace::FileBytes> file = trace::FileBytes::open(path);
  if (!file) return file.take_error();
  Result<std::vector<std::uint8_t>> bytes = file->read_all(limits.file_bytes);
  if (!bytes) return bytes.take_error();
  return parse(std::move(*bytes), path, limits);
}

bool Pickle::integer(Id id, std::int64_t& number) const {
  const Kind found = kind(id);
  if (id == absent || (found != Kind::integer && found != Kind::boolean)) return false;
  number = static_cast<std::int64_t>(values_[id].payload);
  return true;
}

std::string_view Pickle::text(Id id) const {
  if (kind(id) != Kind::text) return {};
  return {reinterpret_cast<const char*>(bytes_.data()) + values_[id].payload, values_[id].count};
}

bool Pickle::truth(Id id) const { return kind(id) == Kind::boolean && values_[id].payload != 0; }

std::uint32_t Pickle::size(Id id) const {
  switch (kind(id)) {
    case Kind::list:
    case Kind::tuple:
    case Kind::set: return values_[id].count;
    case Kind::dict: return values_[id].count / 2;
    default: return 0;
  }
}

Pickle::Id Pickle::find(Id dict, std::string_view key) const {
  Id found = absent;
  for_each_pair(dict, [&](Id name, Id value) {
    if (kind(name) == Kind::text && text(name) == key) found = value;
    return true;
  });
  return found;
}

bool looks_like_pickle(std::string_view beginning) {
  return beginning.size() >= 2 && beginning[0] == '\x80' && beginning[1] >= 2 && beginning[1] <= 5;
}

bool looks_like_old_pickle(std::string_view beginning) {
  const auto begins = [&](std::string_view text) { return beginning.substr(0, text.size()) == text; };
  if (begins("(dp") || begins("(lp")) return beginning.size() > 3 && beginning[3] >= '0' && beginning[3] <= '9';  // 0: "(dp0\n"
  return begins("}q") || begins("]q");
}

}  // namespace liveset::imports
