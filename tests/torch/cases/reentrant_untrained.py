"""A reentrant region none of whose inputs requires grad (pytorch/pytorch#147449): its parameters get no gradient, and its small peak is no
saving. --clean: the input requires grad."""
import sys
import warnings

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.ln1, self.ln2 = nn.MultiheadAttention(16, 2, batch_first=True), nn.LayerNorm(16), nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        y = self.ln1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(self.ln2(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = Layer(), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(checkpoint(self.layer, x, use_reentrant=True))


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    net(torch.randn(2, 8, 16, requires_grad="--clean" in sys.argv)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
