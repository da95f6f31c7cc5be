#include "viewer/model/file_place.h"

#include <utility>

namespace liveset::model {

std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  constexpr std::size_t most = 600;
  if (text.size() <= most) return text;
  // Both ends: where it is, and what is wrong with it.
  const auto inside_character = [&](std::size_t at) { return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  std::size_t head = most / 2, tail = text.size() - most / 2;
  while (inside_character(head)) --head;
  while (inside_character(tail)) ++tail;
  return text.substr(0, head) + "..." + text.substr(tail);
}

Place Place::inner(const char* name, int index) const {
  Place place;
  place.tree = tree != nullptr ? tree->GetTreeForNested(field(name), index) : nullptr;
  place.type = field(name)->message_type();
  place.path = (path.empty() ? "" : path + ".") + name + (index >= 0 ? "[" + std::to_string(index) + "]" : "");
  return place;
}

std::string Place::line(const char* name, int index) const {
  if (tree == nullptr) return "";
  if (index < 0 && field(name)->is_repeated()) index = 0;  // the list as a whole: protobuf ends the program that asks for its place
  int found = tree->GetLocation(field(name), index).line;
  if (found < 0 && index > 0) found = tree->GetLocation(field(name), 0).line;  // [a, b]: only the list's begin is known
  return found < 0 ? "" : "line " + std::to_string(found + 1) + ": ";
}

bool FileErrors::fail(const std::string& what, std::string hint) {
  if (!failed_) error_ = {ErrorKind::unreadable, file_, {}, one_line("bad model: " + what), std::move(hint)};
  failed_ = true;
  return false;
}

bool FileErrors::fail_at(const Place& place, const char* field, int index, const std::string& what, std::string hint) {
  const std::string entry = index >= 0 ? "[" + std::to_string(index) + "]" : "";
  const std::string path = place.path.empty() ? field : place.path + "." + field;
  return fail(place.line(field, index) + path + entry + " " + what, std::move(hint));
}

bool FileErrors::number(const Place& place, const char* field, int index, std::int64_t value, std::int64_t least, std::uint64_t& out) {
  if (value < least) return fail_at(place, field, index, "is " + std::to_string(value) + ", must be at least " + std::to_string(least));
  out = static_cast<std::uint64_t>(value);
  return true;
}

bool FileErrors::size(const Place& place, const char* field, bool given, std::int64_t value, const char* expression,
                      const std::string& text, const Dims& dims, std::uint64_t& out) {
  if (given && !text.empty()) return fail_at(place, expression, -1, std::string("and ") + field + " are both given; give one of them");
  if (given) return number(place, field, -1, value, 0, out);
  if (text.empty()) return true;
  const Result<std::int64_t> result = evaluate(text, dims);
  if (!result) return fail_at(place, expression, -1, "'" + text + "' " + result.error().what);
  if (*result < 0) return fail_at(place, expression, -1, "'" + text + "' is " + std::to_string(*result) + ", must be at least 0");
  out = static_cast<std::uint64_t>(*result);
  return true;
}

}  // namespace liveset::model
