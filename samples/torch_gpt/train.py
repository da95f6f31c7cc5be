#!/usr/bin/env python3
"""Trains a four-layer GPT on random tokens, with or without activation checkpointing. Knows nothing of liveset.

The configurations are fixed, so that the bytes in README.md can be: every run of one mode allocates the same.
"""
import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

import saving
from meter import Meter

WIDTH, HEADS, LAYERS, SEQUENCE, BATCH, VOCABULARY = 128, 4, 4, 128, 4, 512


class Block(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = dropout
        self.ln1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.o = nn.Linear(WIDTH, WIDTH)
        self.ln2 = nn.LayerNorm(WIDTH)
        self.f1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.f2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.drop(self.o(self.attention(self.ln1(x))))
        return x + self.drop(self.f2(F.gelu(self.f1(self.ln2(x)))))

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def attention(self, x):
        q, k, v = (self.heads(part) for part in self.qkv(x).chunk(3, -1))
        # In one expression, so that the scores before softmax die as soon as autograd does not need them.
        weights = ((q @ k.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5).softmax(-1)
        return (self.drop(weights) @ v).transpose(1, 2).reshape(BATCH, SEQUENCE, WIDTH)

    def heads(self, x):
        return x.view(BATCH, SEQUENCE, HEADS, WIDTH // HEADS).transpose(1, 2)


class GPT(nn.Module):
    def __init__(self, mode, dropout=0.0):
        super().__init__()
        self.mode = mode
        self.e = nn.Embedding(VOCABULARY, WIDTH)
        self.bs = nn.ModuleList([Block(dropout) for _ in range(LAYERS)])
        self.ln = nn.LayerNorm(WIDTH)
        self.hd = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.e(tokens)
        for block in self.bs:
            x = saving.run(self.mode, block, x)
        return self.hd(self.ln(x))


def train_step(model, optimizer, *data):
    """`data`: tokens and targets of each microbatch in turn."""
    microbatches = len(data) // 2
    loss, earlier = None, 0.0
    for tokens, targets in zip(data[::2], data[1::2]):
        if loss is not None:
            earlier += loss.item()
        loss = F.cross_entropy(model(tokens).view(-1, VOCABULARY), targets.view(-1))
        if microbatches > 1:
            loss = loss / microbatches
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return earlier + loss.item()


def build(mode, device="cpu", dtype=torch.float32, optimizer="adamw", microbatches=1, dropout=0.0):
    """-> model, optimizer, then tokens and targets of each microbatch"""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT(mode, dropout).to(device, dtype)
    data = [torch.randint(0, VOCABULARY, (BATCH, SEQUENCE)).to(device) for _ in range(2 * microbatches)]
    return model, saving.make_optimizer(optimizer, model.parameters()), *data


def small_steps(options):
    """Yields (loss, the allocator's figures) of each step."""
    meter = Meter(options.device)
    parts = build(options.checkpoint, options.device, getattr(torch, options.dtype), options.optimizer, options.accumulate, options.dropout)
    for _ in range(options.steps):
        meter.begin()
        loss = train_step(*parts)
        yield loss, meter.end()


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", choices=saving.MODES, default="none",
                        help="what is saved and recomputed of each block: block recomputes all of it, reentrant the same by the older "
                        "implementation, selective keeps the outputs of its projections, offload recomputes nothing and saves on the CPU")
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw", help="sgd: with momentum")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N", help="microbatches a step")
    parser.add_argument("--dropout", type=float, default=0.0, metavar="P")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--preset", choices=["small", "standin"], default="small",
                        help="standin: wider, with scaled_dot_product_attention (attention.py)")
    parser.add_argument("--sdpa", choices=["math", "eff", "flash"], help="attention of the preset standin (default math)")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a line a step")
    options = parser.parse_args()
    if options.sdpa and options.preset != "standin":
        parser.error("--sdpa belongs to --preset standin; the preset small writes its attention out")
    if options.accumulate < 1:
        parser.error("--accumulate is at least 1")
    if not 0 <= options.dropout < 1:
        parser.error("--dropout is at least 0 and less than 1")
    return options


def main():
    options = parse_options()
    if options.preset == "standin":
        import attention
        steps = attention.steps(options)
    else:
        steps = small_steps(options)
    losses, memory = [], []
    for step, (loss, figures) in enumerate(steps):
        losses.append(loss)
        memory.append(figures)
        if not options.json:
            print(f"step {step} loss {loss:.6f}")
    if options.json:
        result = {"checkpoint": options.checkpoint, "steps": options.steps, "losses": losses}
        if options.device == "cuda":
            result["memory"] = memory
        print(json.dumps(result))


if __name__ == "__main__":
    main()
