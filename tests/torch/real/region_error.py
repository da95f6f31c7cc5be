"""Exceptions inside checkpointed regions: in forward, in the recompute, and in a nested region; training goes on after each."""
import sys

import job
import torch
from torch.utils.checkpoint import checkpoint

job.start()
model = job.Net(checkpointed=True)
optimizer = torch.optim.AdamW(model.parameters())
results = [job.train(model, optimizer, steps=1)]


def failing(when, nested=False, reentrant=False):
    calls = [0]

    def run(x):
        y = model.blocks[0](x).exp()
        calls[0] += 1
        if calls[0] == when:
            raise KeyError(f"call {when}")
        return model.blocks[1](y)

    def outer(x):
        return checkpoint(run, x.sin(), use_reentrant=reentrant).cos()

    x = job.batch().requires_grad_()
    try:
        checkpoint(outer if nested else run, x, use_reentrant=reentrant).sum().backward()
    except KeyError as error:
        return repr(error)
    return None


for nested in (False, True):
    for reentrant in (False, True):
        for when in (1, 2):
            results.append((nested, reentrant, when, failing(when, nested, reentrant)))
            model.zero_grad()
            results.append(job.train(model, optimizer, steps=1))


def early(x):
    """Fails after everything that backward needs was made again: an early stop never gets there."""
    y = x.exp()
    if torch._C._current_graph_task_id() >= 0:
        y = y * 1
        raise KeyError("late")
    return y * 1


x = job.batch().requires_grad_()
try:
    checkpoint(early, x, use_reentrant=False).sum().backward()
    results.append("stopped early")
except KeyError as error:
    results.append(repr(error))
job.finish(model, results=results)
if "uncaught" in sys.argv:
    last = job.batch().requires_grad_()
    checkpoint(lambda x: (x / (1 if torch._C._current_graph_task_id() < 0 else None)).exp(), last, use_reentrant=False).sum().backward()
