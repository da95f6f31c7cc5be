// The general form of a model file, and its regions. Errors are kept in `errors`; then what was read means nothing.
#pragma once
#include "proto/model.pb.h"
#include "viewer/model/file_place.h"
#include "viewer/model/model.h"

namespace liveset::model {

void read_program(const proto::Program& program, const Place& place, const Dims& dims, FileErrors& errors, ModelBuilder& builder);

// Of a finished model: which ops each region has. check_regions(): no two regions that recompute overlap; each is in order.
void read_region(const proto::Region& region, const Place& place, FileErrors& errors, Model& model);
void check_regions(const Place& root, FileErrors& errors, const Model& model);

// A key of classes{}: "activation", ...
bool read_class(const std::string& name, const Place& place, const char* field, FileErrors& errors, trace::MemoryClass& out);

}  // namespace liveset::model
