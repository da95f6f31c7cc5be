"""float16 with GradScaler. The second of four steps overflows: its update is skipped and the scale halved."""
import job
import torch

job.start()
model = job.Net(checkpointed=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
losses, scales, before = [], [], []
for step in range(4):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(job.batch()).float().square().mean()
    if step == 1:
        loss = loss * 1e36
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    before.append(job.digest(model.parameters()))
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    losses.append(loss.item())
    scales.append(scaler.get_scale())
assert scales == [1024.0, 512.0, 512.0, 512.0] and before[1] == before[2], (scales, before)
job.finish(model, losses=losses, scales=scales)
