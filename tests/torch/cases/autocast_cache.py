"""Under autocast the region's weight was cast before the region and is in the cache; in the recompute the cache is another one, and the
cast is made again. --clean: no cache."""
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
fc = nn.Linear(8, 8)
optimizer = torch.optim.SGD(fc.parameters(), 0.1)
for _ in range(2):
    with torch.autocast("cpu", torch.bfloat16, cache_enabled="--clean" not in sys.argv):
        x = torch.tanh(fc(torch.randn(4, 8)))
        loss = checkpoint(lambda y: torch.tanh(fc(y)), x, use_reentrant=False).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
