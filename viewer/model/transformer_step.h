// A pipeline stage of a transformer as a list of ops, so that policies, planners and comparisons know it as any other model.
//
// The tensors are those of stored_tensors(), the working sets of backward those of backward_steps(), the statics those of
// transformer_memory(): the largest moment of the list is the largest of TransformerMemory, to the byte, under save-all, under `full`
// (Recompute::full) and under `regions:core_attention` (Recompute::selective). Units are the layers; what stands before and after them
// is kept. A forward has no working set beyond what is stored, because the formulas have none.
//
// Microbatches and chunks run as 1F1B, plain or interleaved: in_flight() passes before the first backward.
#pragma once
#include "viewer/model/model.h"
#include "viewer/model/transformer.h"

namespace liveset::model {

// The shape must say how many microbatches there are, and recompute nothing. Errors (usage): as check() and transformer_blocks(); layers
// that do not make whole chunks.
Status add_transformer(ModelBuilder& builder, const TransformerShape& shape, std::uint64_t stage);

// The least number of microbatches that keeps every stage busy.
std::uint64_t busy_microbatches(std::uint64_t pipeline, std::uint64_t interleave);

}  // namespace liveset::model
