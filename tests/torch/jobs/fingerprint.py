"""Trains two small models for three steps. --checkpoint: in regions; --no-restore: whose random states are not restored; --other-order:
one sum is added up in another order; --nan: a gradient is not finite in step 1; --wider: another model."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.late, self.early, self.dropout = nn.Linear(8, 8), nn.Linear(8, 8), nn.Dropout(0.5)

    def forward(self, x):
        x = torch.tanh(self.early(x))
        if "--other-order" in sys.argv:
            x = (x.flip(0).flip(0) * 3) / 3
        return torch.tanh(self.late(self.dropout(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.block = nn.Linear(8, 3 if "--wider" in sys.argv else 1), Block()

    def forward(self, x):
        if "--checkpoint" in sys.argv:
            x = checkpoint(self.block, x, use_reentrant=False, preserve_rng_state="--no-restore" not in sys.argv)
        else:
            x = self.block(x)
        return self.head(x)


torch.manual_seed(3)
torch.set_num_threads(1)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    loss = net(torch.randn(4, 8)).sum()
    if "--nan" in sys.argv and step == 1:
        loss = loss * float("nan")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
