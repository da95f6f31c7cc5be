"""Tensors, graphs and classes that few jobs have: each is recorded as far as it can be, and the job does what it does without us."""
import sys
import unittest

import torch
import torch.nn as nn
from support import FakeRecorder, TorchTest, load_shim
from torch.utils.checkpoint import checkpoint

PARAMETER, GRADIENT, ACTIVATION = 1, 2, 7
BACKWARD_BEGIN, BACKWARD_END = 40, 41
READABLE = hasattr(getattr(torch._C._autograd, "SavedTensor", None), "data")


class OddShimTest(unittest.TestCase):
    def setUp(self):
        self.shim = load_shim()
        self.recorder = FakeRecorder()
        self.context = self.shim.Context(torch, self.recorder.functions())
        self.shim.install_parts(self.context)
        self.addCleanup(self.shim.uninstall)

    def tearDown(self):
        self.assertEqual(self.recorder.failures, [])

    def marks(self, kind):
        return [number for _, other, number in self.recorder.of("mark") if other == kind]

    def test_a_node_that_an_earlier_backward_freed_hides_no_other(self):
        x = torch.ones(4, requires_grad=True)
        shared = x.exp()
        index = torch.tensor([0, 1])
        freed = torch.cat([shared, shared])[index]
        big = torch.ones(2, requires_grad=True)
        inner = freed * 2
        loss = (inner * big).sin().sum()
        freed.sum().backward()
        self.recorder.events.clear()
        # Only as far as inner: what is freed is walked and not run.
        torch.autograd.grad(loss, [inner])
        # sum, sin, the two products, index, cat, exp and two leaves
        self.assertEqual(self.marks(BACKWARD_BEGIN), [9])
        self.assertEqual(self.marks(BACKWARD_END), [0])
        retained = [event[3:] for event in self.recorder.of("retain")]
        self.assertIn((big.data_ptr(), 8, "MulBackward0.other"), retained)
        self.assertIn((8, "SinBackward0.self"), [said[1:] for said in retained])
        self.assertNotIn("ExpBackward0.result", [said[2] for said in retained])

    def test_a_gradient_without_an_address_hides_no_other(self):
        matrix = torch.eye(3).to_sparse_csr().requires_grad_()
        dense = torch.ones(3, 3, requires_grad=True)
        torch.sparse.mm(matrix, dense).sum().backward()
        self.assertEqual(matrix.grad.layout, torch.sparse_csr)
        self.assertEqual(self.marks(BACKWARD_END), [0])
        stated = {event[3] for event in self.recorder.of("storage") if event[1] == GRADIENT}
        self.assertLessEqual({dense.grad.data_ptr(), matrix.grad.values().data_ptr()}, stated)

    def test_a_gradient_that_cannot_be_stated_hides_no_other_and_the_end(self):
        first, second = (torch.ones(3, requires_grad=True) for _ in range(2))
        real = self.recorder.storage
        broken = []

        def storage(*statement):
            if statement[0] == GRADIENT and not broken:
                broken.append(statement)
                raise KeyError("mine")
            real(*statement)
        self.context.storage = storage
        (first * second).sum().backward()
        self.assertEqual(len([event for event in self.recorder.of("storage") if event[1] == GRADIENT]), 1)
        self.assertEqual(self.marks(BACKWARD_END), [0])
        self.assertEqual(len(self.recorder.failures), 1)
        self.recorder.failures.clear()

    @unittest.skipUnless(hasattr(torch, "_lazy_clone") and hasattr(torch._C, "_is_cow_tensor"), "this torch shares no storage until it is written")
    def test_a_storage_that_is_shared_until_it_is_written_stays_shared(self):
        addresses = sys.modules["_liveset_shim.addresses"]
        whole = torch.randn(100)
        address = whole.data_ptr()  # before it is shared: asked later, it would be copied
        shared = torch._lazy_clone(whole)
        part = shared[10:20]
        self.assertEqual(addresses.data_address(part), address + 40)
        self.assertEqual(addresses.storage_address(part, part.untyped_storage()), address)
        factor = torch.ones(100, requires_grad=True)
        (factor * shared).sum().backward()
        net = nn.Linear(2, 2)
        net.bias.data = torch._lazy_clone(net.bias.data)
        net.bias.grad = torch._lazy_clone(torch.ones(2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        hook = []
        optimizer.register_step_pre_hook(lambda *_: hook.append(torch._C._is_cow_tensor(net.bias.grad)))
        checkpoint(lambda x: x * torch._lazy_clone(whole), factor, use_reentrant=False).sum().backward()
        optimizer.step()
        self.assertEqual((torch._C._is_cow_tensor(shared), hook), (True, [True]))
        # The graph holds what the source holds: one storage.
        self.assertIn((ACTIVATION, address, 400), {(event[1], event[3], event[4]) for event in self.recorder.of("retain")})

    def test_a_class_of_the_job_is_read_without_its_own_methods(self):
        for_each_tensor = sys.modules["_liveset_shim.checkpoints"].for_each_tensor
        called = []

        def listening(base):
            def method(name):
                def run(self, *arguments):
                    called.append((base, name))
                    return getattr(base, name)(self, *arguments)
                return run
            names = ["__iter__", "__len__", "__getitem__", *(["values", "items", "keys"] if base is dict else [])]
            return type(f"Listening{base.__name__}", (base,), {name: method(name) for name in names})
        Dict, List, Tuple = listening(dict), listening(list), listening(tuple)
        one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
        found = []
        for_each_tensor(torch.Tensor, Dict(a=List([one]), b=Tuple((two, three))), found.append)
        self.assertEqual([tensor.numel() for tensor in found], [1, 2, 3])
        self.assertEqual(called, [])

        class Keeps(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.kept = Dict(a=torch.ones(7))
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2
        Keeps.apply(torch.ones(3, requires_grad=True)).sum().backward()
        self.assertIn((28, "KeepsBackward.kept"), {event[4:6] for event in self.recorder.of("retain")})
        self.assertEqual(called, [])

    def test_a_stand_in_of_a_compiler_has_no_memory(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            x = torch.ones(4, requires_grad=True)
            y = (x * x).tanh().sum()
        y.backward()
        self.assertEqual(x.grad.shape, (4,))
        self.assertEqual(self.marks(BACKWARD_END), [0])
        self.assertEqual([event for event in self.recorder.events if event[0] in ("storage", "retain")], [])

    def test_a_hook_whose_entry_fails_leaves_nothing_open(self):
        packed = sys.modules["_liveset_shim.packed"].PackedRanges(self.context)

        class Hooks:
            def __enter__(self):
                raise ValueError("mine")

            def __exit__(self, *arguments):
                pass
        packed.hooks, packed.original = Hooks, (Hooks.__enter__, Hooks.__exit__)
        packed.install()
        with self.assertRaisesRegex(ValueError, "mine"):
            Hooks().__enter__()
        self.assertEqual(packed.open, {})

    def test_an_error_of_ours_in_a_reentrant_region_is_not_the_jobs(self):
        parts = [part for part in sys.modules["_liveset_shim"]._installed if type(part).__name__ == "Reentrant"]

        def broken(*_):
            raise KeyError("ours")
        parts[0].forget_older = broken
        x = torch.ones(3, requires_grad=True)
        checkpoint(torch.sin, x, use_reentrant=True).sum().backward()
        torch.testing.assert_close(x.grad, torch.ones(3).cos())
        self.assertIn("ours", self.recorder.failures[0][1])
        self.recorder.failures.clear()

    def test_an_object_that_lacks_what_a_region_has(self):
        function = sys.modules["torch.utils.checkpoint"].CheckpointFunction

        class Slotted:
            __slots__ = ("_liveset_region",)
        odd = Slotted()
        odd._liveset_region = object()
        with self.assertRaises(AttributeError) as raised:
            function.backward(odd, torch.ones(1))
        self.assertNotIn("_liveset", str(raised.exception))  # torch's own complaint

    def test_what_replaces_the_arguments_is_told_by_its_truth(self):
        around = sys.modules["_liveset_shim.around"].around
        self.assertEqual(around(lambda *_: "token", lambda number: number + 1, lambda *_: None, False)(4), 5)
        self.assertEqual(around(lambda *_: ("token", (10,)), lambda number: number + 1, lambda *_: None, True)(4), 11)


NATIVE_AROUND = """
import sys
import torch
x = torch.ones(3, requires_grad=True)
(x * 2).sum().backward()
context = sys.modules["_liveset_shim"]._installed[0].context
around = context.around
assert type(around).__name__ == "builtin_function_or_method", around
plus = lambda number: number + 1
seen = []
after = lambda token, raised, result: seen.append((token, raised, result))
print(around(lambda *_: "token", plus, after, False)(4))
print(around(lambda *_: ("token", (10,)), plus, after, True)(4))
for nonsense in (("token",), ("token", (10,), 3), None, 7):
    print(around(lambda *_: nonsense, plus, after, True)(4))
print(seen)
"""

SHARED = """
import torch
whole = torch.randn(1000, 1000)
net = torch.nn.Linear(8, 8)
for step in range(4):
    y = torch.randn(4, 8, requires_grad=True)
    for _ in range(6): y = torch.tanh(net(y))
    shared = torch._lazy_clone(whole)
    factor = torch.ones(1000, 1000, requires_grad=True)
    ((factor * shared).sum() + y.sum()).backward()
    print(torch._C._is_cow_tensor(shared))
"""

STAND_IN = """
import torch
net = torch.nn.Linear(8, 8)
for step in range(5):
    y = torch.randn(4, 8, requires_grad=True)
    for _ in range(6): y = torch.tanh(net(y))
    y.sum().backward()
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    x = torch.randn(4, 4, requires_grad=True)
    y = torch.tanh(x * x).sum()
y.backward()
print(x.grad is not None)
"""

# What is no root of a backward, when graphs are already walked past Python; and a finalizer that walks one while another is walked.
FOREIGN_ROOTS = """
import gc
import torch
net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) if i % 2 else torch.nn.Tanh() for i in range(12)])
forward = lambda: net(torch.randn(4, 8)).sum()
for step in range(8):
    forward().backward()
loss = forward()
for roots in (["loss"], [3], [None], [[loss, loss]], [(loss,)], [b"x" * 100], [{"loss": loss}], [object()], [(object(), 0)], [("node", 0)], [(3, 0)],
              "loss", 3, (), [torch.ones(3)]):
    for call in (torch.autograd.backward, lambda roots: torch.autograd.grad(roots, [net[1].weight])):
        try:
            call(roots)
            print("done")
        except Exception as error:
            print(type(error).__name__, str(error)[:60])
walked = []
class Walks:
    def __init__(self):
        self.itself = self
    def __del__(self):
        forward().backward()
        walked.append(1)
gc.set_threshold(5, 2, 2)
for step in range(50):
    Walks()
    forward().backward()
print(len(walked) > 10)
"""

# Says when it is listed, and changes.
OWN_METHODS = """
import torch
class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.listed, self.inner = 0, torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)
for name in ("modules", "named_modules", "parameters", "named_parameters", "buffers", "named_buffers", "children", "named_children", "state_dict"):
    def own(self, *arguments, name=name, **keywords):
        print(name)
        self.listed += 1
        return getattr(torch.nn.Module, name)(self, *arguments, **keywords)
    setattr(Own, name, own)
model = Own()
optimizer = torch.optim.SGD(model.inner.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print(model.listed)
"""

COMPILED_STEP = """
import torch
from torch._dynamo.utils import counters
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
torch.compile(lambda: optimizer.step(), backend="eager")()
print(dict(counters["graph_break"]), dict(counters["stats"]))
"""

COMPILED = """
import torch
from torch._dynamo.utils import counters
def f(x):
    y = (x * x).sum()
    g, = torch.autograd.grad(y, [x])
    return g * 2
x = torch.randn(8, requires_grad=True)
print(torch.equal(torch.compile(f, backend="eager")(x), 4 * x.detach()))
print({kind: dict(found) for kind, found in counters.items()})
"""


EVERYTHING = ("--check-replay", "--fingerprint", "--who-holds", "--stacks")


class OddJobTest(TorchTest):
    def recorded(self, script, name):
        run = self.record(script, name=name)
        self.assertEqual((run.status, run.stderr), (0, ""))
        self.assert_sound(run)
        return run

    def test_what_stands_around_a_function_takes_any_answer(self):
        lines = self.recorded(NATIVE_AROUND, "around").stdout.splitlines()
        self.assertEqual(lines[:6], ["5", "11", "5", "5", "5", "5"])
        self.assertEqual(lines[6], "[('token', None, 5), ('token', None, 11)" + ", (None, None, 5)" * 4 + "]")

    @unittest.skipUnless(READABLE and hasattr(torch, "_lazy_clone"), "this torch shares no storage until it is written, or has no other way to ask")
    def test_a_storage_that_is_shared_until_it_is_written_stays_shared(self):
        self.assertEqual(self.recorded(SHARED, "shared").stdout, "True\n" * 4)

    def test_a_stand_in_of_a_compiler_makes_no_warning(self):
        self.assertEqual(self.recorded(STAND_IN, "stand_in").stdout, "True\n")

    def test_what_is_no_root_of_a_backward_is_refused_as_ever(self):
        run = self.record(FOREIGN_ROOTS, name="foreign_roots")
        plain = self.plain([sys.executable, self.folder / "foreign_roots.py"])
        self.assertEqual((run.status, run.stdout, run.stderr), (0, plain.stdout, plain.stderr))
        self.assertTrue(run.stdout.endswith("True\n"))

    def test_what_lists_a_module_is_not_called(self):
        for options in ((), EVERYTHING):
            run = self.record(OWN_METHODS, name="own_methods", options=options)
            self.assertEqual((run.status, run.stdout, run.stderr), (0, "0\n", ""))
            named = {event["name"] for event in run.read("dump")["events"] if event["kind"] == "storage" and event["class"] in ("parameter", "buffer")}
            self.assertLessEqual({"inner.0.weight", "inner.0.bias", "inner.1.weight", "inner.1.bias", "inner.1.running_mean"}, named)

    def test_the_compiler_does_not_meet_our_hooks_of_an_optimizer(self):
        run = self.record(COMPILED_STEP, name="compiled_step", options=EVERYTHING)
        plain = self.plain([sys.executable, self.folder / "compiled_step.py"])
        self.assertEqual((run.status, run.stdout), (0, plain.stdout), run.stderr)
        texts = lambda text: [line.rpartition("] ")[2] for line in text.splitlines() if not line.startswith("liveset: ")]
        self.assertEqual(texts(run.stderr), texts(plain.stderr))

    def test_the_compiler_does_not_meet_us(self):
        run = self.record(COMPILED, name="compiled")
        plain = self.plain([sys.executable, self.folder / "compiled.py"])
        self.assertEqual((run.status, plain.status), (0, 0), run.stderr)
        self.assertEqual(run.stdout, plain.stdout)
        self.assertTrue(run.stdout.startswith("True\n"))
