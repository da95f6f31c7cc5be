// The short form mlp of a model file: one training step of nn.Sequential(nn.Linear, activation, nn.Linear, ...) on the CPU, as PyTorch 2.14
// runs it, block by block.
//
// The step, for a batch B and widths w0 .. wn, e bytes an element:
//
//   forward    a linear makes B w e; ReLU and tanh save what they make, so their input goes; GELU saves its input
//   mse        the loss's storage is as large as the output, B wn e, and lives until backward is over
//   sum        the output goes, and the last linear copies the gradient, which is one number, twice: a temporary of B wn e
//   backward   the gradient of a linear's input (not of the first's), of its weight, of its bias, all before its own gradient goes
//   optimizer  Adam makes two temporaries of a parameter's size, of which one goes when the next parameter has its own
//
// A region of torch.utils.checkpoint is one linear with its activation, or several. Units are those pairs, "layer.1" and on.
#pragma once
#include "proto/model.pb.h"
#include "viewer/model/file_place.h"
#include "viewer/model/model.h"

namespace liveset::model {

// Errors are kept in `errors`; then the builder's model means nothing.
void read_mlp(const proto::Mlp& mlp, const Place& place, FileErrors& errors, ModelBuilder& builder);

}  // namespace liveset::model
