"""The Python hooks by themselves, against a stand-in for the recorder."""
import gc
import re
import signal
import sys
import types
import unittest
import unittest.mock
import weakref

import torch
import torch.nn as nn
from support import SOURCE, FakeRecorder, load_shim
from torch.utils.checkpoint import checkpoint

PARAMETER, GRADIENT, OPTIMIZER_STATE, BUFFER, CHECKPOINT_INPUT, RNG_STATE, ACTIVATION_GRADIENT, LOSS = 1, 2, 3, 4, 5, 6, 10, 13
FORWARD, AFTER_FORWARD, BACKWARD, RECOMPUTE, OPTIMIZER = 1, 2, 3, 4, 5


def small_net():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


class ShimTest(unittest.TestCase):
    def setUp(self):
        self.shim = load_shim()
        self.recorder = FakeRecorder()
        self.addCleanup(self.shim.uninstall)

    def install(self, readable=True):
        context = self.shim.Context(torch, self.recorder.functions())
        context.saved_tensors_readable = readable and context.saved_tensors_readable
        self.shim.install_parts(context)

    def test_numbers_are_those_of_the_trace_format(self):
        text = (SOURCE / "proto/trace.proto").read_text()
        format_numbers = {name: int(number) for name, number in re.findall(r"^ *(\w+) = (\d+);", text, re.MULTILINE)}
        context = sys.modules["_liveset_shim.context"]
        names = {"PHASE_": ["OTHER", "FORWARD", "LOSS", "BACKWARD", "RECOMPUTE", "OPTIMIZER"], "SCOPE_": ["MODULE", "REGION"],
                 "CLASS_": ["PARAMETER", "GRADIENT", "OPTIMIZER_STATE", "BUFFER", "CHECKPOINT_INPUT", "RNG_STATE", "ACTIVATION", "LOSS",
                            "ACTIVATION_GRADIENT", "OFFLOADED"],
                 "EVENT_": ["BACKWARD_BEGIN", "BACKWARD_END"]}
        for prefix, group in names.items():
            for name in group:
                ours = {"SCOPE_": prefix + name, "CLASS_": "LOSS_VALUE" if name == "LOSS" else name}.get(prefix, name)
                self.assertEqual(getattr(context, ours), format_numbers[prefix + name], prefix + name)
        types = re.search(r"enum DType \{(.*?)\}", text, re.DOTALL)[1]
        self.assertEqual(context.DTYPES, {name.lower(): int(number) + 1 for name, number in re.findall(r"(\w+) = (\d+);", types)})
        for device, name in (("cpu", "CPU"), ("cuda", "CUDA"), ("xpu", "DEVICE_XPU")):
            self.assertEqual(context.DEVICE_TYPES[device], format_numbers[name])

    def test_allocator_statistics_are_read_when_a_step_ends_and_before_a_reset(self):
        now = {"requested_bytes": {"all": {"peak": 70, "current": 30}}, "active_bytes": {"all": {"peak": 90, "current": 40}}}
        resets = []
        bindings = types.SimpleNamespace(_cuda_memoryStats=lambda index: now, _cuda_resetPeakMemoryStats=resets.append)
        context = types.SimpleNamespace(
            torch=types.SimpleNamespace(_C=bindings, cuda=types.SimpleNamespace(is_initialized=lambda: True)),
            heaps=lambda: [(torch.device("cpu"), 1), (torch.device("cuda", 0), 101)], text=self.recorder.string,
            counter=self.recorder.counter, on_step_over=None)
        statistics = sys.modules["_liveset_shim.statistics"].Statistics(context)
        statistics.install()
        expected = [("counter", 101, "requested", 70), ("counter", 101, "requested", 30), ("counter", 101, "active", 90),
                    ("counter", 101, "active", 40)]
        context.on_step_over()
        self.assertEqual(self.recorder.of("counter"), expected)
        bindings._cuda_resetPeakMemoryStats(0)
        self.assertEqual(self.recorder.of("counter"), 2 * expected)
        self.assertEqual(resets, [0])
        # What is active and not allocated waits for a stream: said when there is some, and from then on.
        for allocated, waiting in ((40, []), (25, [15]), (40, [15, 0])):
            now["allocated_bytes"] = {"all": {"peak": 90, "current": allocated}}
            context.on_step_over()
            self.assertEqual([event[3] for event in self.recorder.of("counter") if event[2] == "waiting_for_streams"], waiting)
        del self.recorder.events[8:]
        statistics.uninstall()
        bindings._cuda_resetPeakMemoryStats(1)
        self.assertEqual((len(self.recorder.of("counter")), resets, context.on_step_over), (8, [0, 1], None))

    def test_a_step_is_told_in_order(self):
        self.install()
        net = small_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loss = net(torch.ones(5, 8)).square().mean()
        loss.backward()
        optimizer.step()
        told = [event for event in self.recorder.events if event[0] in ("step", "phase", "mark", "begin", "end")]
        self.assertEqual(told, [
            ("step", 0), ("phase", FORWARD), ("begin", "Sequential"), ("begin", "Sequential.0"), ("end",), ("begin", "Sequential.1"),
            ("end",), ("begin", "Sequential.2"), ("end",), ("end",), ("phase", AFTER_FORWARD),
            # mean, pow, addmm, tanh, addmm, 2 transposes and 4 leaves
            ("mark", 40, 11), ("phase", BACKWARD), ("phase", 0), ("mark", 41, 0), ("phase", OPTIMIZER), ("phase", 0)])
        self.assertEqual(self.recorder.failures, [])

    def test_what_the_graph_retains(self):
        self.install()
        x = torch.ones(5, 8)
        w = nn.Parameter(torch.ones(8, 3))
        h = x @ w       # saves x (w's gradient); not w, since x wants none
        y = h.tanh()    # saves its result
        loss = y.sum()
        loss.backward()
        expected = {("MmBackward0.self", 7, x.data_ptr(), 5 * 8 * 4), ("TanhBackward0.result", 7, y.data_ptr(), 5 * 3 * 4)}
        retained = {(name, kind, address, size) for _, kind, _, address, size, name in self.recorder.of("retain")}
        self.assertEqual(retained, expected)
        stated = {(kind, address) for _, kind, _, address, _, _ in self.recorder.of("storage")}
        first = [place for place in stated if place[0] == ACTIVATION_GRADIENT]
        self.assertEqual(len(first), 1)  # of the loss, which torch makes
        self.assertEqual(stated - set(first), {(LOSS, loss.data_ptr()), (PARAMETER, w.data_ptr()), (GRADIENT, w.grad.data_ptr())})

    def test_checkpoint_inputs_random_states_and_recompute(self):
        self.install()
        net = small_net()
        x = torch.ones(5, 8)
        mask = torch.ones(5, 8)
        loss = checkpoint(lambda inner: net(inner * mask), x, use_reentrant=False).sum()
        loss.backward()
        stated = {(kind, size) for _, kind, _, _, size, _ in self.recorder.of("storage")}
        self.assertIn((CHECKPOINT_INPUT, 160), stated)
        self.assertIn((RNG_STATE, 5056), stated)
        held = {address for _, kind, _, address, _, _ in self.recorder.of("storage") if kind == CHECKPOINT_INPUT}
        self.assertEqual(held, {x.data_ptr(), mask.data_ptr()})
        told = [event for event in self.recorder.events if event[0] in ("phase", "begin")]
        region = ("begin", "checkpoint:0")
        self.assertEqual(told[:2], [("phase", FORWARD), region])
        again = told.index(region, 2)
        self.assertEqual(told[again - 2:again + 1], [("phase", BACKWARD), ("phase", RECOMPUTE), region])
        self.assertEqual(len(self.recorder.of("begin")), len(self.recorder.of("end")))

    def test_a_model_that_only_a_region_calls(self):
        """It is named and its tensors are stated as those of one that the job calls itself."""
        self.install()
        net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))
        frozen = net.frozen = nn.Parameter(torch.ones(3000), requires_grad=False)
        for _ in range(2):
            checkpoint(net, torch.ones(5, 8), use_reentrant=False).sum().backward()
        begun = {event[1] for event in self.recorder.of("begin")}
        inside = ("", ".Sequential", ".Sequential.0", ".Sequential.1")
        self.assertEqual(begun, {f"checkpoint:{number}{path}" for number in range(2) for path in inside})
        stated = {(kind, address): name for _, kind, _, address, _, name in self.recorder.of("storage")}
        self.assertEqual(stated[PARAMETER, frozen.data_ptr()], "frozen")
        self.assertEqual(stated[BUFFER, net[1].running_mean.data_ptr()], "1.running_mean")
        self.assertEqual([event[1] for event in self.recorder.events if event[0] == "storage" and event[1] == BUFFER], [BUFFER] * 3)
        scopes, = (part for part in self.shim._installed if isinstance(part, sys.modules["_liveset_shim.modules"].Modules))
        self.assertEqual(scopes.models(), [net])
        self.assertEqual(self.recorder.failures, [])

    def test_a_model_that_only_a_region_calls_is_stated_again_where_it_went(self):
        self.install()
        net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for dtype in (torch.float32, torch.float32, torch.float64):
            net.to(dtype)
            checkpoint(net, torch.ones(5, 8, dtype=dtype), use_reentrant=False).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        stated = {(kind, address): name for _, kind, _, address, _, name in self.recorder.of("storage")}
        self.assertEqual(stated[BUFFER, net[1].running_mean.data_ptr()], "1.running_mean")
        self.assertEqual([event[1] for event in self.recorder.events if event[0] == "storage" and event[1] == BUFFER], [BUFFER] * 6)
        self.assertEqual(self.recorder.failures, [])

    def test_saved_tensors_that_cannot_be_read_as_they_are(self):
        """torch before 2.14: the same storages, read by unpacking, and nothing is run that the job did not run."""
        def retained(readable, checkpointed):
            recorder = self.recorder = FakeRecorder()
            self.install(readable)
            torch.manual_seed(0)
            calls = []
            net = nn.Sequential(*[small_net() if i % 2 == 0 else nn.Linear(4, 8) for i in range(4)])

            def run(x):
                calls.append(1)
                return net(x)
            h = checkpoint(run, torch.ones(5, 8), use_reentrant=False) if checkpointed else run(torch.ones(5, 8))
            (h.exp() * h.cos()).sum().backward()
            self.shim.uninstall()
            self.assertEqual(recorder.failures, [])
            return sorted((name, kind, size) for _, kind, _, _, size, name in recorder.of("retain")), len(calls)

        for checkpointed in (False, True):
            with self.subTest(checkpointed=checkpointed):
                direct, calls = retained(True, checkpointed)
                unpacked, calls_unpacked = retained(False, checkpointed)
                self.assertEqual(unpacked, direct)
                self.assertEqual((calls, calls_unpacked), (1 + checkpointed, 1 + checkpointed))

    def test_what_a_torch_lacks_is_named_once_and_the_rest_is_recorded(self):
        def run():
            net = small_net()
            net(checkpoint(torch.nn.Tanh(), torch.ones(5, 8, requires_grad=True), use_reentrant=False)).sum().backward()

        module = sys.modules["torch.utils.checkpoint"]
        for lacking, named in (((), []), ((module, "CheckpointFunction"), ["reentrant checkpoint regions"]),
                               ((sys.modules["torch.optim.optimizer"], "register_optimizer_step_pre_hook"), ["ends of steps, optimizer states"]),
                               ((torch.autograd, "_make_grads"), ["the first gradient of a backward as part of it"])):
            with self.subTest(lacking=lacking[1:]):
                self.setUp()
                kept = getattr(*lacking) if lacking else None
                said = []
                try:
                    if lacking:
                        delattr(*lacking)
                    with unittest.mock.patch("os.write", lambda stream, line: said.append((stream, line.decode()))):
                        self.install()
                finally:
                    if lacking:
                        setattr(*lacking, kept)
                ours = [line for stream, line in said if stream == 2]
                packed = not hasattr(torch._C._autograd.SavedTensor, "data")  # torch before 2.14
                self.assertEqual(len(ours), len(named) + packed, ours)
                (_, _, _, cannot_see), = self.recorder.of("source")
                for name in named:
                    self.assertEqual([name in line for line in ours].count(True), 1)
                    self.assertIn(name, cannot_see)
                try:
                    run()
                finally:
                    self.shim.uninstall()
                self.assertEqual(self.recorder.failures, [])
                self.assertTrue(self.recorder.of("retain"))

    def test_nodes_that_hooks_packed_are_known_as_long_as_they_live(self):
        """torch before 2.14: what is remembered of saved-tensor hooks goes with the graphs, and is found fast while it is there."""
        self.install(readable=False)
        packed = self.shim._installed[-1].packed
        unpacked = []

        def run():
            hooks = torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, lambda tensor: unpacked.append(1) or tensor)
            x = torch.ones(4, requires_grad=True)
            with hooks:
                inside = x.exp()
            outside = inside.cos()
            return inside, outside

        kept = [run() for _ in range(10)]
        for inside, outside in kept:
            self.assertIn(inside.grad_fn, packed)
            self.assertNotIn(outside.grad_fn, packed)
        for _ in range(100):
            run()[1].sum().backward()
        self.assertIn(kept[0][0].grad_fn, packed)  # which looks at what is over
        self.assertEqual(len(packed.ranges), 10)
        self.assertEqual(len(unpacked), 100, "only backward itself unpacks")
        del kept, inside, outside
        self.assertNotIn(torch.ones(4, requires_grad=True).exp().grad_fn, packed)
        self.assertEqual(len(packed.ranges), 0)
        # Inside of hooks that are still on, too.
        with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, lambda tensor: unpacked.append(1) or tensor):
            torch.ones(4, requires_grad=True).exp().sum().backward()
        self.assertEqual(len(unpacked), 101)
        self.assertEqual(self.recorder.failures, [])

    def test_packed_nodes_of_hooks_that_live_for_ever(self):
        """What is remembered stays bounded, and errs towards a slot that is not read."""
        packed = sys.modules["_liveset_shim.packed"].PackedRanges(self.shim.Context(torch, self.recorder.functions()))

        class Node:
            def __init__(self, number):
                self._sequence_nr = lambda: number

        count = 3 * packed.MOST
        for number in range(count):
            packed.add(3 * number, 3 * number + 2, len)  # a builtin function lives for ever
        self.assertLessEqual(len(packed.ranges), packed.MOST)
        self.assertTrue(all(Node(3 * number + 1) in packed for number in range(count)))
        self.assertNotIn(Node(3 * count - 1), packed)
        self.assertNotIn(Node(3 * count - 4), packed)

    def test_models_that_come_and_go_are_forgotten(self):
        self.install()
        scopes = next(part for part in self.shim._installed if hasattr(part, "roots"))
        outer = nn.Sequential(nn.Linear(8, 8))
        outer(torch.ones(2, 8))

        class Calls(nn.Module):
            def forward(self, x):
                return small_net()(x)

        calls = Calls()
        for _ in range(20):
            small_net()(torch.ones(5, 8)).sum().backward()
            calls(torch.ones(5, 8))
        gc.collect()
        last = nn.Tanh()  # a new one looks for those that are gone
        last(torch.ones(2))
        alive = {id(outer), id(calls), id(outer[0]), id(last)}
        self.assertEqual(set(scopes.roots), alive - {id(outer[0])})
        self.assertEqual(set(scopes.latest), alive)
        self.assertEqual(scopes.roots[id(calls)].children, {})
        self.recorder.events.clear()
        outer(torch.ones(2, 8))
        self.assertEqual(self.recorder.of("begin"), [("begin", "Sequential"), ("begin", "Sequential.0")])

    def test_nothing_of_the_job_is_kept_alive(self):
        self.install()
        net = small_net()
        x = torch.ones(5, 8)
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(2):
            loss = checkpoint(net, x, use_reentrant=False).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        watched = [weakref.ref(item) for item in (net, net[0], optimizer, loss, x)]
        storages = [weakref.ref(tensor.untyped_storage()) for tensor in (loss, x, net[0].weight)]
        del net, x, optimizer, loss
        gc.collect()
        self.assertEqual([ref() for ref in watched], [None] * len(watched))
        self.assertEqual([ref() for ref in storages], [None] * len(storages))

    def test_torch_is_as_it_was_after_uninstall(self):
        from torch.nn.modules import module
        from torch.utils import checkpoint as checkpoint_module
        frame, hook = checkpoint_module._CheckpointFrame, checkpoint_module._checkpoint_hook
        owned = lambda: (dict(vars(frame)), dict(vars(hook)), torch.autograd.Variable._execution_engine, torch.autograd._make_grads,
                         dict(module._global_forward_hooks), dict(module._global_forward_pre_hooks), getattr(module, "_has_any_global_hook", None),
                         dict(torch.optim.Optimizer.__module__ and sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks))
        before = owned()
        self.install()
        self.shim.uninstall()
        self.assertEqual(owned(), before)

    def test_gradients_and_optimizer_state_are_told_once_and_again_when_they_move(self):
        self.install()
        w = nn.Parameter(torch.ones(8))
        plain = torch.ones(4, requires_grad=True)  # no nn.Parameter, but an optimizer's
        optimizer = torch.optim.SGD([w, plain], lr=0.1, momentum=0.9)

        def step():
            self.recorder.events.clear()
            (w.sum() + plain.sum()).backward()
            optimizer.step()
            told = [(kind, size) for _, kind, _, _, size, _ in self.recorder.of("storage")]
            return {kind: sorted(size for other, size in told if other == kind) for kind in (PARAMETER, GRADIENT, OPTIMIZER_STATE)}

        first = step()
        self.assertEqual(first, {PARAMETER: [16, 32], GRADIENT: [16, 32], OPTIMIZER_STATE: [16, 32]})
        self.assertEqual(step(), {**first, OPTIMIZER_STATE: []})  # the same tensors where they were
        optimizer.state[w]["momentum_buffer"] = optimizer.state[w]["momentum_buffer"].clone()
        self.assertEqual(step(), {**first, OPTIMIZER_STATE: [32]})

    def test_an_error_of_ours_is_noted_and_swallowed(self):
        self.recorder.retain = self.broken
        self.install()
        net = small_net()
        net(torch.ones(5, 8)).sum().backward()
        net(torch.ones(5, 8)).sum().backward()
        self.assertIsNotNone(net[0].weight.grad)
        self.assertTrue(self.recorder.failures)
        self.assertEqual({key for key, _ in self.recorder.failures}, {"liveset.python_error"})
        self.assertEqual(len(self.recorder.failures), len(set(self.recorder.failures)), "said once per place")
        self.assertIn("no recorder", self.recorder.failures[0][1])

    @staticmethod
    def broken(*_):
        raise KeyError("no recorder")

    def test_an_exception_of_the_jobs_signal_handler_reaches_the_job(self):
        class Timeout(Exception):
            pass

        def handler(number, frame):
            raise Timeout

        before = signal.signal(signal.SIGUSR1, handler)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

        def interrupted(*_):
            signal.raise_signal(signal.SIGUSR1)
        self.recorder.retain = interrupted
        self.install()
        with self.assertRaises(Timeout):
            small_net()(torch.ones(5, 8)).sum().backward()

    def test_exceptions_leave_no_scope_open(self):
        class Bad(nn.Module):
            def __init__(self, error):
                super().__init__()
                self.error = error
                self.weight = nn.Parameter(torch.ones(1))

            def forward(self, x):
                raise self.error

        self.install()
        for error in (ValueError("mine"), KeyboardInterrupt()):
            with self.assertRaises(type(error)):
                nn.Sequential(nn.Linear(8, 8), Bad(error))(torch.ones(2, 8))
        small_net()(torch.ones(5, 8)).sum().backward()  # its backward finds the scopes that KeyboardInterrupt left
        self.recorder.events.clear()
        small_net()(torch.ones(5, 8))
        self.assertEqual(self.recorder.of("begin")[0], ("begin", "Sequential"))
        self.assertEqual(len(self.recorder.of("begin")), len(self.recorder.of("end")))

    def test_torch_func_and_offload(self):
        self.install()
        net = small_net()
        parameters = dict(net.named_parameters())

        def loss(values, x):
            return torch.func.functional_call(net, values, (x,)).square().mean()
        gradients = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, torch.ones(3, 5, 8))
        self.assertEqual(gradients["0.weight"].shape, (3, 16, 8))
        with torch.autograd.graph.save_on_cpu():
            net(torch.ones(5, 8)).square().mean().backward()
        self.assertEqual(self.recorder.failures, [])

    def test_a_hook_of_the_job_sees_the_same_engine(self):
        self.install()
        called = []
        w = nn.Parameter(torch.ones(3))
        w.register_hook(lambda gradient: torch.autograd.Variable._execution_engine.queue_callback(lambda: called.append(1)))
        (w * 2).sum().backward()
        self.assertEqual(called, [1])


if __name__ == "__main__":
    unittest.main()
