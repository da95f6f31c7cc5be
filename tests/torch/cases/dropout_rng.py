"""Dropout in a region whose random state is not restored: the recompute drops other elements. --clean: it is restored."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    checkpoint(net, torch.randn(4, 8), use_reentrant=False, preserve_rng_state="--clean" in sys.argv).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
