#!/usr/bin/env python3
"""A contrastive training step that keeps the graph of one chunk at a time, with PyTorch's own dropout. Knows nothing of liveset.

Every chunk is encoded and its graph given up; the loss over all pairs gives the gradient of the representations; then chunk by chunk is
encoded again and that gradient pulled through. Prints one JSON object: what it computed, and how far the kept graph is away.
"""
import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

QUERIES = [[.2, .5, -.1], [.6, -.3, .4], [-.2, .8, .7], [.3, .1, -.5]]
DOCUMENTS = [[.1, .7, -.2], [.3, -.1, .6], [-.3, .5, .9], [.7, .1, -.4]]
W1 = [[.3, -.2, .5, .1], [-.4, .6, .2, -.3], [.1, .3, -.5, .4]]
W2 = [[.5, -.2], [.1, .6], [-.4, .3], [.2, .5]]


class Encoder(nn.Module):
    """3 inputs -> 4 tanh -> dropout -> 2."""

    encoded = 0  # rows, by all encoders

    def __init__(self, dropout):
        super().__init__()
        self.w1 = nn.Parameter(torch.tensor(W1, dtype=torch.float64))
        self.w2 = nn.Parameter(torch.tensor(W2, dtype=torch.float64))
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows):
        Encoder.encoded += len(rows)
        return self.dropout(torch.tanh(rows @ self.w1)) @ self.w2


def encode(encoder, rows, graph, restore):
    if graph == "kept":
        return encoder(rows)
    return checkpoint(encoder, rows, use_reentrant=False, preserve_rng_state=restore)


def gradients_of(encoder, options, graph):
    """-> the loss, whether encoding again moved the random state, rows that were encoded; gradients are added to the encoder's"""
    torch.manual_seed(options.seed)
    encoded = Encoder.encoded
    chunks = [chunk for rows in (QUERIES, DOCUMENTS) for chunk in torch.tensor(rows, dtype=torch.float64).split(options.chunk)]
    parts = [encode(encoder, chunk, graph, options.restore == "on") for chunk in chunks]
    state = torch.get_rng_state()

    # The whole loss, over representations that have no graph.
    representations = torch.cat([part.detach() for part in parts]).requires_grad_()
    queries, documents = representations.split([len(QUERIES), len(DOCUMENTS)])
    loss = F.cross_entropy(queries @ documents.T, torch.arange(len(QUERIES)))
    loss.backward()

    for part, gradient in zip(parts, representations.grad.split([len(chunk) for chunk in chunks])):
        part.backward(gradient)
    return loss.item(), not torch.equal(state, torch.get_rng_state()), Encoder.encoded - encoded


def parse_options(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunk", type=int, choices=range(1, len(QUERIES) + 1), default=2, help="rows that are encoded at once")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--restore", choices=["on", "off"], default="on", help="encode again from the random state of the first time")
    parser.add_argument("--graph", choices=["cache", "kept"], default="cache", help="kept: keep the graphs of all chunks")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of three lines")
    options = parser.parse_args(arguments)
    if not 0 <= options.dropout < 1:
        parser.error("--dropout is at least 0 and less than 1")
    return options


def step(options):
    """-> the result of one step, and of the comparison"""
    encoder = Encoder(options.dropout)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    loss, moved, rows = gradients_of(encoder, options, options.graph)
    gradients = [parameter.grad.clone() for parameter in encoder.parameters()]
    optimizer.step()

    # Afterwards, so that the first step of a recording is the one that was asked for.
    reference = Encoder(options.dropout)
    reference_loss, _, _ = gradients_of(reference, options, "kept")
    differences = [(ours - theirs.grad).abs().max().item() for ours, theirs in zip(gradients, reference.parameters())]
    return {
        "chunk": options.chunk, "dropout": options.dropout, "restore": options.restore, "graph": options.graph, "seed": options.seed,
        "loss": loss, "w1_gradient": gradients[0].tolist(), "w2_gradient": gradients[1].tolist(), "reference_loss": reference_loss,
        "max_difference": max(differences), "random_state_moved": moved, "rows_encoded": rows,
    }


def main():
    options = parse_options()
    torch.set_num_threads(1)
    result = step(options)
    if options.json:
        print(json.dumps(result))
    else:
        print(f"loss {result['loss']:.16g}\nmaximum difference of a gradient from that of the kept graph {result['max_difference']:g}")
        state = "moved on" if result["random_state_moved"] else "as it was after the first encoding"
        print(f"rows encoded {result['rows_encoded']}, random state {state}")


if __name__ == "__main__":
    main()
