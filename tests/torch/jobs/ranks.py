"""A job of one or several ranks on the CPU (gloo), or of one process on two devices, in which one rule is broken, or none.

  ranks.py WHAT [broken]
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

WIDTH = 64


class Net(torch.nn.Module):
    """Four blocks, each a checkpoint region. `kinds`: how each of them is run; None: without a checkpoint."""

    def __init__(self, kinds=("new",) * 4):
        super().__init__()
        self.kinds = kinds
        self.blocks = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in kinds])

    def forward(self, x):
        for kind, block in zip(self.kinds, self.blocks):
            x = block(x) if kind is None else checkpoint(block, x, use_reentrant=kind == "old")
        return x


class Shared(torch.nn.Module):
    """One block, run twice."""

    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.block = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())

    def forward(self, x):
        for _ in range(2):
            x = checkpoint(self.block, x, use_reentrant=self.reentrant)
        return x


def reduce_all(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def train(model, backward, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        x = torch.randn(8, WIDTH, requires_grad=True)
        backward(model, x)
        optimizer.step()
        optimizer.zero_grad()
    print(float(sum(parameter.detach().double().sum() for parameter in model.parameters())), flush=True)


def backward_once(model, x):
    model(x).sum().backward()


def backward_and_reduce(model, x):
    backward_once(model, x)
    reduce_all(model)


def policy(broken):
    """The second rank does not checkpoint its third block."""
    kinds = ["new"] * 4
    if broken and dist.get_rank() == 1:
        kinds[2] = None
    train(Net(kinds), backward_and_reduce)


def kind(broken):
    """The second rank runs its second block as the older kind of region."""
    kinds = ["new"] * 4
    if broken and dist.get_rank() == 1:
        kinds[1] = "old"
    train(Net(kinds), backward_and_reduce)


def early_stop(broken):
    with set_checkpoint_early_stop(not (broken and dist.get_rank() == 1)):
        train(Net(), backward_and_reduce)


def again(broken):
    """The second rank walks its graph back twice."""
    def backward(model, x):
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        if broken and dist.get_rank() == 1:
            loss.backward()
        reduce_all(model)
    train(Net(), backward)


def stages(broken):
    """Each rank has another part of the model: nothing to compare, and nothing is broken."""
    del broken
    name = "first" if dist.get_rank() == 0 else "second"
    model = torch.nn.Module()
    setattr(model, name, Net())
    model.forward = getattr(model, name).forward
    train(model, backward_and_reduce)


def hooks(broken):
    """Gradients are reduced as soon as they are there. Reentrant regions that share a block accumulate one by one: the gradient of the
    second one is reduced before the first one is recomputed."""
    model = Shared(reentrant=broken)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda parameter: dist.all_reduce(parameter.grad))
    train(model, backward_once)


def between(broken):
    """Gradients are reduced between two backwards of a step, and (broken) not after the second."""
    def backward(model, x):
        first = model(x).sum()
        second = model(2 * x).sum()
        first.backward()
        reduce_all(model)
        second.backward()
        if not broken:
            reduce_all(model)
    train(Net(), backward)


def ddp(broken):
    """DistributedDataParallel over two microbatches, several buckets."""
    del broken
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.02)

    def backward(model, x):
        with model.no_sync():
            model(x).sum().backward()
        model(2 * x).sum().backward()
    train(model, backward, steps=4)


def views(broken):
    """Gradients that are views of DistributedDataParallel's buckets."""
    del broken
    train(DistributedDataParallel(Net(), bucket_cap_mb=0.02, gradient_as_bucket_view=True), backward_once, steps=4)


def sharded(broken):
    """FSDP2: parameters are gathered before each region, gradients reduced and scattered after it."""
    del broken
    from torch.distributed.fsdp import fully_shard
    model = Net()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        backward_once(model, torch.randn(8, WIDTH, requires_grad=True))
        optimizer.step()
        optimizer.zero_grad()


def boundary(broken):
    """The first half of the blocks is on one device, the second on another; one region holds both (broken), or each its own."""
    first, second = torch.device("cuda:0"), torch.device("cuda:1")
    parts = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).to(device) for device in (first, second)]
    x = torch.randn(8, WIDTH, device=first, requires_grad=True)
    for _ in range(2):
        if broken:
            y = checkpoint(lambda x: parts[1](parts[0](x).to(second)), x, use_reentrant=False)
        else:
            y = checkpoint(parts[0], x, use_reentrant=False)
            y = checkpoint(parts[1], y.to(second), use_reentrant=False)
        y.sum().backward()
        torch.optim.SGD([parameter for part in parts for parameter in part.parameters()], lr=0.1).step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    what, broken = globals()[sys.argv[1]], "broken" in sys.argv[2:]
    if what is not boundary:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        dist.init_process_group("gloo")
    what(broken)
    if dist.is_initialized():
        dist.destroy_process_group()
        os._exit(0)  # a thread of gloo that outlives its group may abort an interpreter that ends (with and without a recording)


if __name__ == "__main__":
    main()
