"""One region around the whole model (jax-ml/jax#19822, rasbt/deeplearning-models#74): the recompute makes everything again at once, so
backward starts from as much as without checkpointing. --clean: a region for each block. --none: no region.
--segment: checkpoint_sequential with one segment."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 64, bias=False)

    def forward(self, x):
        return torch.sigmoid(torch.tanh(self.fc(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(10)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if "--clean" in sys.argv else block(x)
        return x


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
x = torch.randn(1024, 64)
for _ in range(2):
    whole = "--clean" not in sys.argv and "--none" not in sys.argv
    if "--segment" in sys.argv:
        y = checkpoint_sequential(list(net.blocks), 1, x, use_reentrant=False)
    else:
        y = checkpoint(net, x, use_reentrant=False) if whole else net(x)
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    del y
