"""A region that counts its calls and takes another branch at every second one, so in each recompute. --clean: it does not."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.calls = 0

    def block(self, x):
        x = self.fc(x)
        if "--clean" in sys.argv:
            return torch.sigmoid(x)
        self.calls += 1
        return torch.sigmoid(x) if self.calls % 2 else torch.tanh(x)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False).sum()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    net(torch.randn(4, 8)).backward()
    optimizer.step()
    optimizer.zero_grad()
