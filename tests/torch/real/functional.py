"""torch.func: grad of a function and of a module's call, vmap of grad, a Jacobian, grad of grad."""
import job
import torch
from torch import func

job.start()
model = job.Net(blocks=1).eval()
parameters = dict(model.named_parameters())
x = job.batch()


def loss(parameters, x):
    return func.functional_call(model, parameters, (x,)).square().mean()


results = {"grad": job.digest(func.grad(loss)(parameters, x).values())}
per_row = func.vmap(func.grad(loss), in_dims=(None, 0))(parameters, x)
results["per_row"] = job.digest(per_row.values())
results["jacobian"] = job.digest([func.jacrev(lambda x: x.sin().square())(x[0])])
results["second"] = job.digest([func.grad(lambda x: func.grad(lambda y: y.sin().pow(3).sum())(x).sum())(x)])
inner = func.grad_and_value(lambda x: x.exp().sum())(x)
results["and_value"] = job.digest(inner)
# And an ordinary step after it.
results["step"] = job.train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=2)
job.finish(model, **results)
