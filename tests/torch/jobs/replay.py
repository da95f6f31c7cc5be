"""One step of each of many small models whose recompute differs from its forward in one way; with --clean, of the same without that.

Each model is named by its class, so its findings are. Prints what the job computed, to be compared bit for bit.
"""
import hashlib
import random
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import CheckpointError, checkpoint, create_selective_checkpoint_contexts, set_checkpoint_early_stop

try:
    import numpy
except ImportError:
    numpy = None

CLEAN = "--clean" in sys.argv
digest = hashlib.sha256()
generator = torch.Generator().manual_seed(5)


def recomputing():
    return torch._C._current_graph_task_id() >= 0


class Model(nn.Module):
    reentrant = False

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)

    def body(self, x):
        return torch.tanh(self.two(self.change(torch.tanh(self.one(x)))))

    def change(self, x):
        return x

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=self.reentrant, **self.options()).square().sum()

    def options(self):
        return {}

    def between(self, x):
        """Between forward and backward."""


class Plain(Model):
    pass


class PlainReentrant(Model):
    reentrant = True


class Whole(Model):
    def forward(self, x):
        with set_checkpoint_early_stop(False):
            return super().forward(x)


class Dropout(Model):
    def change(self, x):
        return torch.dropout(x, 0.5, True)


class DropoutReentrant(Dropout):
    reentrant = True


class Selective(Model):
    def options(self):
        return {"context_fn": lambda: create_selective_checkpoint_contexts([torch.ops.aten.addmm.default])}


class Nested(Model):
    def change(self, x):
        return checkpoint(lambda y: torch.dropout(self.two(y), 0.5, True), x, use_reentrant=False)


class Keywords(Model):
    def forward(self, x):
        return checkpoint(lambda x, scale=None: self.body(x) * scale, x, scale=torch.full((6,), 2.0), use_reentrant=False).sum()


class InputWritten(Model):
    def between(self, x):
        if not CLEAN:
            x.data.mul_(2)


class ParameterWritten(Model):
    def between(self, x):
        if not CLEAN:
            with torch.no_grad():
                self.two.weight.mul_(2)


class GradMode(Model):
    def change(self, x):
        if recomputing() and not CLEAN:
            with torch.no_grad():
                return torch.sin(x)
        return torch.sin(x)


class PythonRandom(Model):
    def change(self, x):
        return x * (0.5 if CLEAN else random.random())


class NumpyRandom(Model):
    def change(self, x):
        return x * (0.5 if CLEAN or numpy is None else numpy.random.random())


class OwnGenerator(Model):
    def change(self, x):
        return x if CLEAN else x * torch.rand(6, generator=generator)


class Shape(Model):
    def change(self, x):
        return torch.cat([x, x]) if recomputing() and not CLEAN else torch.cat([x])


class Dtype(Model):
    def body(self, x):
        return (x.double() if recomputing() and not CLEAN else x.float()).mul(2).sin().float()


class Fewer(Whole):
    def change(self, x):
        return x if recomputing() and not CLEAN else torch.sin(x)


class Training(Model):
    def between(self, x):
        if not CLEAN:
            self.one.eval()


class Closure(Model):
    calls = 0

    def forward(self, x):
        calls = [0]

        def body(x):
            if not CLEAN:
                calls[0] += 1
            return self.body(x)
        return checkpoint(body, x, use_reentrant=False).sum()


class Advancing(Model):
    def options(self):
        return {"preserve_rng_state": CLEAN}

    def change(self, x):
        return torch.dropout(x, 0.5, True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    random.seed(1)
    if numpy:
        numpy.random.seed(1)
    for kind in (Plain, PlainReentrant, Whole, Dropout, DropoutReentrant, Selective, Nested, Keywords, InputWritten, ParameterWritten,
                 GradMode, PythonRandom, NumpyRandom, OwnGenerator, Shape, Dtype, Fewer, Training, Closure, Advancing):
        model = kind()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x = torch.randn(4, 6).requires_grad_()
        loss = model(x)
        model.between(x)
        try:
            loss.backward()
        except CheckpointError as error:
            print(kind.__name__, "raised", str(error).strip().splitlines()[0])
        optimizer.step()
        for tensor in (loss, x.grad, *model.parameters(), *(parameter.grad for parameter in model.parameters())):
            if tensor is not None:
                digest.update(tensor.detach().numpy().tobytes() if numpy else bytes(tensor.detach().contiguous().untyped_storage()))
    digest.update(bytes(torch.get_rng_state().tolist()))
    print(digest.hexdigest(), random.random(), torch.rand(1, generator=generator).item())


main()
