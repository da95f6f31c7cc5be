#!/usr/bin/env python3
"""Trains a four-layer GPT on random tokens, with or without activation checkpointing. Knows nothing of liveset.

The configuration is fixed, so that the bytes in README.md can be: every run of one mode allocates the same.
"""
import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, LAYERS, SEQUENCE, BATCH, VOCABULARY = 128, 4, 4, 128, 4, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.o = nn.Linear(WIDTH, WIDTH)
        self.ln2 = nn.LayerNorm(WIDTH)
        self.f1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.f2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.o(self.attention(self.ln1(x)))
        return x + self.f2(F.gelu(self.f1(self.ln2(x))))

    def attention(self, x):
        q, k, v = (self.heads(part) for part in self.qkv(x).chunk(3, -1))
        # In one expression, so that the scores before softmax die as soon as autograd does not need them.
        weights = ((q @ k.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(BATCH, SEQUENCE, WIDTH)

    def heads(self, x):
        return x.view(BATCH, SEQUENCE, HEADS, WIDTH // HEADS).transpose(1, 2)


class GPT(nn.Module):
    def __init__(self, checkpoint_blocks):
        super().__init__()
        self.checkpoint_blocks = checkpoint_blocks
        self.e = nn.Embedding(VOCABULARY, WIDTH)
        self.bs = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln = nn.LayerNorm(WIDTH)
        self.hd = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.e(tokens)
        for block in self.bs:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoint_blocks else block(x)
        return self.hd(self.ln(x))


def train_step(model, optimizer, tokens, targets):
    loss = F.cross_entropy(model(tokens).view(-1, VOCABULARY), targets.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def build(checkpoint_mode):
    """-> model, optimizer, tokens, targets"""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT(checkpoint_mode == "block")
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE))
    targets = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE))
    return model, optimizer, tokens, targets


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", choices=["none", "block"], default="none", help="what is recomputed in backward")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a line a step")
    options = parser.parse_args()

    parts = build(options.checkpoint)
    losses = []
    for step in range(options.steps):
        losses.append(train_step(*parts))
        if not options.json:
            print(f"step {step} loss {losses[-1]:.6f}")
    if options.json:
        print(json.dumps({"checkpoint": options.checkpoint, "steps": options.steps, "losses": losses}))


if __name__ == "__main__":
    main()
