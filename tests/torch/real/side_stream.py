"""The recompute of a region runs on a side stream; its blocks are handed over by record_stream. Needs CUDA."""
import job
import torch
from torch.utils.checkpoint import checkpoint

job.start()
side = torch.cuda.Stream()
model = job.Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def run(x):
    main = torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y = model.blocks[0](x)
    main.wait_stream(side)
    y.record_stream(main)
    return y


for _ in range(2):
    x = job.batch(device="cuda").requires_grad_()
    y = model.head(checkpoint(run, x, use_reentrant=False))
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
print("done")
