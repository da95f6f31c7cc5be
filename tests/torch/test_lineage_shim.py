"""What the shim says of checkpoint regions, against a stand-in for the recorder: slots given up, slots made again, attributes."""
import gc
import json
import unittest
import weakref

import torch
import torch.nn as nn
from support import FakeRecorder, load_shim
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

FLOAT32, INT64, FLOAT64 = 7, 5, 8  # proto DType + 1
PARAMETER, REMADE = 1, 8
FORWARD, AFTER_FORWARD, BACKWARD, RECOMPUTE = 1, 2, 3, 4


class LineageTest(unittest.TestCase):
    def setUp(self):
        self.shim = load_shim()
        self.recorder = FakeRecorder()
        self.context = self.shim.Context(torch, self.recorder.functions())
        self.shim.install_parts(self.context)
        self.addCleanup(self.shim.uninstall)
        self.addCleanup(lambda: self.assertEqual(self.recorder.failures, []))

    def said(self, kind):
        """(index, dtype number, scope) of each statement of a kind."""
        return [((facts >> 8) - 1, facts & 255, scope) for other, _, facts, scope in self.recorder.facts if other == kind]

    def attributes(self, key):
        return [json.loads(text) for other, text in self.recorder.attributes if other == key]

    def balanced(self):
        return len(self.recorder.of("begin")) == len(self.recorder.of("end"))


def one(x):
    return x.sin().cos().exp() * 2  # sin saves x, cos saves sin's result, exp saves its own; mul by a number saves nothing


class NonReentrantTest(LineageTest):
    def test_every_slot_is_given_up_and_made_again_by_its_index(self):
        x = torch.ones(5, requires_grad=True)
        kept = []

        def run(x):
            y = x.sin()
            kept.append(y.data_ptr())
            return y.cos().exp() * 2
        checkpoint(run, x, use_reentrant=False).sum().backward()
        self.assertEqual(self.said("drop"), [(0, FLOAT32, ""), (1, FLOAT32, ""), (2, FLOAT32, "")])
        drops = self.recorder.of("drop")
        self.assertEqual([(address, size) for _, _, _, address, size, _ in drops][:2], [(x.data_ptr(), 20), (kept[0], 20)])
        self.assertEqual(self.said("remake"), [(index, FLOAT32, "checkpoint:0") for index in range(3)])
        remakes = self.recorder.of("remake")
        self.assertEqual([(kind, address) for _, kind, _, address, _, _ in remakes][:2], [(REMADE, x.data_ptr()), (REMADE, kept[1])])
        self.assertEqual(self.attributes("recompute"), [{"early_stopped": True}])
        # Said inside the region, before it ends.
        order = [event[0] for event in self.recorder.events if event[0] in ("begin", "end", "drop", "remake")]
        self.assertEqual(order, ["begin", "drop", "drop", "drop", "end", "begin", "remake", "remake", "remake", "end"])

    def test_what_a_region_is_said_to_be(self):
        x = torch.ones(5, dtype=torch.float64, requires_grad=True)
        index = torch.zeros(2, dtype=torch.int64)
        run = lambda x, flag, index, scale=None: (x * scale)[index].sin()
        checkpoint(run, x, True, index, scale=torch.ones(5), use_reentrant=False, preserve_rng_state=False)
        with torch.autocast("cpu", torch.bfloat16), set_checkpoint_early_stop(False):
            checkpoint(one, x, use_reentrant=False)
        self.assertEqual(self.attributes("checkpoint"), [
            {"kind": "non_reentrant", "input_dtypes": ["float64", "int64", "float32"], "input_devices": ["cpu"], "autocast": None,
             "early_stop": True, "preserve_rng": False},
            {"kind": "non_reentrant", "input_dtypes": ["float64"], "input_devices": ["cpu"], "autocast": {"device": "cpu", "dtype": "bfloat16"},
             "early_stop": False, "preserve_rng": True}])
        self.assertEqual([(index, dtype) for index, dtype, _ in self.said("drop")],
                         # mul saves scale (x wants a gradient, scale none), indexing its index, sin what was indexed; then one()
                         [(0, FLOAT32), (1, INT64), (2, FLOAT64), (0, FLOAT64), (1, FLOAT64), (2, FLOAT64)])

    def storages_of_regions(self):
        """Scopes of the statements about storages with memory (torch before 2.14 saves an empty tensor, too)."""
        sizes = [event[4] for event in self.recorder.events if event[0] in ("storage", "retain", "drop", "remake", "offload")]
        said = [(kind, scope) for kind, _, _, scope in self.recorder.facts if kind not in ("use", "offload_slot")]
        return [scope for (kind, scope), size in zip(said, sizes, strict=True) if kind == "storage" and scope and size > 0]

    def test_what_a_region_holds_is_said_of_it(self):
        for reentrant in (False, True):
            with self.subTest(reentrant=reentrant):
                self.recorder.facts.clear()
                self.recorder.events.clear()
                self.context.thread.step, self.context.thread.regions = -1, 0
                x = torch.ones(5, requires_grad=True) * 1
                checkpoint(one, checkpoint(one, x, use_reentrant=reentrant), use_reentrant=reentrant).sum().backward()
                held = self.storages_of_regions()
                # An input and the state of the CPU's generator each.
                self.assertEqual(sorted(held), ["checkpoint:0"] * 2 + ["checkpoint:1"] * 2)

    def test_the_modules_that_save(self):
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

            def forward(self, x):
                return checkpoint(self.net, x, use_reentrant=False)

        Outer()(torch.ones(2, 3, requires_grad=True)).sum().backward()
        region = "Outer.checkpoint:0.net"
        self.assertEqual([scope for _, _, scope in self.said("drop")], [""] * 3)  # where the thread is: the recorder knows
        events = [event for event in self.recorder.events if event[0] in ("begin", "drop")]
        names = [event[1] if event[0] == "begin" else "drop" for event in events]
        self.assertEqual(names[:8], ["Outer", "Outer.checkpoint:0", region, f"{region}.0", "drop", "drop", f"{region}.1", "drop"])
        classes = [kind for _, kind, *_ in self.recorder.of("drop")]
        self.assertEqual(classes.count(PARAMETER), 0)  # addmm saves a view of its weight
        self.assertTrue(self.balanced())

    @unittest.skipUnless(hasattr(torch._C._autograd.SavedTensor, "data"), "torch before 2.14 cannot show what a hook packed")
    def test_a_slot_of_the_graph_is_found(self):
        checkpoints = next(part for part in self.shim._installed if hasattr(part, "slot_of"))
        x = torch.ones(5, requires_grad=True)
        y = checkpoint(one, x, use_reentrant=False)
        exp = y.grad_fn.next_functions[0][0]
        scope, facts = checkpoints.slot_of(exp._raw_saved_result.data)
        self.assertEqual((self.recorder.scopes[scope], facts), ("checkpoint:0", 3 << 8))  # index + 1
        cos = exp.next_functions[0][0]
        self.assertEqual(checkpoints.slot_of(cos._raw_saved_self.data)[1], 2 << 8)
        self.assertIsNone(checkpoints.slot_of(object()))
        self.assertIsNone(checkpoints.slot_of(torch.ones(1)))

    def test_the_results_checks_of_torch_stay(self):
        """determinism_check="none" calls a function too; a mismatch is found as without us."""
        x = torch.ones(5, requires_grad=True)
        checkpoint(one, x, use_reentrant=False, determinism_check="none").sum().backward()
        self.assertEqual([index for index, _, _ in self.said("drop")], [0, 1, 2])
        calls = []

        def other(x):
            calls.append(1)
            return (x if len(calls) == 1 else x[:3]).sin()
        loss = checkpoint(other, x, use_reentrant=False).sum()
        with self.assertRaisesRegex(torch.utils.checkpoint.CheckpointError, "saved metadata: .*\\[5\\]"):
            loss.backward()
        self.assertEqual(self.said("drop")[3:], [(0, FLOAT32, "")])
        self.assertTrue(self.balanced())

    def test_each_backward_is_a_round(self):
        x = torch.ones(5, requires_grad=True)
        loss = checkpoint(one, x, use_reentrant=False).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        self.assertEqual([index for index, _, _ in self.said("remake")], [0, 1, 2, 0, 1, 2])
        self.assertEqual(len(self.attributes("recompute")), 2)

    @unittest.skipUnless(hasattr(torch.utils.checkpoint, "GraphExecGroup"), "torch before 2.10")
    def test_a_group_of_backwards_is_one_round(self):
        x = torch.ones(5, requires_grad=True)

        def both(x):
            return x.sin(), x.cos()
        first, second = checkpoint(both, x, use_reentrant=False)
        with torch.utils.checkpoint.GraphExecGroup():
            first.sum().backward()
            second.sum().backward()
        self.assertEqual([index for index, _, _ in self.said("remake")], [0, 1])
        self.assertEqual(len(self.attributes("recompute")), 1)

    def test_a_part_of_the_graph_needs_a_part_of_the_slots(self):
        x = torch.ones(5, requires_grad=True)

        def both(x):
            return x.sin(), x.exp()  # saves x; its result
        first, second = checkpoint(both, x, use_reentrant=False)
        del first  # nothing waits for its slot any more
        second.sum().backward()
        self.assertEqual([index for index, _, _ in self.said("drop")], [0, 1])
        self.assertEqual([index for index, _, _ in self.said("remake")], [1])

    def test_unpacked_outside_of_a_backward(self):
        x = torch.ones(5, requires_grad=True)
        y = checkpoint(one, x, use_reentrant=False)
        y.grad_fn.next_functions[0][0]._saved_result
        self.assertEqual([index for index, _, _ in self.said("remake")], [0, 1, 2])
        y.sum().backward()
        self.assertEqual(len(self.said("remake")), 6)

    def test_early_stop(self):
        calls = []

        def run(x):
            y = x.sin().exp()
            calls.append(1)
            return y + 1
        x = torch.ones(5, requires_grad=True)
        checkpoint(run, x, use_reentrant=False).sum().backward()
        with set_checkpoint_early_stop(False):
            loss = checkpoint(run, x, use_reentrant=False).sum()
        loss.backward()
        self.assertEqual(len(calls), 3)
        self.assertEqual(self.attributes("recompute"), [{"early_stopped": True}, {"early_stopped": False}])

    def test_an_exception_in_a_region(self):
        for where in (1, 2):  # in forward; in recompute
            for kind in (ValueError, KeyboardInterrupt):
                with self.subTest(where=where, kind=kind):
                    self.recorder.attributes.clear()
                    calls = []

                    class Raises(nn.Module):
                        def forward(self, x):
                            calls.append(1)
                            if len(calls) == where:
                                raise kind("the job's own")
                            return x.exp()

                    net = nn.Sequential(nn.Tanh(), Raises())
                    with self.assertRaisesRegex(kind, "the job's own"):
                        checkpoint(net, torch.ones(2, 3, requires_grad=True), use_reentrant=False).sum().backward()
                    self.assertEqual(self.context.thread.stack, [])
                    self.assertTrue(self.balanced())
                    expected = [] if where == 1 else [{"early_stopped": False, "raised": kind.__name__}]
                    self.assertEqual(self.attributes("recompute"), expected)
                    checkpoint(one, torch.ones(2, requires_grad=True), use_reentrant=False).sum().backward()
                    self.assertEqual(self.attributes("recompute")[-1], {"early_stopped": True})

    def test_nothing_lives_longer(self):
        x = torch.ones(5, requires_grad=True)
        frames = []
        original = torch.utils.checkpoint._CheckpointFrame.save_inputs if hasattr(torch.utils.checkpoint._CheckpointFrame, "save_inputs") else None
        if original is None:
            self.skipTest("torch before 2.14 has no save_inputs")

        def save_inputs(frame, *arguments):
            frames.append(weakref.ref(frame))
            return original(frame, *arguments)
        torch.utils.checkpoint._CheckpointFrame.save_inputs = save_inputs
        self.addCleanup(setattr, torch.utils.checkpoint._CheckpointFrame, "save_inputs", original)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        inner = []

        def run(x):
            y = x.sin()
            inner.append(weakref.ref(y.untyped_storage()))
            return y.exp()
        y = checkpoint(run, x, use_reentrant=False)
        self.assertIsNone(inner[0]())
        y.sum().backward()
        self.assertIsNone(inner[1]())
        z = checkpoint(run, x, use_reentrant=False)
        del y, z
        self.assertEqual([frame() for frame in frames], [None, None])  # by their counts, not by the collector


class ReentrantTest(LineageTest):
    def names(self, kind):
        return [name for other, name, *_ in self.recorder.facts if other == kind]

    def test_forward_and_recompute_in_one_scope(self):
        x = torch.ones(5, requires_grad=True)
        sizes = []

        def run(x):
            y = x.sin()
            sizes.append(y.data_ptr())
            return y.cos().exp()
        loss = checkpoint(run, x, use_reentrant=True, preserve_rng_state=False).sum()
        self.assertEqual(self.attributes("checkpoint"), [
            {"kind": "reentrant", "input_dtypes": ["float32"], "input_devices": ["cpu"], "autocast": None, "early_stop": False, "preserve_rng": False}])
        loss.backward()
        told = [event for event in self.recorder.events if event[0] in ("phase", "begin", "end", "remake", "mark")]
        short = [event[1] if event[0] in ("phase", "begin", "mark") else event[0] for event in told]
        self.assertEqual(short, [FORWARD, "checkpoint:0", "end", AFTER_FORWARD, 40, BACKWARD, RECOMPUTE, "checkpoint:0",
                                 "remake", "remake", "remake", "end", BACKWARD, 0, 41])
        self.assertEqual(sorted(self.names("remake")), ["CosBackward0.self", "ExpBackward0.result", "SinBackward0.self"])
        self.assertEqual({(index, dtype, scope) for index, dtype, scope in self.said("remake")}, {(-1, FLOAT32, "checkpoint:0")})
        self.assertIn(sizes[1], [address for _, _, _, address, _, _ in self.recorder.of("remake")])
        self.assertEqual(self.attributes("recompute"), [{"early_stopped": False}])
        self.assertEqual((self.said("drop"), self.context.thread.stack), ([], []))

    def test_without_a_graph_it_is_no_region(self):
        x = torch.ones(5, requires_grad=True)
        with torch.no_grad():
            checkpoint(one, x, use_reentrant=True)
            checkpoint(one, x, use_reentrant=False)
        self.assertEqual((self.recorder.of("begin"), self.attributes("checkpoint")), ([], []))

    def test_autocast_is_said(self):
        x = torch.ones(5, 5, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            checkpoint(lambda x: x @ x, x, use_reentrant=True).sum().backward()
        self.assertEqual(self.attributes("checkpoint")[0]["autocast"], {"device": "cpu", "dtype": "bfloat16"})
        self.assertEqual({dtype for _, dtype, _ in self.said("remake")}, {16})

    def test_only_what_was_built_again_is_said(self):
        """The function captures a tensor with a graph of its own: that graph was there before."""
        w = torch.ones(5, requires_grad=True)
        outside = w.exp()
        x = torch.ones(5, requires_grad=True)
        checkpoint(lambda x: x * outside, x, use_reentrant=True).sum().backward()
        self.assertEqual(sorted(self.names("remake")), ["MulBackward0.other", "MulBackward0.self"])

    def test_an_exception_in_a_region(self):
        for where in (1, 2):
            for kind in (ValueError, KeyboardInterrupt):
                with self.subTest(where=where, kind=kind):
                    self.recorder.attributes.clear()
                    calls = []

                    def run(x):
                        calls.append(1)
                        if len(calls) == where:
                            raise kind("the job's own")
                        return x.exp()
                    x = torch.ones(5, requires_grad=True)
                    with self.assertRaisesRegex(kind, "the job's own"):
                        checkpoint(run, x, use_reentrant=True).sum().backward()
                    self.assertEqual(self.context.thread.stack, [])
                    self.assertTrue(self.balanced())
                    self.assertEqual(self.attributes("recompute"), [] if where == 1 else [{"early_stopped": False, "raised": kind.__name__}])
                    checkpoint(one, x, use_reentrant=True).sum().backward()
                    self.assertEqual(self.attributes("recompute")[-1], {"early_stopped": False})

    def test_the_function_is_the_jobs_own_afterwards(self):
        seen = []
        run = lambda x: x.exp()
        y = checkpoint(run, torch.ones(5, requires_grad=True), use_reentrant=True)
        seen.append(y.grad_fn.run_function)
        y.sum().backward(retain_graph=True)
        seen.append(y.grad_fn.run_function)
        y.sum().backward()
        self.assertEqual([one is run for one in seen], [True, True])
        self.assertEqual(len(self.attributes("recompute")), 2)

    def test_torch_is_as_it_was_after_uninstall(self):
        function = torch.utils.checkpoint.CheckpointFunction
        ours = dict(vars(function))
        self.shim.uninstall()
        plain = dict(vars(function))
        self.shim.install_parts(self.context)
        self.shim.uninstall()
        self.assertEqual(dict(vars(function)), plain)
        self.assertNotEqual(ours, plain)

    def test_a_checkpoint_function_of_a_library(self):
        """As Megatron's: its own Function calls the engine inside of backward. No region, but what it made again is said."""
        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, run, x):
                ctx.run = run
                ctx.save_for_backward(x)
                with torch.no_grad():
                    return run(x)

            @staticmethod
            def backward(ctx, gradient):
                x, = ctx.saved_tensors
                inner = x.detach().requires_grad_()
                with torch.enable_grad():
                    y = ctx.run(inner)
                torch.autograd.backward((y,), (gradient,))
                return None, inner.grad
        x = torch.ones(5, requires_grad=True)
        (Own.apply(lambda x: x.sin().exp(), x) * 2).sum().backward()
        self.assertEqual(sorted(self.names("remake")), ["ExpBackward0.result", "SinBackward0.self"])
        self.assertEqual(self.recorder.of("begin"), [])


class NestedTest(LineageTest):
    def outer(self, reentrant_outer, reentrant_inner, x):
        inner = lambda x: checkpoint(one, checkpoint(one, x, use_reentrant=reentrant_inner), use_reentrant=reentrant_inner)
        return checkpoint(inner, x, use_reentrant=reentrant_outer)

    def test_a_region_has_its_name_in_every_recompute(self):
        for outer in (False, True):
            for inner in (False, True):
                with self.subTest(outer=outer, inner=inner):
                    self.recorder.events.clear()
                    self.context.thread.step, self.context.thread.regions = -1, 0
                    x = torch.ones(5, requires_grad=True)
                    y = self.outer(outer, inner, self.outer(outer, inner, x))
                    first = [event[1] for event in self.recorder.of("begin")]
                    whole = ["checkpoint:0", "checkpoint:0.checkpoint:1", "checkpoint:0.checkpoint:2", "checkpoint:3",
                             "checkpoint:3.checkpoint:4", "checkpoint:3.checkpoint:5"]
                    # What is not reentrant opens no region where there is no graph: inside a reentrant one's forward.
                    self.assertEqual(first, whole if inner or not outer else ["checkpoint:0", "checkpoint:3"])
                    y.sum().backward()
                    again = [event[1] for event in self.recorder.of("begin")][len(first):]
                    self.assertEqual(sorted(set(again)), whole)
                    self.assertTrue(self.balanced())
                    self.assertEqual(self.context.thread.regions, 6)
                    reference = torch.ones(5, requires_grad=True)
                    one(one(one(one(reference)))).sum().backward()
                    self.assertTrue(torch.equal(x.grad, reference.grad))

    def test_slots_of_both_levels(self):
        x = torch.ones(5, requires_grad=True)
        self.outer(False, False, x).sum().backward()
        scopes = {}
        for index, _, scope in self.said("remake"):
            scopes.setdefault(scope, []).append(index)
        # The outer region's slots are the inputs of the inner ones; torch before 2.14 saves an empty tensor with each.
        self.assertEqual(scopes["checkpoint:0.checkpoint:1"], [0, 1, 2])
        self.assertEqual(scopes["checkpoint:0.checkpoint:2"], [0, 1, 2])
        self.assertEqual(sorted(set(scopes["checkpoint:0"])), [0, 1] if hasattr(torch._C._autograd.SavedTensor, "data") else [0, 1, 2, 3])


class SelectiveTest(LineageTest):
    def test_kept_outputs_are_their_own(self):
        from functools import partial

        from torch.utils.checkpoint import create_selective_checkpoint_contexts
        contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
        x, w = torch.ones(4, 8, requires_grad=True), torch.ones(8, 8, requires_grad=True)
        results = []

        def run(x):
            y = (x.sin() @ w).cos()
            results.append(1)
            return y.exp() * 2
        y = checkpoint(run, x, use_reentrant=False, context_fn=contexts)
        y.sum().backward()
        kept = [event for event in self.recorder.of("retain") if event[5].startswith("selective.")]
        self.assertEqual([(kind, size, name) for _, kind, _, _, size, name in kept], [(7, 4 * 8 * 4, "selective.aten.mm.default")])
        self.assertIn(("graph_node", "selective", -1), self.recorder.events)
        self.assertEqual(self.attributes("checkpoint")[0]["kind"], "selective")
        # What the recompute has in the slot of cos is what was kept.
        self.assertIn(kept[0][3], [event[3] for event in self.recorder.of("remake")])


if __name__ == "__main__":
    unittest.main()
