"""ends.py HOW: trains a little and ends: by os._exit, by sys.exit, by an exception in a hook of its own, in the middle of a region."""
import os
import sys

import job
import torch
from torch.utils.checkpoint import checkpoint

how = sys.argv[1]
job.start()
model = job.Net(checkpointed=True)
job.finish(model, results=job.train(model, torch.optim.AdamW(model.parameters())))
if how == "os_exit":
    os._exit(9)
if how == "sys_exit":
    sys.exit(7)


def leave(_):
    if how == "hook":
        raise ValueError("in a gradient hook")
    os._exit(11)


x = job.batch().requires_grad_()
if how == "recompute":
    checkpoint(lambda x: leave(x) if torch._C._current_graph_task_id() >= 0 else x.exp() * x, x, use_reentrant=False).sum().backward()
y = x.exp()
y.register_hook(leave)
y.sum().backward()
