"""planned.py NETWORK [NAME ...]: three training steps of `gpt` (samples/torch_gpt) or of `nested`, on the CPU. The named modules are run in
checkpoint regions of their own; a name is a path from the root's class on, and a '*' in it stands for one part or a piece of it.
With selective:NODE,... before the names, the regions keep what these operators give ("AddmmBackward0")."""
import functools
import pathlib
import re
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "samples/torch_gpt"))
import train  # noqa: E402


class Scores(nn.Module):
    def forward(self, q, k):
        return torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scores = heads, Scores()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out((self.scores(q, k) @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, wide):
        super().__init__()
        self.n1, self.n2, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Dropout(0.1), nn.Linear(wide, width))

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 64), nn.Linear(64, 10)
        self.blocks = nn.ModuleList(Block(64, 4, wide) for wide in (256, 1024, 64))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def nested():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x, y = Nested(), torch.randn(8, 96, 16), torch.zeros(8 * 96, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        F.cross_entropy(model(x).view(-1, 10), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def gpt():
    model, optimizer, *data = train.build("none")
    return model, lambda: train.train_step(model, optimizer, *data)


def in_region(module, keywords):
    forward = module.forward
    module.forward = lambda *arguments: checkpoint(forward, *arguments, use_reentrant=False, **keywords)


def keeping(nodes):
    """NativeLayerNormBackward0 is the node of aten::native_layer_norm."""
    kept = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.removesuffix("Backward0")).lower() for node in nodes}

    def choose(context, operator, *arguments, **keywords):
        name = operator._schema.name.removeprefix("aten::")
        return CheckpointPolicy.MUST_SAVE if name in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return {"context_fn": functools.partial(create_selective_checkpoint_contexts, choose)}


def main():
    model, step = {"gpt": gpt, "nested": nested}[sys.argv[1]]()
    root = type(model).__name__
    names, keywords = sys.argv[2:], {}
    if names and names[0].startswith("selective:"):
        keywords = keeping(names.pop(0).removeprefix("selective:").split(","))
    for pattern in names:
        expression = re.compile(re.escape(pattern).replace(r"\*", "[^.]*"))
        found = [module for name, module in model.named_modules() if expression.fullmatch(f"{root}.{name}" if name else root)]
        if not found:
            sys.exit(f"{root} has no module {pattern}")
        for module in found:
            in_region(module, keywords)
    for _ in range(3):
        step()


if __name__ == "__main__":
    main()
