"""sequential.py OPTIONS [/ OPTIONS]...: three training steps of nn.Sequential(nn.Linear, activation, ..) on the CPU, what the short form mlp
of a model file says; then three of the next network."""
import argparse
import gc
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
TYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
OPTIMIZERS = {"sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
              "momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
              "adam": torch.optim.Adam}


class Segments(nn.Sequential):
    """Runs `segment` layers (a linear with its activation) at a time in a checkpointed region."""

    def __init__(self, modules, segment):
        super().__init__(*modules)
        self.segment = segment

    def forward(self, x):
        modules = list(self)
        for begin in range(0, len(modules), 2 * self.segment):
            x = checkpoint(nn.Sequential(*modules[begin:begin + 2 * self.segment]), x, use_reentrant=False)
        return x


def modules_of(options):
    for layer, (inputs, outputs) in enumerate(zip(options.widths, options.widths[1:])):
        if layer > 0:
            yield ACTIVATIONS[options.activation]()
        yield nn.Linear(inputs, outputs, bias=options.bias, dtype=TYPES[options.element_bytes])


def options_of(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int)
    parser.add_argument("--widths", type=int, nargs="+")
    parser.add_argument("--activation", default="relu")
    parser.add_argument("--bias", type=int, default=1)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--loss", default="mse")
    parser.add_argument("--element-bytes", type=int, default=4)
    parser.add_argument("--segment", type=int, default=0)
    return parser.parse_args(arguments)


def train(options):
    torch.manual_seed(0)
    model = Segments(modules_of(options), options.segment) if options.segment else nn.Sequential(*modules_of(options))
    x = torch.randn(options.batch, options.widths[0], dtype=TYPES[options.element_bytes])
    target = torch.randn(options.batch, options.widths[-1], dtype=x.dtype) if options.loss == "mse" else None
    optimizer = OPTIMIZERS[options.optimizer](model.parameters())
    for _ in range(3):
        if options.loss == "mse":
            F.mse_loss(model(x), target).backward()
        else:
            model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    torch.set_num_threads(1)
    for arguments in " ".join(sys.argv[1:]).split(" / "):
        train(options_of(arguments.split()))
        gc.collect()


if __name__ == "__main__":
    main()
