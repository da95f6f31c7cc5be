"""torch.profiler at the same time, with memory, shapes and stacks: what it counts is what it counts without us."""
import job
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

job.start()
model = job.Net(checkpointed=True)
optimizer = torch.optim.AdamW(model.parameters())
job.train(model, optimizer, steps=1)
with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as seen:
    with record_function("mine"):
        results = job.train(model, optimizer)
# The profiler names a frame of its own for each Python function (with_stack): not ours to count.
rows = sorted((row.key, row.count, row.self_cpu_memory_usage) for row in seen.key_averages())
counts = []
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=1),
             on_trace_ready=lambda p: counts.append(len([e for e in p.events() if e.name == "aten::addmm"]))) as stepped:
    for _ in range(3):
        job.train(model, optimizer, steps=1)
        stepped.step()
job.finish(model, results=results, rows=rows, counts=counts)
