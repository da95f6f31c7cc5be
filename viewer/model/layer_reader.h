// The short forms of a model file that are made of layers. Errors are kept in `errors`; then the builder's model means nothing.
#pragma once
#include "proto/model.pb.h"
#include "viewer/model/file_place.h"
#include "viewer/model/model.h"

namespace liveset::model {

void read_chain(const proto::Chain& chain, const Place& place, const Dims& dims, FileErrors& errors, ModelBuilder& builder);
void read_graph(const proto::Graph& graph, const Place& place, const Dims& dims, FileErrors& errors, ModelBuilder& builder);
void read_rotor_chain(const proto::RotorChain& chain, const Place& place, FileErrors& errors, ModelBuilder& builder);

}  // namespace liveset::model
