// Where something stands in a model file, for error texts; and the reading of numbers that may be expressions.
#pragma once
#include <google/protobuf/text_format.h>

#include <cstdint>
#include <string>

#include "viewer/model/expression.h"
#include "viewer/trace/result.h"

namespace liveset::model {

// Names from a file may hold anything, and much of it; a message is one line, and must not act on the terminal. Of a long one both ends.
std::string one_line(std::string text);

// A message of the file; index -1 is a field that is not repeated. The tree is null for JSON, which keeps no lines.
struct Place {
  using Tree = google::protobuf::TextFormat::ParseInfoTree;
  const Tree* tree = nullptr;
  const google::protobuf::Descriptor* type = nullptr;
  std::string path;  // "graph.layer[2]"

  const google::protobuf::FieldDescriptor* field(const char* name) const { return type->FindFieldByName(name); }
  Place inner(const char* name, int index = -1) const;
  std::string line(const char* name, int index) const;  // "line 3: "; empty: not known
};

// Keeps the first error.
class FileErrors {
 public:
  explicit FileErrors(std::string file) : file_(std::move(file)) {}

  bool failed() const { return failed_; }
  Error take() { return std::move(error_); }

  bool fail(const std::string& what, std::string hint = "");
  bool fail_at(const Place& place, const char* field, int index, const std::string& what, std::string hint = "");
  // A number of the file that must be at least `least`.
  bool number(const Place& place, const char* field, int index, std::int64_t value, std::int64_t least, std::uint64_t& out);
  // One of the two fields: the number, or the expression. Neither: `out` stays.
  bool size(const Place& place, const char* field, bool given, std::int64_t value, const char* expression, const std::string& text,
            const Dims& dims, std::uint64_t& out);

 private:
  std::string file_;
  bool failed_ = false;
  Error error_;
};

}  // namespace liveset::model
