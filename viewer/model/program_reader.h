// The general form of a model file, and its regions. Errors are kept in `errors`; then what was read means nothing.
#pragma once
#include "proto/model.pb.h"
#include "viewer/model/file_place.h"
#include "viewer/model/model.h"

namespace liveset::model {

void read_program(const proto::Program& program, const Place& place, const Dims& dims, FileErrors& errors, ModelBuilder& builder);

// Of a finished model: which ops or tensors each region has. No two regions that recompute overlap, no two offload one tensor.
void read_regions(const proto::Model& parsed, const Place& root, FileErrors& errors, Model& model);

// A key of classes{}: "activation", ...
bool read_class(const std::string& name, const Place& place, const char* field, FileErrors& errors, trace::MemoryClass& out);

}  // namespace liveset::model
