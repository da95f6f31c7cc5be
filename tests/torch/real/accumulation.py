"""Three backward calls for each update."""
import job
import torch

job.start()
model = job.Net(checkpointed=True)
optimizer = torch.optim.AdamW(model.parameters())
losses, gradients = [], []
for step in range(3):
    for _ in range(3):
        loss = model(job.batch()).square().mean() / 3
        loss.backward()
        losses.append(loss.item())
        gradients.append(job.digest(parameter.grad for parameter in model.parameters()))
    optimizer.step()
    optimizer.zero_grad(set_to_none=step == 0)
job.finish(model, losses=losses, gradients=gradients)
