#!/usr/bin/env python3
"""A decoder of the shape of a 6.7B Llama (32 layers, width 4096, bfloat16), batch 4 x 2048: two training steps with each block
checkpointed and two without, on whatever GPU there is. Prints one JSON object."""
import json
import resource
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, FFN_WIDTH, HEADS, LAYERS, VOCABULARY, BATCH, SEQUENCE = 4096, 11008, 32, 32, 32000, 4, 2048


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, FFN_WIDTH, bias=False), nn.Linear(WIDTH, FFN_WIDTH, bias=False)
        self.down = nn.Linear(FFN_WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).view(BATCH, SEQUENCE, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, SEQUENCE, WIDTH))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, checkpointed):
        x = self.words(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        return self.head(self.norm(x))


def train_step(model, optimizer, checkpointed):
    torch.cuda.reset_peak_memory_stats()
    tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), device="cuda")
    F.cross_entropy(model(tokens, checkpointed).view(-1, VOCABULARY).float(), tokens.view(-1)).backward()
    optimizer.step()
    optimizer.zero_grad()


def main():
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters())
    steps = []
    for checkpointed in (True, True, False, False):
        start = time.perf_counter()
        train_step(model, optimizer, checkpointed)
        torch.cuda.synchronize()
        steps.append({"checkpointed": checkpointed, "seconds": time.perf_counter() - start,
                      "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()})
    print(json.dumps({"parameters": sum(p.numel() for p in model.parameters()), "steps": steps,
                      "host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
