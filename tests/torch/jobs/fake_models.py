"""fake_models.py NAME MODE...: for each mode two training steps of one small model on the CPU, with nothing (none) or with every block made
again (block). NAME() is the same step's loss and optimizer, for a fake step."""
import functools
import gc
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.skip = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


class Net(nn.Module):
    """As the ResNets begin and end, with six residual blocks between."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        widths = [(32, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
        self.layers = nn.ModuleList(Residual(*each) for each in widths)
        self.head = nn.Linear(128, 100)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self, width=128, dropout=0.1):
        super().__init__()
        self.words = nn.Embedding(1000, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout, "gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens)))


def make_mlp():
    widths = [256, 1024, 1024, 1024, 256]
    layers = [part for a, b in zip(widths, widths[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    x, y = torch.randn(512, 256), torch.randn(512, 256)
    return model, lambda: F.mse_loss(model(x), y)


def make_resnet():
    model = Net()
    x, y = torch.randn(16, 3, 64, 64), torch.randint(0, 100, (16,))
    return model, lambda: F.cross_entropy(model(x), y)


def make_encoder():
    model = Encoder()
    x, y = torch.randint(0, 1000, (8, 64)), torch.randint(0, 1000, (8, 64))
    return model, lambda: F.cross_entropy(model(x).view(-1, 1000), y.view(-1))


def step(make):
    model, loss_of = make()
    optimizer = torch.optim.AdamW(model.parameters())
    return loss_of(), optimizer


def mlp():
    return step(make_mlp)


def resnet():
    return step(make_resnet)


def encoder():
    return step(make_encoder)


def blocks_of(model):
    return model.layers if isinstance(model, Net) else model.blocks.layers if isinstance(model, Encoder) else list(model)


def train(make, mode):
    torch.manual_seed(0)
    model, loss_of = make()
    if mode == "block":
        for block in blocks_of(model):
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main(name, mode, *more):
    torch.set_num_threads(1)
    for mode in (mode, *more):
        train({"mlp": make_mlp, "resnet": make_resnet, "encoder": make_encoder}[name], mode)
        gc.collect()


if __name__ == "__main__":
    main(*sys.argv[1:])
