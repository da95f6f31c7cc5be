// The transformers of acceptance/transformer.json.
#pragma once
#include <nlohmann/json.hpp>

#include "viewer/model/transformer.h"

namespace liveset::test {

inline model::TransformerShape shape_of(const nlohmann::json& config) {
  model::TransformerShape shape;
  shape.sequence = config.at("s");
  shape.micro_batch = config.at("b");
  shape.hidden = config.at("h");
  shape.heads = config.at("a");
  shape.layers = config.at("L");
  shape.tensor = config.at("t");
  shape.pipeline = config.at("p");
  shape.interleave = config.at("m");
  shape.vocabulary = config.at("V");
  return shape;
}

}  // namespace liveset::test
