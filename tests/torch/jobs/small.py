"""A small job: two steps of a small net. Prints its losses."""
import sys

import torch
import torch.nn as nn


def train(steps=2, width=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 4))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator))
    optimizer = torch.optim.Adam(net.parameters())
    losses = []
    for _ in range(steps):
        loss = net(torch.rand(5, 8, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(train(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
