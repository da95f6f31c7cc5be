"""A region in a region; only the inner one does not restore its random state. --clean: it does."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.dropout = nn.Linear(8, 8), nn.Dropout(0.5)

    def forward(self, x):
        return torch.tanh(self.dropout(self.fc(x)))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.inner = nn.Linear(8, 8), Inner()

    def forward(self, x):
        return checkpoint(self.inner, torch.tanh(self.fc(x)), use_reentrant=False, preserve_rng_state="--clean" in sys.argv).tanh()


net = Outer()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    checkpoint(net, torch.randn(4, 8), use_reentrant=False).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
