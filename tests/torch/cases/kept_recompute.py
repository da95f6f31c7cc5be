"""Something keeps what each recompute makes, so backward ends up with all of it, as if nothing had been checkpointed
(pytorch/pytorch#77284, where torch itself did). --clean: nothing is kept."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 64)

    def forward(self, x):
        y = torch.tanh(self.fc(x))
        if "--clean" not in sys.argv and torch._C._current_graph_task_id() >= 0:
            kept.append(y.detach())
        return torch.sigmoid(y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.sum()


kept = []
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.randn(256, 64)).backward()
    kept.clear()
    optimizer.step()
    optimizer.zero_grad()
