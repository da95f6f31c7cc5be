"""Matmul and normalise, again and again, a region every 20 steps (pytorch/pytorch#125591, made small): what must be kept is a matrix per
region, and one region's inside is made again at a time. --clean: regions as long as the root of all steps."""
import sys

import torch
from torch.utils.checkpoint import checkpoint

STEPS, WIDTH = 400, 40  # 12,800 bytes a matrix of float64
EVERY = 20 if "--clean" in sys.argv else 4

torch.manual_seed(0)
w = torch.randn(WIDTH, WIDTH, dtype=torch.float64, requires_grad=True)


def some(x):
    for _ in range(EVERY):
        x = x @ w
        x = x / x.norm()
    return x


x = torch.randn(WIDTH, WIDTH, dtype=torch.float64)
for _ in range(STEPS // EVERY):
    x = checkpoint(some, x, use_reentrant=False)
x.sum().backward()
