"""Gradients of the step before are alive through the forward, where the peak is (karpathy/minGPT#106). --clean: they are set to None
first. Activations weigh more than parameters, so that the peak is at the end of forward."""
import sys

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(256, 256, bias=False), nn.Tanh())))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
x = torch.randn(512, 256)
for _ in range(3):
    if "--clean" in sys.argv:
        optimizer.zero_grad(set_to_none=True)
        loss = net(x).square().mean()
    else:
        loss = net(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
