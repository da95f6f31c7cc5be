"""Trains a chain of twelve layers in checkpoint regions of --size layers: the fewer regions, the less the forward keeps, and the more a
recompute holds at once. So of all sizes neither the one that keeps most nor the one that keeps least has the lowest peak."""
import argparse

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

LAYERS, WIDTH, ROWS = 12, 64, 1024  # a value of a layer is 262,144 bytes


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Chain(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x):
        for first in range(0, LAYERS, self.size):
            x = checkpoint(self.region, first, x, use_reentrant=False)
        return x

    def region(self, first, x):
        for layer in self.layers[first:first + self.size]:
            x = layer(x)
        return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True, choices=[size for size in range(1, LAYERS + 1) if LAYERS % size == 0])
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Chain(options.size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(ROWS, WIDTH)
    for _ in range(2):
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
