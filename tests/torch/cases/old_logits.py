"""The logits of the step before are still held while the next forward runs (foundation-model-stack/fms-fsdp#152,
meta-pytorch/torchtune#1046). --clean: not."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
embedding, head = nn.Embedding(2048, 16), nn.Linear(16, 2048, bias=False)
optimizer = torch.optim.SGD([*embedding.parameters(), *head.parameters()], 0.1)
for _ in range(4):
    tokens = torch.randint(0, 2048, (2, 128))
    logits = head(embedding(tokens))
    loss = F.cross_entropy(logits.view(-1, 2048), tokens.view(-1))
    loss.backward()
    last = None if "--clean" in sys.argv else logits  # to be logged some day
    del logits, loss
    optimizer.step()
    optimizer.zero_grad()
