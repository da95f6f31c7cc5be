"""The preset standin: position embedding, one qkv projection, scaled_dot_product_attention, inputs made on the device.

What lives how long is part of it: README.md's bytes hold for this order of statements.
"""
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import saving
from meter import Meter

WIDTH, HEADS, LAYERS, SEQUENCE, BATCH, VOCABULARY = 256, 8, 4, 256, 8, 8192
BACKENDS = {"math": SDPBackend.MATH, "eff": SDPBackend.EFFICIENT_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout
        self.ln1 = nn.LayerNorm(WIDTH)
        self.ln2 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.o = nn.Linear(WIDTH, WIDTH)
        self.f1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.f2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        # q, k and v share one storage, which lives until the block returns.
        q, k, v = self.qkv(self.ln1(x)).view(BATCH, SEQUENCE, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = functools.partial(F.scaled_dot_product_attention, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        x = x + self.drop(self.o(attended(q, k, v).transpose(1, 2).reshape(BATCH, SEQUENCE, WIDTH)))
        return x + self.drop(self.f2(F.gelu(self.f1(self.ln2(x)))))

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class GPT(nn.Module):
    def __init__(self, mode, dropout):
        super().__init__()
        self.mode = mode
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(SEQUENCE, WIDTH)
        self.blocks = nn.ModuleList([Block(dropout) for _ in range(LAYERS)])
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(SEQUENCE, device=tokens.device))
        for block in self.blocks:
            x = saving.run(self.mode, block, x)
        return self.head(self.ln(x))


def train_step(model, optimizer, device, meter, microbatches):
    meter.begin()
    loss, earlier = None, 0.0
    for _ in range(microbatches):
        if loss is not None:
            earlier += loss.item()
        tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), device=device)
        targets = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), device=device)
        logits = model(tokens)
        loss = F.cross_entropy(logits.view(-1, VOCABULARY).float(), targets.view(-1))
        if microbatches > 1:
            loss = loss / microbatches
        meter.note("allocated_after_forward")
        del logits
        loss.backward()
        meter.note("allocated_after_backward")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return earlier + loss.item()


def steps(options):
    """Yields (loss, the allocator's figures) of each step."""
    torch.manual_seed(0)
    meter = Meter(options.device)
    with sdpa_kernel([BACKENDS[options.sdpa or "math"]]):
        model = GPT(options.checkpoint, options.dropout).to(options.device, getattr(torch, options.dtype))
        optimizer = saving.make_optimizer(options.optimizer, model.parameters())
        for _ in range(options.steps):
            loss = train_step(model, optimizer, options.device, meter, options.accumulate)
            yield loss, meter.end()
