"""interrupted.py forward|recompute|uncaught: SIGINT reaches the job inside a region; it goes on after it, or ends by it."""
import os
import signal
import sys

import job
import torch
from torch.utils.checkpoint import checkpoint

job.start()
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us may ignore it
model = job.Net(checkpointed=True)
optimizer = torch.optim.AdamW(model.parameters())
results = [job.train(model, optimizer, steps=1)]
where = sys.argv[1]


def run(x):
    y = model.blocks[0](x)
    if (torch._C._current_graph_task_id() >= 0) == (where == "recompute"):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # the interpreter raises between two of its instructions
            pass
    return model.blocks[1](y)


class Whole(torch.nn.Module):
    def forward(self, x):
        return checkpoint(run, x, use_reentrant=False)


try:
    Whole()(job.batch().requires_grad_()).sum().backward()
except KeyboardInterrupt:
    if where == "uncaught":
        raise
    results.append("interrupted")
assert results[-1] == "interrupted"
model.zero_grad()
results.append(job.train(model, optimizer, steps=2))
job.finish(model, results=results)
