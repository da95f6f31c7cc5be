// Contexts: the primary one of each device, which exists while it is retained, and those that programs make. Making one costs the
// device its context bytes; with one the plain allocations that were made in it go. Thread-safe.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "hooks/standin/model/memory.h"

namespace standin {

struct Context {
  int device = 0;
  bool primary = false;
  unsigned flags = 0;
  std::uint64_t id = 0;
};

class Contexts {
 public:
  Contexts(Memory& memory, const Configuration& configuration);

  // `first`: this call made it.
  Error retain_primary(int device, Context** context, bool* first);
  Error release_primary(int device);
  // Away with it, however often it is retained.
  Error reset_primary(int device);
  bool is_primary_active(int device) const;
  Error set_primary_flags(int device, unsigned flags);
  unsigned primary_flags(int device) const;

  Error create(int device, unsigned flags, Context** context);
  Error destroy(Context* context);
  bool is_context(const Context* context) const;

  // Of the first context to the second's memory.
  Error enable_peer(const Context* context, const Context* peer);
  Error disable_peer(const Context* context, const Context* peer);

 private:
  struct Primary {
    Context context;
    int references = 0;
  };

  void end_primary(int device);

  Memory& memory_;
  const Configuration& configuration_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Primary>> primaries_;
  std::map<const Context*, std::unique_ptr<Context>> created_;
  std::set<std::pair<const Context*, const Context*>> peers_;
  std::uint64_t next_id_ = 1;
};

}  // namespace standin
