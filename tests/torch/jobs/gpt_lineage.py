"""One forward and backward of samples/torch_gpt. With --observe: says as JSON what PyTorch did, seen by recorders of its own (a dispatch
mode, saved-tensor hooks, module hooks); these change what checkpoint sees, so they are never on when liveset records."""
import argparse
import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "samples/torch_gpt"))
import train  # noqa: E402


def loss_of(model, tokens, targets):
    return F.cross_entropy(model(tokens).view(-1, train.VOCABULARY), targets.view(-1))


class Paths:
    """Where the program is: names of the open modules, and which runs of each block are open."""

    def __init__(self, model):
        self.open = []
        self.runs = {}  # {block: how often its forward began}
        self.block = None
        for name, module in model.named_modules():
            is_block = isinstance(module, train.Block)
            module.register_forward_pre_hook(lambda module, arguments, name=name, is_block=is_block: self.enter(name, is_block))
            module.register_forward_hook(lambda module, arguments, result, is_block=is_block: self.leave(is_block), always_call=True)

    def enter(self, name, is_block):
        self.open.append(name)
        if is_block:
            self.block = name
            self.runs[name] = self.runs.get(name, 0) + 1

    def leave(self, is_block):
        self.open.pop()
        if is_block:
            self.block = None

    def now(self):
        return self.open[-1] if self.open else ""


class Operators(TorchDispatchMode):
    """Of each run of each block: (module, operator, bytes of the storages that it made)."""

    def __init__(self, paths):
        super().__init__()
        self.paths = paths
        self.seen = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        paths = self.paths
        if paths.block is not None:
            given = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
            made = {leaf.untyped_storage().data_ptr(): leaf.untyped_storage().nbytes()
                    for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)}
            sizes = [size for address, size in made.items() if address not in given]
            key = f"{paths.block}/{paths.runs[paths.block]}"
            self.seen.setdefault(key, []).append((paths.now(), str(func), sizes))
        return result


def saved_tensors(model, tokens, targets):
    """{block: [(module, dtype, bytes of the storage, ordinal of the storage, what it is)]} of a forward that saves everything."""
    paths, saved, numbers, inputs, alive = Paths(model), {}, {}, {}, []
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    for name, module in model.named_modules():
        if isinstance(module, train.Block):
            module.register_forward_pre_hook(lambda module, arguments, name=name: inputs.update({name: arguments[0].untyped_storage().data_ptr()}))

    def pack(tensor):
        alive.append(tensor)  # so that no address comes twice
        if paths.block is not None:
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            kind = "parameter" if address in parameters else "input" if address == inputs[paths.block] else "made"
            saved.setdefault(paths.block, []).append(
                (paths.now(), str(tensor.dtype).removeprefix("torch."), storage.nbytes(), numbers.setdefault(address, len(numbers)), kind))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss_of(model, tokens, targets)
    return saved


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="none")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--observe", action="store_true")
    options = parser.parse_args()
    model, _, tokens, targets = train.build(options.mode, options.device)
    if not options.observe:
        loss = loss_of(model, tokens, targets)
        loss.backward()
        print(loss.item())
        return
    plain, _, _, _ = train.build("none", options.device)
    saved = saved_tensors(plain, tokens, targets)
    with Operators(Paths(model)) as operators:
        loss_of(model, tokens, targets).backward()
    print(json.dumps({"saved": saved, "operators": operators.seen}))


if __name__ == "__main__":
    main()
