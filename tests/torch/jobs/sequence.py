"""Makes nodes of autograd in every way, and says of chosen storages which node their operator has, as Python itself knows it.

sequence.py CASE    (knows nothing of liveset)
Prints JSON: {"blocks": [[address, number of the node, tag]], "layers": [[first number inside, one past the last]],
"threads": {thread: [[address, number of the node]]}}
"""
import json
import sys
import threading

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

said = {"blocks": [], "layers": [], "threads": {}}
kept = []  # what is said of stays alive, so that addresses are told apart


def next_number():
    return torch._C._autograd._get_sequence_nr()


def tell(tensor, tag):
    kept.append(tensor)
    number = None if tensor.grad_fn is None else tensor.grad_fn._sequence_nr()
    said["blocks"].append([tensor.untyped_storage().data_ptr(), number, tag])
    return tensor


class Square(torch.autograd.Function):
    """Two operators inside that make no node: both blocks are of the function's own."""

    @staticmethod
    def forward(ctx, x):
        inner = x * 1.5
        kept.append(inner)
        ctx.inner_place = inner.untyped_storage().data_ptr()
        ctx.save_for_backward(inner)
        return inner * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        first = next_number()
        x = tell(self.linear(x), "linear")
        x = tell(x.tanh(), "tanh")
        said["layers"].append([first, next_number()])
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return tell(Square.apply(x), "square").sum()


def forward():
    """Operators with and without a node, a custom function, views."""
    net = Net()
    loss = net(torch.rand(8, 64))
    square = loss.grad_fn.next_functions[0][0]
    said["blocks"].append([square.inner_place, square._sequence_nr(), "inside of square"])
    loss.backward()
    net.zero_grad()
    second = net(torch.rand(8, 64))
    second.backward()


def recomputes(reentrant):
    """What a recompute makes has nodes of its own, with numbers of the moment."""
    layer = Layer()

    def block(x):
        return layer(x).exp()
    x = torch.rand(8, 64, requires_grad=True)
    out = checkpoint(block, x, use_reentrant=reentrant)
    for entry in said["blocks"]:
        if reentrant:  # the first time nothing has a node of its own: all is of the checkpoint's
            assert entry[1] is None
            entry[1] = out.grad_fn._sequence_nr()
    out.sum().backward()


def threads():
    """Each thread counts for itself, from its first block on; a short one's ring goes on to the next."""
    lock = threading.Lock()

    def work(rounds):
        mine = []
        x = torch.rand(64, requires_grad=True)
        for _ in range(rounds):
            x = x.sin()
            kept.append(x)
            mine.append([x.untyped_storage().data_ptr(), x.grad_fn._sequence_nr()])
        with lock:
            said["threads"][threading.get_native_id()] = mine
    for rounds in (3, 1, 5):
        thread = threading.Thread(target=work, args=(rounds,))
        thread.start()
        thread.join()
    work(2)


def main(case):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    {"forward": forward, "recompute": lambda: recomputes(False), "reentrant": lambda: recomputes(True), "threads": threads}[case]()
    print(json.dumps(said))


main(sys.argv[1])
