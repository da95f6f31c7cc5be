// What can go wrong with files, as a value that must be looked at. Exceptions are for bugs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace liveset {

enum class ErrorKind {
  usage,       // exit 2: the caller asked for something that makes no sense
  unreadable,  // exit 3: missing, not a trace, corrupt, too new
  truncated,   // exit 4: read in part
};

struct Error {
  ErrorKind kind = ErrorKind::unreadable;
  std::string file;                     // empty when no file is concerned
  std::optional<std::uint64_t> offset;  // byte offset in it
  std::string what;                     // what is wrong, lower case, no full stop
  std::string hint;                     // what to try next; may be empty

  // One line: "FILE: at byte N: WHAT (HINT)".
  std::string message() const {
    std::string text;
    if (!file.empty()) text += file + ": ";
    if (offset) text += "at byte " + std::to_string(*offset) + ": ";
    text += what;
    if (!hint.empty()) text += " (" + hint + ")";
    return text;
  }
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}
  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }
  Error&& take_error() { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

struct Done {};
using Status = Result<Done>;

}  // namespace liveset
