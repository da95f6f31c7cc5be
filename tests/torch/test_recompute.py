"""`liveset recompute` and `liveset leaks` on real jobs: what they say, and what they must not say."""
import subprocess
import unittest

import torch
from support import LIVESET, SOURCE, TorchTest, slots_readable

TRAIN = SOURCE / "samples/torch_gpt/train.py"
LAYERS, STEPS = 4, 3
WIDTH, SEQUENCE, BATCH = 128, 128, 4


def leaks(run, *options):
    return subprocess.run([LIVESET, "leaks", *options, run.trace], capture_output=True, text=True, timeout=100)


class RecomputeTest(TorchTest):
    def recorded(self, *arguments):
        run = self.record(TRAIN, "--steps", str(STEPS), *arguments)
        self.assertEqual((run.status, run.stderr), (0, ""))
        return run, run.read("recompute")

    def check_links(self, report):
        """Every value that was made again has one original, and an original has one incarnation of each number."""
        self.assertEqual((report["values_unmatched"], report["warnings"]), (0, []))
        blocks = [value["block"] for value in report["values"]]
        self.assertEqual(len(blocks), len(set(blocks)))
        incarnations = [(value["original_block"], value["incarnation"]) for value in report["values"]]
        self.assertEqual(len(incarnations), len(set(incarnations)))
        for value in report["values"]:
            self.assertEqual(value["name"], f"{value['original']}@{value['incarnation']}")
            self.assertNotIn(value["block"], (other["original_block"] for other in report["values"]))

    def test_every_block(self):
        run, report = self.recorded("--checkpoint", "block")
        self.check_links(report)
        self.assertEqual(len(report["regions"]), LAYERS * STEPS)
        for region in report["regions"]:
            with self.subTest(region=region["region"], step=region["step"]):
                self.assertEqual((region["times"], region["early_stopped"], region["kind"], region["matched"]),
                                 (1, True, "non_reentrant", "position"))
                self.assertEqual((region["input_dtypes"], region["autocast"], region["preserve_rng"]), (["float32"], None, True))
                # The hidden vectors of a block, and the state of the CPU's generator.
                self.assertEqual(region["input_bytes"], 4 * BATCH * SEQUENCE * WIDTH)
                self.assertEqual(region["rng_bytes"], torch.get_rng_state().numel())
                self.assertEqual(region["module"], f"GPT.bs.{region['region'][-1]}")
                self.assertEqual(region["remade_bytes"], region["not_held_bytes"])
                self.assertGreater(region["extra_ns"], 0)
        self.assertEqual({value["matched"] for value in report["values"]}, {"position"})

        # What the regions do not hold is what the graph without checkpoints holds besides.
        none = self.record(TRAIN, "--steps", str(STEPS), "--checkpoint", "none", name="none").summary()
        for plain, step, sums in zip(none["steps"], run.summary()["steps"], report["steps"]):
            held = step["backward_start"]["classes"]
            unread = 0 if slots_readable() else 8 * LAYERS  # numbers that nodes of regions save
            self.assertEqual(plain["backward_start"]["classes"]["activation"] - held["activation"] - held["checkpoint_input"] - unread,
                             sums["not_held_bytes"])

    def test_reentrant(self):
        _, block = self.recorded("--checkpoint", "block")
        _, report = self.recorded("--checkpoint", "reentrant")
        self.check_links(report)
        self.assertEqual(len(report["regions"]), LAYERS * STEPS)
        self.assertEqual({(region["times"], region["early_stopped"], region["kind"], region["matched"]) for region in report["regions"]},
                         {(1, False, "reentrant", "order")})
        self.assertFalse(any(value["guess"] for value in report["values"]))
        # The same values, for the same slots; but a number that the code writes (8 bytes) passes no hook, so the other kind holds it.
        # Which slot of a node waits for a region's value can be read from torch 2.14 on.
        names = [sorted((value["step"], value["bytes"], slots_readable() and value["slot"]) for value in each["values"] if value["bytes"] > 8)
                 for each in (block, report)]
        self.assertEqual(names[0], names[1])

    def test_selective(self):
        _, report = self.recorded("--checkpoint", "selective")
        self.check_links(report)
        for region in report["regions"]:
            self.assertEqual((region["kind"], region["times"]), ("selective", 1))
            self.assertGreater(region["selective_bytes"], 0)

    def test_nothing_to_say(self):
        run, report = self.recorded("--checkpoint", "none")
        self.assertEqual((report["regions"], report["values"]), ([], []))

    def test_own_function(self):
        """A checkpoint function as libraries write them: known by its phase."""
        run = self.record('''
import torch, torch.nn as nn

class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, x):
        ctx.run = run
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.run(x)
        torch.autograd.backward(y, gradient)
        return None, x.grad

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 32)
    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
    def forward(self, x):
        for block in self.blocks:
            x = Again.apply(block, x)
        return x

model = Model()
for _ in range(2):
    model(torch.ones(16, 32, requires_grad=True)).sum().backward()
''')
        self.assertEqual((run.status, run.stderr), (0, ""))
        report = run.read("recompute")
        self.check_links(report)
        self.assertEqual(len(report["regions"]), 6)
        self.assertEqual({region["kind"] for region in report["regions"]}, {"by_phase"})
        self.assertTrue(all(region["inferred"] for region in report["regions"]))
        self.assertEqual([region["module"] for region in report["regions"]][:3], [f"Model.blocks.{i}" for i in (2, 1, 0)])
        # Autograd's numbers, which tell Python's nodes apart, are found during the first backward.
        self.assertEqual({region["region"] for region in report["regions"][3:]}, {"AgainBackward"})
        # tanh's result, in each block and step; b's input is the same storage.
        tanh = [value for value in report["values"] if value["slot"] == "TanhBackward0.result"]
        self.assertEqual(len(tanh), 6)
        self.assertEqual({value["bytes"] for value in tanh}, {16 * 32 * 4})


class LeaksTest(TorchTest):
    def test_clean_jobs_have_none(self):
        for mode in ("none", "block", "reentrant", "selective"):
            with self.subTest(mode=mode):
                run = self.record(TRAIN, "--steps", str(STEPS), "--checkpoint", mode, name=mode)
                done = leaks(run, "--fail")
                self.assertEqual((done.stdout, done.stderr, done.returncode), ("LEAKS  none\n", "", 0))

    def record_job(self, body, steps=4):
        run = self.record(f'''
import torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))

model, kept = Model(), []
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({steps}):
    x = torch.ones(32, 64)
{body}
    optimizer.step()
    optimizer.zero_grad()
''')
        self.assertEqual((run.status, run.stderr), (0, ""))
        return run

    def test_a_kept_activation(self):
        run = self.record_job('''
    hidden = torch.tanh(model.first(x))
    kept.append(hidden.detach())
    model.second(hidden).sum().backward()
''')
        report = run.read("leaks")
        held = [value for value in report["values"] if value["bytes"] == 32 * 64 * 4]
        self.assertEqual({value["step"] for value in held}, {0, 1, 2, 3})
        self.assertTrue(all(value["held_ns"] > 0 for value in held))
        self.assertEqual([growth["block_bytes"] for growth in report["growth"]], [32 * 64 * 4])
        self.assertEqual(leaks(run, "--fail").returncode, 1)
        self.assertEqual(leaks(run).returncode, 0)

    def test_without_the_list_there_is_none(self):
        run = self.record_job('''
    hidden = torch.tanh(model.first(x))
    output = model.second(hidden)
    del hidden
    output.sum().backward()
''')
        self.assertEqual(run.read("leaks")["values"], [])

    def test_the_output_of_a_region(self):
        body = '''
    output = checkpoint(lambda x: torch.tanh(model.first(x)), x, use_reentrant=False)
    loss = output.sum()
    {}
    loss.backward()
'''
        report = self.record_job(body.format("pass")).read("leaks")
        self.assertIn("given_up", {value["kind"] for value in report["values"]})
        self.assertIn("checkpoint:0", [value for value in report["values"] if value["kind"] == "given_up"][0]["holder"])
        clean = self.record_job(body.format("del output")).read("leaks")
        self.assertEqual(clean["values"], [])

    def test_a_node_that_backward_does_not_run(self):
        run = self.record_job('''
    y = model.first(x.requires_grad_()).sigmoid()
    torch.autograd.grad(y.sum() + model.second(x).exp().sum(), list(model.second.parameters()))
    model(x).sum().backward()
''')
        self.assertIn("SigmoidBackward0.result", {value["slot"] for value in run.read("leaks")["unused"]})

    def test_the_first_backward_of_a_small_graph(self):
        """One node with a number, and a leaf's: what the node used last is known all the same."""
        run = self.record('''
import torch, torch.nn as nn

class Exp(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32, 64))
    def forward(self):
        return self.weight.exp()

y = Exp()()
kept = y.detach()
y.backward(torch.ones(32, 64))
''')
        self.assertEqual((run.status, run.stderr), (0, ""))
        self.assertEqual([(value["name"], value["bytes"]) for value in run.read("leaks")["values"]], [("Exp/ExpBackward0.result", 32 * 64 * 4)])

    def test_two_dtypes(self):
        """softmax saves its result in float32; autocast's cast of it is saved by the product that follows in the same module. Where the
        product has a module of its own, nobody knows that the two are one value."""
        body = '''
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = {}(x)
    output.float().sum().backward()
'''
        inside = '''
    class Attention(Model):
        def forward(self, x):
            weights = self.first(x).float().softmax(-1)
            return nn.functional.linear(weights, self.second.weight)
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
'''
        found = self.record_job(inside + body.format("model")).read("leaks")["two_dtypes"]
        self.assertEqual([(sorted(cast["dtypes"]), cast["elements"], cast["bytes"], cast["backwards"]) for cast in found],
                         [(["bfloat16", "float32"], 32 * 64, 32 * 64 * (2 + 4), 4)])
        self.assertEqual(self.record_job(body.format("model")).read("leaks")["two_dtypes"], [])


if __name__ == "__main__":
    unittest.main()
