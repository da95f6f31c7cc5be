"""compiled.py inductor|aot_eager: a compiled model with a checkpoint region in it, trained; and a compiled function with aot_eager."""
import sys

import job
import torch

job.start()
model = job.Net(blocks=1, checkpointed=True)
compiled = torch.compile(model, backend=sys.argv[1])
results = job.train(compiled, torch.optim.AdamW(model.parameters()))
if sys.argv[1] == "inductor":  # each kernel is a run of the C++ compiler
    job.finish(model, results=results)
    sys.exit()
scale = torch.compile(lambda x: (x.sin() * x).sum(), backend=sys.argv[1])
x = job.batch().requires_grad_()
scale(x).backward()
job.finish(model, results=results, function=job.digest([x.grad]))
