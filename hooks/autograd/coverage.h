// What of this torch's autograd can be seen; said once, in the trace's source "autograd".
#pragma once
#include "hooks/autograd/sequence_number.h"

namespace liveset::autograd {

extern SequencePlace sequence_place;
extern bool any_node;  // a node was run through us

}  // namespace liveset::autograd
