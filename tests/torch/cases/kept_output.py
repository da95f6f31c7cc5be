"""Python keeps the output of a region of every step: so it outlives its last use. --clean: only its number is kept."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
history = []
for _ in range(4):
    output = checkpoint(net, torch.randn(512, 64), use_reentrant=False)
    loss = output.square().mean()
    if "--clean" not in sys.argv:
        history.append(output)
    del output
    loss.backward()
    history.append(loss.item())
    optimizer.step()
    optimizer.zero_grad()
