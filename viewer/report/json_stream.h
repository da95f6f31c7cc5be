// Writes a JSON object whose long lists go out row by row, a line each: a report of millions of rows is never a tree in memory.
#pragma once
#include <nlohmann/json.hpp>
#include <ostream>

namespace liveset::report {

class JsonStream {
 public:
  explicit JsonStream(std::ostream& out) : out_(out) { out_ << "{"; }
  JsonStream(const JsonStream&) = delete;
  JsonStream& operator=(const JsonStream&) = delete;
  ~JsonStream() { out_ << "\n}\n"; }

  // All members of an object.
  void members(const nlohmann::ordered_json& object) {
    for (const auto& [key, value] : object.items()) {
      next(key);
      write(value);
    }
  }
  template <class Rows, class ToJson>
  void list(const char* key, const Rows& rows, const ToJson& to_json) {
    next(key);
    const char* before = "[\n  ";
    for (const auto& row : rows) {
      out_ << before;
      write(to_json(row));
      before = ",\n  ";
    }
    out_ << (rows.empty() ? "[]" : "\n ]");
  }

 private:
  void next(const std::string& key) {
    out_ << (is_first_ ? "\n " : ",\n ");
    write(key);
    out_ << ": ";
    is_first_ = false;
  }
  void write(const nlohmann::ordered_json& value) { out_ << value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace); }

  std::ostream& out_;
  bool is_first_ = true;
};

}  // namespace liveset::report
