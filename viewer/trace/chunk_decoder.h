// From a chunk's encoded columns to arrays of numbers.
#pragma once
#include <string>

#include "viewer/trace/messages.h"
#include "viewer/trace/trace_file.h"

namespace liveset::trace {

// Decodes KIND and the columns of `mask` into `out` (not first_event and first_allocation). Where the file's layout
// differs from ours for a kind, the columns come out as ours has them. Sets `why` when the result is false.
bool decode_chunk(const ChunkView& chunk, const Layout& layout, ColumnMask mask, Columns& out, std::string& why);

}  // namespace liveset::trace
