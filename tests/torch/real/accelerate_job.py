"""accelerate: a prepared loop in bfloat16 with accumulation and clipping."""
import job
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

job.start()
accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
model = job.Net(checkpointed=True)
optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, DataLoader(job.batch(32), batch_size=4, shuffle=True), schedule)
losses = []
for rows in loader:
    with accelerator.accumulate(model):
        loss = model(rows).float().square().mean()
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    losses.append(loss.item())
job.finish(model, losses=losses)
