"""A signal handler of the job's that raises while a function of ours runs: the exception is the job's, and what it leaves is what it would
leave without us. A trace function calls the handler at each line of ours in turn (or at every Nth), where the interpreter might."""
import unittest

from support import TorchTest, slots_readable

JOB = """
import signal
import sys
import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

class Stop(Exception):
    pass

def handler(number, frame):
    raise Stop

signal.signal(signal.SIGALRM, handler)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
x = torch.randn(2, 4, requires_grad=True)

def region():
    checkpoint(model, x, use_reentrant=False).sum().backward()

def reentrant():
    checkpoint(model, x, use_reentrant=True).sum().backward()

def nested():
    checkpoint(lambda y: checkpoint(model, y, use_reentrant=False).tanh(), x, use_reentrant=False).sum().backward()

def selective():
    contexts = lambda: create_selective_checkpoint_contexts([torch.ops.aten.addmm.default])
    checkpoint(model, x, use_reentrant=False, context_fn=contexts).sum().backward()

def step():
    class Own(torch.nn.Linear):  # a module that comes and goes
        pass
    own = Own(4, 4)
    own(x).sum().backward()
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)

def interrupted(work, at):
    lines, called = 0, False
    def trace(frame, event, argument):
        nonlocal lines, called
        # On the way of an exception (an early stop is one) torch keeps to itself what a module's hook raises.
        if "liveset_shim" not in frame.f_code.co_filename or frame.f_code.co_name == "after" and "modules.py" in frame.f_code.co_filename:
            return None
        if event == "line" and not called:
            lines += 1
            if lines == at:
                called = f"{frame.f_code.co_name}:{frame.f_lineno}"
                handler(signal.SIGALRM, frame)
        return trace
    try:
        sys.settrace(trace)
        work()
    except Stop:
        return called, True
    finally:
        sys.settrace(None)
    return called, False

def gradients():
    for parameter in model.parameters():
        parameter.grad = None
    x.grad = None
    region()
    return [x.grad, *(parameter.grad for parameter in model.parameters())]

for _ in range(3):
    step()
expected = gradients()
lines = 0
for work in (region, reentrant, nested, selective, step):
    at = 1
    while True:
        called, caught = interrupted(work, at)
        if not called:
            break
        if not caught:
            print(work.__name__, called, "the exception was lost")
        try:
            if not all(map(torch.equal, gradients(), expected)):
                print(work.__name__, called, "gradients differ")
        except Exception as error:
            print(work.__name__, called, type(error).__name__)
            break
        at += int(sys.argv[1])
        lines += 1
print("same", file=sys.stdout)
print(lines, file=sys.stderr)
"""


@unittest.skipUnless(slots_readable(), "before torch 2.14 a handler that raises while our hooks of a region begin may leave torch's pushed")
class Signals(TorchTest):
    def test_an_exception_of_a_signal_handler_is_the_jobs_wherever_it_meets_us(self):
        run = self.record(JOB, "1")
        self.assertEqual((run.status, run.stdout), (0, "same\n"), run.stderr)
        self.assertGreater(int(run.stderr.split()[-1]), 200, "it met none of our lines")

    def test_with_all_that_can_be_asked_for(self):
        run = self.record(JOB, "97", options=("--check-replay", "--fingerprint", "--who-holds", "--stacks"))
        self.assertEqual((run.status, run.stdout), (0, "same\n"), run.stderr)
        self.assertGreater(int(run.stderr.split()[-1]), 100, "it met none of our lines")


if __name__ == "__main__":
    unittest.main()
