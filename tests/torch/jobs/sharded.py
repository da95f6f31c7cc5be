"""FSDP2 in one process: two layers, sharded each by itself. Prints the bytes of each parameter."""
import json
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16))
mesh = init_device_mesh("cpu", (1,))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps({name: parameter.numel() * 4 for name, parameter in model.named_parameters()}), flush=True)
dist.destroy_process_group()
os._exit(0)  # a thread of gloo that outlives its group may abort an interpreter that ends (with and without a recording)
