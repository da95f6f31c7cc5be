"""models.py NAME: a few training steps of one small model on the GPU, each of a kind that people train. What a dry run makes of each
is the table in README.md, which tests/torch/test_dryrun_models.py checks.

No step reads a value back from the device unless that belongs to its kind.
"""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = 2


def train(model, batch, loss_of, steps=STEPS):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        loss_of(model(batch)).backward()
        optimizer.step()
        optimizer.zero_grad()


# ---- convolutions


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.skip = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def resnet50_model():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            layers.append(Bottleneck(inputs, width, stride if index == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def resnet50():
    labels = torch.zeros(4, dtype=torch.long, device="cuda")
    train(resnet50_model().cuda(), torch.randn(4, 3, 96, 96, device="cuda"), lambda y: F.cross_entropy(y, labels))


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64)):
        super().__init__()
        self.down = nn.ModuleList(self.block(a, b) for a, b in zip((3,) + widths, widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(self.block(2 * a, a) for a in widths[:-1])
        self.last = nn.Conv2d(widths[0], 2, 1)

    @staticmethod
    def block(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1), nn.SiLU())

    def forward(self, x):
        kept = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for up, join in zip(reversed(self.up), reversed(self.join)):
            x = join(torch.cat((up(x), kept.pop()), 1))
        return self.last(x)


def unet():
    train(UNet().cuda(), torch.randn(2, 3, 64, 64, device="cuda"), lambda y: y.square().mean())


class ViT(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.positions = nn.Parameter(torch.zeros(1, 64, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.blocks(x).mean(1))


def vit():
    train(ViT().cuda(), torch.randn(8, 3, 64, 64, device="cuda"), lambda y: y.square().mean())


# ---- recurrent, routed


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(500, 64), nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 10)

    def forward(self, tokens):
        return self.head(self.lstm(self.words(tokens))[0])


def lstm():
    train(Tagger().cuda(), torch.randint(0, 500, (16, 40), device="cuda"), lambda y: y.square().mean())


class MoE(nn.Module):
    """Each token goes to its best two experts; how many tokens an expert gets depends on values."""

    def __init__(self, width=64, experts=4):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                                     for _ in range(experts))

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == number)
            result = result.index_add(0, rows, expert(x[rows]) * weights[rows, slots, None])
        return result


def moe():
    train(MoE().cuda(), torch.randn(256, 64, device="cuda"), lambda y: y.square().mean())


# ---- ways to train a plain model


def mlp(width=256):
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).cuda()


def amp():
    model, batch = mlp(), torch.randn(64, 256, device="cuda")
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    for _ in range(STEPS):
        with torch.autocast("cuda", torch.float16):
            loss = model(batch).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def compiled():
    train(torch.compile(mlp()), torch.randn(64, 256, device="cuda"), lambda y: y.square().mean())


def compiled_function():
    """No module is compiled, so no parameter's name tells."""

    @torch.compile
    def loss_of(y):
        return (F.gelu(y) * torch.sigmoid(y)).square().mean()

    train(mlp(), torch.randn(64, 256, device="cuda"), loss_of)


def compiled_in_place():
    model = mlp()
    model.compile()
    train(model, torch.randn(64, 256, device="cuda"), lambda y: y.square().mean())


def cuda_graph():
    model, batch = mlp(), torch.randn(64, 256, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(STEPS):
        graph.replay()


def profiler():
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as recorded:
        train(mlp(), torch.randn(64, 256, device="cuda"), lambda y: y.square().mean())
    assert any(event.key == "aten::addmm" for event in recorded.key_averages())


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.full((256,), float(index))


def loader():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    batches = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
    for batch in batches:
        assert batch.is_pinned()
        model(batch.to("cuda", non_blocking=True)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


# ---- several processes, under torchrun


def join_group():
    import torch.distributed as dist
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    return dist


def ddp():
    dist = join_group()
    model = nn.parallel.DistributedDataParallel(mlp())
    train(model, torch.randn(64, 256, device="cuda"), lambda y: y.square().mean())
    dist.destroy_process_group()


def fsdp2():
    from torch.distributed.fsdp import fully_shard
    dist = join_group()
    model = mlp()
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer)
    train(fully_shard(model), torch.randn(64, 256, device="cuda"), lambda y: y.square().mean())
    dist.destroy_process_group()


MODELS = [resnet50, unet, vit, lstm, moe, amp, compiled, compiled_function, compiled_in_place, cuda_graph, profiler, loader, ddp, fsdp2]

if __name__ == "__main__":
    torch.manual_seed(0)
    {model.__name__: model for model in MODELS}[sys.argv[1]]()
    print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
