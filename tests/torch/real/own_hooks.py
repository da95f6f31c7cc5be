"""The job's own saved_tensors_hooks: each is called as often and with the same as ever, and may not be nested with ours."""
import job
import torch
from torch.autograd.graph import saved_tensors_hooks

job.start()
calls = []


def pack(tensor):
    calls.append(("pack", tuple(tensor.shape), tensor._version))
    return tensor.to(torch.float64), tensor.dtype


def unpack(packed):
    calls.append(("unpack", tuple(packed[0].shape)))
    return packed[0].to(packed[1])


model = job.Net(around=lambda: saved_tensors_hooks(pack, unpack))
results = job.train(model, torch.optim.AdamW(model.parameters()))
# Hooks around a whole checkpointed model, and an unpack hook that fails: its exception is the job's.
checkpointed = job.Net(checkpointed=True)
with saved_tensors_hooks(pack, unpack):
    loss = checkpointed(job.batch()).sum()
loss.backward()


def fails(_):
    raise KeyError("unpack")


with saved_tensors_hooks(lambda tensor: 7, fails):
    loss = model(job.batch()).sum()
try:
    loss.backward()
except KeyError as error:
    calls.append(repr(error))
with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
    job.train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=1, loss_of=lambda model, x: model.head(x).sum())
job.finish(model, results=results, calls=calls)
