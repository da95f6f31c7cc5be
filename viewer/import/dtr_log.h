// Operator logs of the prototype of dynamic tensor rematerialization (DTR): one JSON object a line, one forward and backward pass.
//
// CONSTANT and CALL make tensors, COPY and COPY_FROM give them further names, RELEASE takes names away. A tensor is a storage of its own
// or a view of another one's; a storage is freed when its last name is gone. Sizes are those of storages, before any allocator's rounding;
// scratch memory of operators is not in the log.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/trace/result.h"

namespace liveset::imports {

struct DtrFacts {
  std::map<std::string, std::uint64_t> records;  // how many of each kind
  std::uint64_t peak_bytes = 0, peak_line = 0;   // line, from 1, of the CONSTANT or CALL that reaches it first
  std::uint64_t end_live_bytes = 0, end_live_names = 0, constant_bytes = 0;
};

// What happens to storages, in the order of the log.
class DtrVisitor {
 public:
  virtual ~DtrVisitor() = default;
  virtual void backward_begins() = 0;
  virtual void call_begins(std::string_view op, std::uint64_t time_ns) = 0;  // in-place calls, too
  virtual void call_ends() = 0;
  virtual void create(std::uint64_t storage, std::string_view name, std::uint64_t bytes) = 0;  // storages are numbered from 0
  virtual void free(std::uint64_t storage) = 0;
};

// Errors (unreadable) name the line: what is no record, names that nothing made, sizes that no memory has.
Result<DtrFacts> read_dtr_log(const std::string& path, DtrVisitor* visitor = nullptr);

}  // namespace liveset::imports
