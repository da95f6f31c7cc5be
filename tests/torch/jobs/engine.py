"""Small backwards of every kind. Prints, as JSON, which nodes ran in what order, as hooks on the nodes themselves saw it.

engine.py CASE    (knows nothing of liveset)
"""
import json
import sys
import threading

import torch
from torch.utils.checkpoint import checkpoint

lock = threading.Lock()
ran = []


def watch(root):
    """Puts a hook on every node under this one."""
    nodes, seen = [root], {root}
    while nodes:
        node = nodes.pop()
        entry = type(node).__name__, signed(node._sequence_nr())

        def hook(gradients, entry=entry):
            with lock:
                ran.append((threading.current_thread().name, *entry))
        node.register_prehook(hook)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)


def signed(number):
    return number - 2**64 if number >= 2**63 else number


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Inner(torch.autograd.Function):
    """Runs a backward inside of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            inner = (x.sin() * gradient).sum()
        watch(inner.grad_fn)
        inner.backward()
        return x.grad


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("the job's own error")


def plain():
    weight = torch.ones(16, 16, requires_grad=True)
    hidden = torch.ones(4, 16) @ weight
    loss = (Twice.apply(hidden.tanh()) * hidden).sum()
    watch(loss.grad_fn)
    loss.backward()


def nested():
    weight = torch.ones(16, requires_grad=True)
    loss = (Inner.apply(weight * 3).exp()).sum()
    watch(loss.grad_fn)
    loss.backward()


def fails():
    weight = torch.ones(16, requires_grad=True)
    loss = Fails.apply(weight * 3).exp().sum()
    watch(loss.grad_fn)
    try:
        loss.backward()
    except ValueError as error:
        ran.append((threading.current_thread().name, str(error), 0))
    plain()


def threads():
    def job():
        for _ in range(20):
            plain()
    plain()  # a main thread that runs no Python code keeps every tool out
    both = [threading.Thread(target=job, name=f"job{number}") for number in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()


def dropped():
    weight = torch.ones(16, 16, requires_grad=True)
    loss = (weight @ weight).tanh().sum()
    watch(loss.grad_fn)
    del loss
    plain()


def partial():
    """Only the part of the graph that leads to the wanted gradient."""
    weight, other = torch.ones(16, requires_grad=True), torch.ones(16, requires_grad=True)
    loss = (weight.sin() * other.exp().cos()).sum()
    watch(loss.grad_fn)
    torch.autograd.grad(loss, weight)


def checkpointed():
    weight = torch.ones(16, 16, requires_grad=True)
    hidden = torch.ones(4, 16) @ weight
    loss = checkpoint(lambda x: (x @ weight).tanh().exp(), hidden, use_reentrant=False).sum()
    watch(loss.grad_fn)
    loss.backward()


def many():
    """What the last of many graphs saved, as its nodes' own attributes show it: in several dtypes, views and broadcasts among them."""
    weight, half = torch.ones(16, 16, requires_grad=True), torch.ones(16, 16, dtype=torch.bfloat16, requires_grad=True)
    for turn in range(12):
        x = torch.ones(2, 16, 16)[1]
        y = (x @ weight.t()).tanh()
        z = (y[:, 4:8].exp() * y[:, 8:12]).sum() + (half[3:].sin() @ half.t()).float().pow(2).sum()
        z = z + torch.where(y > 0, y, y * 2).sum() + y.double().cos().sum() + y.norm(dim=0).sum()
        if turn == 11:
            saved(z.grad_fn)
        z.backward()


def saved(root):
    nodes, seen = [root], {root}
    while nodes:
        node = nodes.pop()
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)
        for attribute in dir(node):
            tensor = getattr(node, attribute) if attribute.startswith("_saved_") else None
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                name = f"{type(node).__name__}.{attribute.removeprefix('_saved_')}"
                ran.append((name, hex(storage.data_ptr()), storage.nbytes(), str(tensor.dtype).removeprefix("torch.")))


globals()[sys.argv[1]]()
print(json.dumps(ran))
