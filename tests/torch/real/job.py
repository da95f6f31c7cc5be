"""What the jobs beside this file share: a small model, and one line at the end that has every byte of their results."""
import hashlib
import json

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

WIDTH = 32


class Block(nn.Module):
    def __init__(self, width=WIDTH, dropout=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class Net(nn.Module):
    """Blocks, each a checkpoint region if wanted, and a head. `around`: made anew for each block and entered around it."""

    def __init__(self, blocks=2, checkpointed=False, reentrant=False, around=None):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.head = nn.Linear(WIDTH, 4)
        self.checkpointed, self.reentrant, self.around = checkpointed, reentrant, around

    def forward(self, x):
        for block in self.blocks:
            if self.around is not None:
                with self.around():
                    x = block(x)
            elif self.checkpointed:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
            else:
                x = block(x)
        return self.head(x)


def start(seed=0):
    torch.set_num_threads(1)
    torch.manual_seed(seed)


def batch(rows=8, device="cpu"):
    return torch.rand(rows, WIDTH, device=device)


def train(model, optimizer, steps=3, loss_of=None, device="cpu"):
    """-> losses, and a digest of the gradients of each step"""
    losses, gradients = [], []
    for _ in range(steps):
        x = batch(device=device)
        loss = model(x).square().mean() if loss_of is None else loss_of(model, x)
        loss.backward()
        gradients.append(digest(parameter.grad for parameter in model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, gradients


def digest(tensors):
    """Of all bytes, types and shapes."""
    seen = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            seen.update(b"none")
            continue
        tensor = tensor.detach().cpu().contiguous()
        seen.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        seen.update(bytes(tensor.flatten().view(torch.uint8).tolist()))
    return seen.hexdigest()[:16]


def finish(model=None, **results):
    """Prints the results, and what the job left: parameters, gradients, and the next random number."""
    if model is not None:
        results["parameters"] = digest(model.parameters())
        results["left"] = digest(parameter.grad for parameter in model.parameters())
    results["random"] = torch.rand(1).item()
    print(json.dumps(results), flush=True)
