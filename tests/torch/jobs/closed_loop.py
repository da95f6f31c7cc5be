"""closed_loop.py NETWORK MODE,MODE... [DEVICE]: for each mode three training steps of a small network made anew, with nothing, every block,
every second block, every pair of blocks, or all but the expensive outputs of every block made again. Prints for each mode the median seconds
of the steps after the first."""
import functools
import gc
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

DEVICE = sys.argv[3] if len(sys.argv) > 3 else "cpu"
KEPT = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.convolution.default)


def kept(context, operator, *arguments, **keywords):
    return CheckpointPolicy.MUST_SAVE if operator in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def run(mode, index, block, x):
    if mode == "none" or (mode == "second" and index % 2):
        return block(x)
    if mode == "selective":
        return checkpoint(block, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, kept))
    return checkpoint(block, x, use_reentrant=False)


class Blocks(nn.Module):
    def __init__(self, mode, first, blocks, last):
        super().__init__()
        self.mode, self.first, self.blocks, self.last = mode, first, nn.ModuleList(blocks), last

    def forward(self, x):
        x = self.first(x)
        if self.mode == "pairs":
            for one, two in zip(self.blocks[::2], self.blocks[1::2]):
                x = checkpoint(lambda x, one=one, two=two: two(one(x)), x, use_reentrant=False)
            return self.last(x)
        for index, block in enumerate(self.blocks):
            x = run(self.mode, index, block, x)
        return self.last(x)


class Repeated(Blocks):
    """Every block three times in a row."""
    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            for index in range(3):
                x = run(self.mode, index, block, x)
        return self.last(x)


class InDicts(Blocks):
    """No module is called that a block's two halves lie in."""
    def __init__(self, mode, first, blocks, last):
        super().__init__(mode, first, [nn.ModuleDict({"wide": block, "narrow": nn.Linear(64, 64)}) for block in blocks], last)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = torch.tanh(run(self.mode, 0, block["wide"], x)) + run(self.mode, 0, block["narrow"], x)
        return self.last(x)


class OneByOne:
    """No module has the blocks: the program calls one after the other."""
    def __init__(self, mode, first, blocks, last):
        self.mode, self.first, self.blocks, self.last = mode, first, nn.ModuleList(blocks), last

    def parts(self):
        return nn.ModuleList([self.first, self.blocks, self.last])

    def to(self, device):
        self.parts().to(device)
        return self

    def parameters(self):
        return self.parts().parameters()

    __call__ = Blocks.forward


class Evaluated:
    """A forward without a graph before each that has one."""
    def __init__(self, module):
        self.module, self.parameters = module, module.parameters

    def to(self, device):
        self.module.to(device)
        return self

    def __call__(self, x):
        with torch.no_grad():
            self.module(x).mean()
        return self.module(x)


def mlp(mode):
    blocks = [nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.Tanh()) for _ in range(6)]
    return Blocks(mode, nn.Linear(64, 256), blocks, nn.Linear(256, 10)), torch.randn(512, 64)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.c2, self.n2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.n1(self.c1(x)))
        return F.relu(self.n2(self.c2(y)) + x)


def resnet(mode):
    last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return Blocks(mode, nn.Conv2d(3, 32, 3, padding=1), [Residual(32) for _ in range(4)], last), torch.randn(16, 3, 32, 32)


class Encoder(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.n1(x)).chunk(3, -1))
        scores = F.dropout(torch.softmax(q @ k.transpose(-1, -2), -1), 0.1, self.training)
        x = x + self.drop(self.out((scores @ v).transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(self.drop(F.gelu(self.up(self.n2(x))))))


class PreNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down, self.drop = nn.LayerNorm(width), nn.Linear(width, 32 * width), nn.Linear(32 * width, width), nn.Dropout(0.1)

    def forward(self, x):
        return x + self.down(self.drop(F.silu(self.up(self.norm(x)))))


def inplace(mode):
    """What is overwritten, and needed by backward, is copied first; at a block's end, too."""
    blocks = [nn.Sequential(nn.Linear(64, 256), nn.SiLU(inplace=True), nn.Linear(256, 64), nn.Hardswish(inplace=True)) for _ in range(5)]
    return Blocks(mode, nn.Linear(16, 64), blocks, nn.Linear(64, 10)), torch.randn(512, 16)


def prenorm(mode):
    """Wide linear layers over few rows: the most lives while the sum for a bias is made, and what a block made again is gone by then."""
    return Blocks(mode, nn.Linear(16, 64), [PreNorm(64) for _ in range(5)], nn.Linear(64, 10)), torch.randn(4, 16)


def shared(mode):
    return Repeated(mode, nn.Linear(16, 64), [PreNorm(64) for _ in range(2)], nn.Linear(64, 10)), torch.randn(256, 16)


def loop(mode):
    return OneByOne(mode, nn.Linear(16, 64), [PreNorm(64) for _ in range(5)], nn.Linear(64, 10)), torch.randn(256, 16)


class Joined(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(2 * width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class Joins(Blocks):
    """The caller holds what it joins to a block's argument until the block is through."""
    def forward(self, x):
        x = self.first(x)
        skipped = x
        for index, block in enumerate(self.blocks):
            x = x * 2.0
            x = run(self.mode, index, block, torch.cat([x, skipped], -1))
        return self.last(x)


def joins(mode):
    return Joins(mode, nn.Linear(16, 64), [Joined(64) for _ in range(4)], nn.Linear(64, 10)), torch.randn(512, 16)


def frozen(mode):
    """The last layer of a block holds nothing but its weight, and gives that up with the block."""
    blocks = [nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 64).requires_grad_(False)) for _ in range(5)]
    return Blocks(mode, nn.Linear(16, 64), blocks, nn.Linear(64, 10)), torch.randn(512, 16)


def dicts(mode):
    return InDicts(mode, nn.Linear(16, 64), [PreNorm(64) for _ in range(4)], nn.Linear(64, 10)), torch.randn(256, 16)


def evaluated(mode):
    return Evaluated(Blocks(mode, nn.Linear(16, 64), [PreNorm(64) for _ in range(6)], nn.Linear(64, 10))), torch.randn(256, 16)


def encoder(mode):
    last = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 10))
    return Blocks(mode, nn.Linear(16, 64), [Encoder(64, 4) for _ in range(5)], last), torch.randn(8, 96, 16)


def train(network, mode):
    torch.manual_seed(0)
    model, x = globals()[network](mode)
    model, x = model.to(DEVICE), x.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        y = model(x)
        F.cross_entropy(y.reshape(-1, 10), torch.zeros(y.numel() // 10, dtype=torch.long, device=DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - begin)
    print(f"{mode} {statistics.median(times[1:]):.6f}")


def main():
    torch.set_num_threads(1)
    for mode in sys.argv[2].split(","):
        train(sys.argv[1], mode)
        gc.collect()
        if DEVICE != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()  # the peaks of requested and active are torch's own


if __name__ == "__main__":
    main()
