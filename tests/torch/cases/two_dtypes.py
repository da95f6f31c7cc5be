"""The same activation is saved in float32 and in bfloat16: one operator ran before the cast and one after it. --clean: both after it."""
import sys

import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.low = nn.Linear(256, 256), nn.Linear(256, 256, dtype=torch.bfloat16)

    def forward(self, x):
        x = self.fc(x) * 2
        if "--clean" in sys.argv:
            x = x.bfloat16()
            return self.low(x).float().sum() + torch.sin(x).float().sum()
        return self.low(x.bfloat16()).float().sum() + torch.sin(x).sum()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for _ in range(2):
    net(torch.randn(512, 256)).backward()
    optimizer.step()
    optimizer.zero_grad()
