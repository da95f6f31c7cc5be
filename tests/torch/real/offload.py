"""offload.py cpu|disk: what blocks save goes elsewhere, by torch's save_on_cpu or by hooks that write files."""
import os
import sys
import tempfile

import job
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

job.start()
device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
with tempfile.TemporaryDirectory() as folder:
    class File:
        made = 0

        def __init__(self, tensor):
            self.path = os.path.join(folder, f"{File.made}.pt")
            File.made += 1
            torch.save(tensor, self.path)

    def to_disk():
        return saved_tensors_hooks(File, lambda file: torch.load(file.path))

    model = job.Net(around=save_on_cpu if sys.argv[1] == "cpu" else to_disk).to(device)
    results = job.train(model, torch.optim.AdamW(model.parameters()), device=device)
job.finish(model, results=results)
