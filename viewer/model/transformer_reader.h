// The short form transformer of a model file. Errors are kept in `errors`; then the builder's model means nothing.
#pragma once
#include "proto/model.pb.h"
#include "viewer/model/file_place.h"
#include "viewer/model/model.h"

namespace liveset::model {

// `schedule`: microbatches only; its stages are the transformer's.
void read_transformer(const proto::Transformer& transformer, const Place& place, const proto::Schedule& schedule,
                      const Place& schedule_place, FileErrors& errors, ModelBuilder& builder);

}  // namespace liveset::model
