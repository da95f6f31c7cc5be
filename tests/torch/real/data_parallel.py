"""Two ranks of DistributedDataParallel on gloo (torchrun). Prints from rank 0 only: two writers would mix their lines."""
import os

import job
import torch
import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel

job.start()
distributed.init_process_group("gloo")
rank = distributed.get_rank()
assert rank == int(os.environ["RANK"])
model = DistributedDataParallel(job.Net(checkpointed=True), bucket_cap_mb=0.01)
optimizer = torch.optim.AdamW(model.parameters())
torch.manual_seed(rank)
losses, gradients = job.train(model, optimizer)
own = torch.tensor(losses)
seen = [torch.empty_like(own) for _ in range(2)]
distributed.all_gather(seen, own)
if rank == 0:
    job.finish(model, losses=[losses.tolist() for losses in seen], gradients=gradients)
distributed.destroy_process_group()
