#!/usr/bin/env python3
"""The six-layer tanh chain in PyTorch, float64: all activations saved, or recomputed by segment. Knows nothing of liveset.

h_i = tanh(w_i h_{i-1}), loss = h_6^2 / 2. Prints one JSON object with the loss, the gradients, and how many layers ran forward.
"""
import argparse
import json

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

INPUT = 0.8
WEIGHTS = [0.9, 1.1, 0.8, 1.2, 0.7, 1.05]


class Layer(nn.Module):
    executed = 0

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float64))

    def forward(self, h):
        Layer.executed += 1
        return torch.tanh(self.weight * h)


class Chain(nn.Module):
    def __init__(self, segment):
        super().__init__()
        self.segment = segment  # layers a segment, None: save all
        self.layers = nn.ModuleList([Layer(weight) for weight in WEIGHTS])

    def forward(self, h):
        if self.segment is None:
            return run_layers(self.layers, h)
        for begin in range(0, len(self.layers), self.segment):
            layers = self.layers[begin:begin + self.segment]
            # Nothing in a segment is random, so no random state is kept for it.
            h = checkpoint(run_layers, layers, h, use_reentrant=False, preserve_rng_state=False)
        return h


def run_layers(layers, h):
    for layer in layers:
        h = layer(h)
    return h


def train_step(segment):
    """-> loss, gradients of the weights, gradient of the input, layers executed"""
    model = Chain(segment)
    h0 = torch.tensor(INPUT, dtype=torch.float64, requires_grad=True)
    executed = Layer.executed
    # The account that this sample is compared with runs every segment again to its end.
    with set_checkpoint_early_stop(False):
        h = model(h0)
        loss = 0.5 * (h * h)
        loss.backward()
    gradients = [layer.weight.grad.item() for layer in model.layers]
    return loss.item(), gradients, h0.grad.item(), Layer.executed - executed


def segment_of(policy):
    if policy == "save-all":
        return None
    kind, _, length = policy.partition(":")
    if kind != "segment" or not length.isdigit() or int(length) < 1:
        raise argparse.ArgumentTypeError(f"'{policy}' is neither save-all nor segment:K with K >= 1")
    return int(length)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="save-all", help="save-all, or segment:K (K layers a segment)")
    options = parser.parse_args()
    try:
        segment = segment_of(options.policy)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))

    torch.set_num_threads(1)
    loss, gradients, input_gradient, executed = train_step(segment)
    reference = train_step(None)  # after the policy's own step, so that the first backward of a recording is the policy's
    differences = [abs(a - b) for a, b in zip([loss, *gradients, input_gradient], [reference[0], *reference[1], reference[2]])]
    print(json.dumps({
        "policy": options.policy,
        "loss": loss,
        "gradients": gradients,
        "input_gradient": input_gradient,
        "max_difference_to_save_all": max(differences),
        "forward_layers": executed,
    }))


if __name__ == "__main__":
    main()
