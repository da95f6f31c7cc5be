// When offloaded values leave the device and when they come back.
//
// A copy to the host begins when the last op before backward that reads the value has run. The value's bytes leave the device when the copy
// is done. How long copies take is not known, so a window of N says it in copies: a value leaves when N later copies have begun, and the
// last N do not leave at all (N = 0: a copy takes no time). Before an op of backward runs, what it reads and the next N values that
// backward needs are brought back. So up to N values are on the device because of copies alone, in either direction.
#pragma once
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "viewer/model/model.h"
#include "viewer/model/policy.h"

namespace liveset::model {

class Offloads {
 public:
  struct Moved {
    std::uint32_t tensor = 0, microbatch = 0;
  };

  // `stays`: by tensor, whether it lives until backward; what a region gives up has nothing to copy.
  Offloads(const Model& model, const std::vector<Offload>& stated, const std::vector<bool>& stays);

  bool empty() const { return windows_.empty(); }
  // `op` of forward or loss has run: what leaves the device now, maybe of an earlier microbatch.
  const std::vector<Moved>& leave_after(std::uint32_t op, std::uint32_t microbatch);
  // `op` is about to run, in backward or for it: what comes back. Some of it may not be away.
  const std::vector<Moved>& return_before(std::uint32_t op, std::uint32_t microbatch);

 private:
  struct Window {
    std::uint64_t size = 0;
    std::deque<Moved> copying;
    std::vector<std::uint32_t> order;                         // tensors as backward needs them
    std::unordered_map<std::uint32_t, std::uint64_t> needed;  // by microbatch: how many of them so far
    std::unordered_map<std::uint32_t, std::uint64_t> back;    // by microbatch: how many of them were brought
  };
  struct Place {
    std::uint32_t window = none;
    std::uint32_t rank = none;  // in Window::order; none: backward does not read it
  };

  const Model& model_;
  std::vector<Window> windows_;
  std::vector<Place> places_;                       // by tensor
  std::vector<std::vector<std::uint32_t>> begins_;  // by op: tensors whose copies begin
  std::vector<Moved> moved_;
};

}  // namespace liveset::model
