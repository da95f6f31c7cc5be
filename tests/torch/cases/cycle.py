"""The function of a reentrant region holds its output: a cycle that only the collector frees, so memory rises step by step
(pytorch/pytorch#84413). --clean: non-reentrant, and nothing is captured."""
import gc
import sys

import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
gc.disable()
x = torch.randn(256, 256, requires_grad=True)
optimizer = torch.optim.SGD([x], 0.1)


def cyclic_step():
    held = {}

    def function(y):
        held["extra"] = torch.tanh(y)
        return held["extra"] * 2

    output = held["output"] = checkpoint(function, x, use_reentrant=True)
    output.sum().backward()


def clean_step():
    checkpoint(lambda y: torch.tanh(y) * 2, x, use_reentrant=False).sum().backward()


for _ in range(6):
    clean_step() if "--clean" in sys.argv else cyclic_step()
    optimizer.step()
    optimizer.zero_grad()
