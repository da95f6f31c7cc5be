// Recurrent networks of cuDNN. The weight space follows from the definition of the cells: for every layer and direction one matrix
// from the input and one from the hidden state per gate, two biases per gate, and a projection where the LSTM has one. All matrices
// come first, then all biases. This is exact, so parameters, gradients and optimizer state are.
//
// Workspace and reserve space are not published. Stated is what the definition needs at least, labelled as an assumption: in the
// reserve space every gate (and the cell state of an LSTM) of every step for backward, in the workspace the gates before activation.
#include <algorithm>

#include "hooks/standin/libraries/cudnn_descriptors.h"
#include "hooks/standin/libraries/library.h"

using namespace standin;
using namespace standin::cudnn;

namespace {

enum Cell { cell_relu = 0, cell_tanh = 1, cell_lstm = 2, cell_gru = 3 };
enum BiasMode { bias_none = 0, bias_input = 1, bias_both = 2, bias_recurrent = 3 };
constexpr int forward_mode_training = 1;

struct Network {
  int cell;
  int bias_mode;
  int directions;
  int type;
  int input;
  int hidden;
  int projection;  // what the hidden state is projected to; `hidden` when nothing is
  int layers;
};

struct Sequences {
  int type;
  int layout;
  int steps;
  int batch;
  int features;
};

int gates(const Network& network) {
  switch (network.cell) {
    case cell_lstm: return 4;
    case cell_gru: return 3;
    default: return 1;
  }
}

bool projected(const Network& network) { return network.projection != network.hidden; }

// Width of what goes into a pseudo-layer (layer * directions + direction).
std::size_t input_width(const Network& network, int pseudo_layer) {
  const bool first = pseudo_layer / network.directions == 0;
  return static_cast<std::size_t>(first ? network.input : network.projection * network.directions);
}

// Elements of one gate's matrix from the input, and from the hidden state.
std::size_t input_matrix(const Network& network, int pseudo_layer) {
  return input_width(network, pseudo_layer) * static_cast<std::size_t>(network.hidden);
}
std::size_t recurrent_matrix(const Network& network) {
  return static_cast<std::size_t>(network.projection) * static_cast<std::size_t>(network.hidden);
}
std::size_t projection_matrix(const Network& network) { return projected(network) ? recurrent_matrix(network) : 0; }

std::size_t matrices(const Network& network, int pseudo_layer) {
  return static_cast<std::size_t>(gates(network)) * (input_matrix(network, pseudo_layer) + recurrent_matrix(network)) +
         projection_matrix(network);
}

int bias_groups(const Network& network) { return network.bias_mode == bias_none ? 0 : network.bias_mode == bias_both ? 2 : 1; }

std::size_t biases(const Network& network) {
  return static_cast<std::size_t>(bias_groups(network) * gates(network)) * static_cast<std::size_t>(network.hidden);
}

std::size_t all_matrices(const Network& network) {
  std::size_t total = 0;
  for (int i = 0; i < network.layers * network.directions; i++) total += matrices(network, i);
  return total;
}

struct Place {
  std::size_t offset = 0;  // in elements
  int rows = 0;            // 0: there is no such matrix or bias
  int columns = 1;
};

// Linear layers of a cell: gates from the input, gates from the hidden state, then the projection.
Place matrix_place(const Network& network, int pseudo_layer, int linear) {
  Place place;
  for (int i = 0; i < pseudo_layer; i++) place.offset += matrices(network, i);
  const int count = gates(network);
  if (linear < count) {
    place.offset += static_cast<std::size_t>(linear) * input_matrix(network, pseudo_layer);
    place.rows = network.hidden;
    place.columns = static_cast<int>(input_width(network, pseudo_layer));
    return place;
  }
  place.offset += static_cast<std::size_t>(count) * input_matrix(network, pseudo_layer);
  if (linear < 2 * count) {
    place.offset += static_cast<std::size_t>(linear - count) * recurrent_matrix(network);
    place.rows = network.hidden;
    place.columns = network.projection;
  } else if (linear == 2 * count && projected(network)) {
    place.offset += static_cast<std::size_t>(count) * recurrent_matrix(network);
    place.rows = network.projection;
    place.columns = network.hidden;
  }
  return place;
}

Place bias_place(const Network& network, int pseudo_layer, int linear) {
  const int count = gates(network);
  const bool from_input = linear < count;
  Place place;
  if (linear >= 2 * count || network.bias_mode == bias_none) return place;
  if (network.bias_mode == bias_input && !from_input) return place;
  if (network.bias_mode == bias_recurrent && from_input) return place;
  const int index = network.bias_mode == bias_recurrent ? linear - count : linear;
  place.offset = all_matrices(network) + static_cast<std::size_t>(pseudo_layer) * biases(network) +
                 static_cast<std::size_t>(index) * static_cast<std::size_t>(network.hidden);
  place.rows = network.hidden;
  return place;
}

// Writes the address and shape of one matrix or bias.
void show(const Network& network, const Place& place, const void* weights, Tensor* shape, void** address) {
  const int extents[] = {1, place.rows, place.columns};
  if (shape) set_packed(*shape, network.type, 3, extents);
  if (!address) return;
  const auto* bytes = static_cast<const char*>(weights) + place.offset * element_bytes(network.type);
  *address = place.rows == 0 || !weights ? nullptr : const_cast<char*>(bytes);
}

}  // namespace

extern "C" {

int cudnnCreateRNNDescriptor(Network** network) { return create(network); }

int cudnnSetRNNDescriptor_v8(Network* network, int, int cell, int bias_mode, int direction_mode, int, int type, int, int,
                             std::int32_t input, std::int32_t hidden, std::int32_t projection, std::int32_t layers, void*, std::uint32_t) {
  if (!network || hidden < 1 || layers < 1) return bad_parameter;
  *network = {cell, bias_mode, direction_mode == 1 ? 2 : 1, type, input, hidden, projection > 0 ? projection : hidden, layers};
  return success;
}

int cudnnGetRNNWeightSpaceSize(void*, const Network* network, std::size_t* bytes) {
  if (!network) return bad_parameter;
  const auto pseudo_layers = static_cast<std::size_t>(network->layers * network->directions);
  answer(bytes, (all_matrices(*network) + pseudo_layers * biases(*network)) * element_bytes(network->type));
  return success;
}

int cudnnGetRNNWeightParams(void*, const Network* network, std::int32_t pseudo_layer, std::size_t, const void* weights, std::int32_t linear,
                            Tensor* matrix_shape, void** matrix, Tensor* bias_shape, void** bias) {
  if (!network || pseudo_layer < 0 || pseudo_layer >= network->layers * network->directions || linear < 0) return bad_parameter;
  show(*network, matrix_place(*network, pseudo_layer, linear), weights, matrix_shape, matrix);
  show(*network, bias_place(*network, pseudo_layer, linear), weights, bias_shape, bias);
  return success;
}

int cudnnCreateRNNDataDescriptor(Sequences** sequences) { return create(sequences); }

int cudnnSetRNNDataDescriptor(Sequences* sequences, int type, int layout, int steps, int batch, int features, const int*, void*) {
  if (!sequences) return bad_parameter;
  *sequences = {type, layout, steps, batch, features};
  return success;
}

int cudnnGetRNNTempSpaceSizes(void*, const Network* network, int forward_mode, const Sequences* input, std::size_t* workspace,
                              std::size_t* reserve) {
  if (!network || !input) return bad_parameter;
  liveset_standin_estimate("workspace", "cuDNN recurrent network: workspace and reserve space");
  const std::size_t cells = static_cast<std::size_t>(input->steps) * static_cast<std::size_t>(input->batch) *
                            static_cast<std::size_t>(network->hidden * network->directions) * element_bytes(network->type);
  const auto kept = static_cast<std::size_t>(gates(*network) + (network->cell == cell_lstm ? 1 : 0));
  answer(workspace, cells * static_cast<std::size_t>(gates(*network)));
  answer(reserve, forward_mode == forward_mode_training ? cells * kept * static_cast<std::size_t>(network->layers) : 0);
  return success;
}

}  // extern "C"
