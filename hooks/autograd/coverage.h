// What of this torch's autograd can be seen; said once, in the trace's source "autograd".
#pragma once

namespace liveset::autograd {

struct Seen {
  bool nodes;    // a node was run through us
  bool numbers;  // nodes are known by their sequence numbers
  bool returns;  // what the engine does with what a node gave was run through us
};

// After each backward.
void judge_coverage(const Seen& seen);
// At the end of the process, when a backward ran and nothing has been said.
void say_coverage(const Seen& seen);

}  // namespace liveset::autograd
