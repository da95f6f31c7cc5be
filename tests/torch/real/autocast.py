"""autocast in bfloat16, with and without regions that are recomputed (in the same autocast state)."""
import job
import torch

job.start()
results = {}
for checkpointed in (False, True):
    model = job.Net(checkpointed=checkpointed)
    optimizer = torch.optim.AdamW(model.parameters())

    def loss_of(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        return y.float().square().mean()

    results[str(checkpointed)] = job.train(model, optimizer, loss_of=loss_of)
job.finish(model, **results)
