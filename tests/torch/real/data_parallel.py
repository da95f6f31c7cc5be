"""Two ranks of DistributedDataParallel on gloo (torchrun). Prints from rank 0 only: two writers would mix their lines."""
import os
import sys
import time

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
# A thread of gloo that still holds a tensor of Python's when the interpreter ends aborts the process (with and without a
# recording): the job ends once no one but itself holds these.
alone = sys.getrefcount(torch.empty(0)) + 1
deadline = time.monotonic() + 60
while sys.getrefcount(own) > alone or any(sys.getrefcount(seen[i]) > alone for i in range(2)):
    assert time.monotonic() < deadline, "gloo has not let go of what it gathered"
distributed.destroy_process_group()
