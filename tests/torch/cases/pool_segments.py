"""Regions that end in a max-pool, with a full backward hook that keeps what it is given (pytorch/pytorch#104605): a segment's tensors are
alive after its backward. --clean: the hook keeps nothing."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
segments = nn.ModuleList([nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)) for _ in range(3)])
optimizer = torch.optim.SGD(segments.parameters(), 0.01)
kept = []


def hook(module, gradient_in, gradient_out):
    if "--clean" not in sys.argv:
        kept.append(gradient_in)


for segment in segments:
    segment[2].register_full_backward_hook(hook)
for _ in range(4):
    x = torch.randn(8, 4, 64, 64)
    for segment in segments:
        x = checkpoint(segment, x, use_reentrant=False)
    x.sum().backward()
    del x
    optimizer.step()
    optimizer.zero_grad()
