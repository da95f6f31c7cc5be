"""The "medium" transformer of the CS336 course as its published configuration describes it, built from PyTorch's own operators in the
order in which public memory snapshots show them. Prints what the allocator did in one training step, or one forward pass.

Pre-norm RMSNorm, rotary positions, SwiGLU, no biases, untied head, attention and softmax written out.
"""
import argparse
import json
import math

import torch
import torch.nn as nn

WIDTH, FFN_WIDTH, HEADS, LAYERS, VOCABULARY, BATCH = 1024, 4096, 16, 24, 10000, 4


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * (2 / (inputs + outputs)) ** 0.5)

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.weight)


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return (self.weight * x).to(kind)


class Rotary(nn.Module):
    """Turns each pair of neighbouring features by an angle that grows with the position."""

    def __init__(self, sequence):
        super().__init__()
        size = WIDTH // HEADS
        angles = torch.outer(torch.arange(sequence).float(), 10000.0 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("table", torch.stack((angles.cos(), angles.sin())), persistent=False)

    def forward(self, x):
        even, odd = x.unflatten(-1, (-1, 2)).movedim(-1, 0)
        cos, sin = self.table[:, :x.shape[-2]]
        turned_even = cos * even - sin * odd
        turned_odd = sin * even + cos * odd
        return torch.stack((turned_even, turned_odd), -1).flatten(-2)


def softmax(x):
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    powers = torch.exp(shifted)
    return powers / torch.sum(powers, dim=-1, keepdim=True)


def attend(q, k, v, mask):
    scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(k.shape[-1])
    scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, v)


class Attention(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.q, self.k, self.v, self.o = (Linear(WIDTH, WIDTH) for _ in range(4))
        self.rotary = rotary

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
        q = self.rotary(q)
        k = self.rotary(k)
        positions = torch.arange(x.shape[1], device=x.device)
        mask = positions[:, None] >= positions[None, :]
        y = attend(q, k, v, mask)
        y = y.transpose(1, 2).flatten(-2)
        return self.o(y)


def silu(x):
    return x * torch.sigmoid(x)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = Linear(WIDTH, FFN_WIDTH), Linear(FFN_WIDTH, WIDTH), Linear(WIDTH, FFN_WIDTH)

    def forward(self, x):
        return self.w2(silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.attention, self.ffn = Attention(rotary), FeedForward()
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()

    def forward(self, x):
        attended = self.attention(self.norm1(x))
        between = x + attended
        fed = self.ffn(self.norm2(between))
        return between + fed


class Transformer(nn.Module):
    def __init__(self, sequence):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(VOCABULARY, WIDTH))
        rotary = Rotary(sequence)
        self.blocks = nn.ModuleList([Block(rotary) for _ in range(LAYERS)])
        self.norm = RMSNorm()
        self.head = Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        embedded = self.embedding[tokens, :]  # has a name of its own in the snapshots: it lives until the end
        x = embedded
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def log_softmax(x):
    largest = torch.max(x, dim=-1, keepdim=True)[0]
    x = x - largest
    return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))


def cross_entropy(logits, targets):
    negative = -log_softmax(logits)
    return torch.mean(torch.gather(negative, -1, targets.unsqueeze(-1)))


class AdamW(torch.optim.Optimizer):
    """Written out, out of place: one new tensor for each intermediate result."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "decay": 0.01})

    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                t = state.get("t", 1)
                rate = group["lr"] * math.sqrt(1 - beta2**t) / (1 - beta1**t)
                p.data -= group["lr"] * group["decay"] * p.data
                m = state.get("m", torch.zeros_like(p.data))
                v = state.get("v", torch.zeros_like(p.data))
                new_m = beta1 * m + (1 - beta1) * p.grad.data
                new_v = beta2 * v + (1 - beta2) * p.grad.data**2
                state["m"], state["v"], state["t"] = new_m, new_v, t + 1
                p.data -= rate * new_m / (torch.sqrt(new_v) + group["eps"])


def train(model, optimizer, tokens, targets):
    logits = model(tokens)
    loss = cross_entropy(logits, targets)
    loss.backward()
    optimizer.step()
    return logits, loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["training", "inference"])
    parser.add_argument("sequence", type=int)
    parser.add_argument("--autocast", action="store_true", help="bfloat16")
    parser.add_argument("--warm-up", type=int, default=5)
    options = parser.parse_args()

    with torch.device("cuda"):
        model = Transformer(options.sequence)
        batches = torch.randint(0, VOCABULARY, (2 if options.mode == "training" else 1, 5, BATCH, options.sequence))
    kept = [batch.clone() for batch in batches]  # one storage each, with all batches
    del batches
    inputs = [batch[0].clone() for batch in kept]
    optimizer = AdamW(model.parameters())
    autocast = torch.autocast("cuda", torch.bfloat16, enabled=options.autocast)

    def once():
        with autocast:
            if options.mode == "training":
                return train(model, optimizer, *inputs)
            with torch.inference_mode():
                return model(*inputs)

    for _ in range(options.warm_up):
        once()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.memory._record_memory_history(context=None, max_entries=10**6)
    result = once()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    stats = torch.cuda.memory_stats()
    del result
    print(json.dumps({
        "baseline_requested": before,
        **{f"peak_{name}": stats[f"{name}_bytes.all.peak"] for name in ("requested", "allocated", "reserved")},
        "allocations": [entry["size"] for entry in trace if entry["action"] == "alloc"],
    }))


if __name__ == "__main__":
    main()
