"""A checkpointed BatchNorm counts its batch twice: in forward and in the recompute. --clean: it keeps no statistics."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.bn = nn.BatchNorm1d(8, track_running_stats="--clean" not in sys.argv)

    def block(self, x):
        return torch.relu(self.bn(self.fc(x)))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False).sum()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    net(torch.randn(4, 8)).backward()
    optimizer.step()
    optimizer.zero_grad()
