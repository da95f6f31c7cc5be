"""The graph of a region is walked back twice, so the region is made twice. --clean: once."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
loss = checkpoint(net, torch.randn(4, 8), use_reentrant=False).sum()
if "--clean" not in sys.argv:
    loss.backward(retain_graph=True)
loss.backward()
