"""Adam's foreach mode makes lists of intermediates as large as all parameters (pytorch/pytorch#97712): the peak is in the optimizer, where
no checkpointing helps. --clean: one parameter at a time, and the peak is elsewhere."""
import sys

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(8)))
optimizer = torch.optim.Adam(net.parameters(), 1e-3, foreach="--clean" not in sys.argv)
for _ in range(3):
    net(torch.randn(16, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
