"""Checkpoint functions that are the job's own (jobs/own_checkpoint.py): no region is known, and still what was made again can be read."""
import sys
import unittest
from collections import Counter

from support import JOBS, TorchTest

JOB = JOBS / "own_checkpoint.py"
BLOCKS, ACTIVATION = 3, 16 * 32 * 4


class OwnCheckpointTest(TorchTest):
    def record_style(self, style):
        plain = self.plain([sys.executable, JOB, style])
        run = self.record(JOB, style, name=style)
        self.assertEqual((run.status, run.stdout, run.stderr), (0, plain.stdout, plain.stderr))
        self.assertEqual(run.status, 0)
        return run, self.assert_sound(run), run.read("dump")["events"]

    def check(self, style):
        run, summary, events = self.record_style(style)
        for step in summary["steps"]:
            # Of each block: the outputs of Linear, Tanh and Linear.
            self.assertGreaterEqual(step["recompute_allocations"], 3 * BLOCKS)
        # By module, as in forward: a block is found by where it was called last.
        made = Counter(event["scope"] for event in events if event["kind"] == "alloc" and event["phase"] == "recompute"
                       and event["bytes"] == ACTIVATION and event["scope"])
        expected = {f"Net/blocks.{block}/{layer}": 2 for block in range(BLOCKS) for layer in range(3)}
        self.assertEqual({scope: made[scope] for scope in expected}, expected)
        # The graph that the recompute built, by slots: the result of Tanh, which is the input of the second Linear, in each of two steps.
        born = {}
        remade = []
        for event in events:
            if event["kind"] == "alloc":
                born[event["address"]] = event["phase"]
            elif event["kind"] == "rerun":
                remade.append((event["name"], born[event["address"]]))
        self.assertEqual(Counter(name for name, phase in remade if phase == "recompute"),
                         {"TanhBackward0.result": 2 * BLOCKS, "AddmmBackward0.mat1": 2 * BLOCKS})

    def test_megatron(self):
        self.check("megatron")

    def test_deepspeed(self):
        self.check("deepspeed")

    def test_grad(self):
        self.check("grad")

    def test_a_function_with_grad_off_recomputes_nothing(self):
        _, summary, events = self.record_style("off")
        self.assertEqual([step["recompute_allocations"] for step in summary["steps"]], [0, 0])
        self.assertEqual([event for event in events if event["kind"] == "rerun"], [])


if __name__ == "__main__":
    unittest.main()
