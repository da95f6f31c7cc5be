"""What torch says of saved tensors that were edited in place, of graphs that are gone, and of in-place edits that are fine."""
import job
import torch
from torch.utils.checkpoint import checkpoint

job.start()


def message(action):
    try:
        action()
    except RuntimeError as error:
        return str(error)
    return None


def edited(through_checkpoint=False):
    x = job.batch().requires_grad_()

    def run(x):
        y = x.exp()
        z = y.sin()
        y.add_(1)
        return z
    (checkpoint(run, x, use_reentrant=False) if through_checkpoint else run(x)).sum().backward()


def edited_view():
    x = job.batch().requires_grad_()
    y = x.tanh()
    y[0].zero_()
    y.sum().backward()


def edited_parameter():
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    loss = layer(torch.ones(2, 4)).sum()
    with torch.no_grad():
        layer[1].weight.add_(1)
    loss.backward()


def edited_later():
    """Between two backward calls over one graph."""
    x = job.batch().requires_grad_()
    y = x * 2
    loss = (y * y).sum()
    loss.backward(retain_graph=True)
    with torch.no_grad():
        y.mul_(2)
    loss.backward()


def twice():
    loss = job.batch().requires_grad_().exp().sum()
    loss.backward()
    loss.backward()


def leaf():
    job.batch().requires_grad_().add_(1)


def anomaly():
    with torch.autograd.detect_anomaly(check_nan=True):
        x = torch.zeros(3, requires_grad=True)
        (x.sqrt() * 0).sum().backward()


results = {each.__name__: message(each) for each in (edited, edited_view, edited_parameter, edited_later, twice, leaf, anomaly)}
results["checkpointed"] = message(lambda: edited(True))
x = job.batch().requires_grad_()
y = torch.nn.functional.relu(x * 2, inplace=True)
z = (x * 2).mul_(3).add_(y)
z.sum().backward()
results["fine"] = job.digest([x.grad]), y._version, z._version, x._version
model = job.Net(checkpointed=True)
loss = model(job.batch()).sum()
results["versions"] = [parameter._version for parameter in model.parameters()]
loss.backward()
results["versions_after"] = [parameter._version for parameter in model.parameters()]
job.finish(model, **results)
