"""Who owns every byte of samples/torch_gpt: classes with their evidence, at every event, every peak and every start of a backward."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import torch
from support import ACCEPTANCE, LIVESET, SOURCE, TorchTest

TRAIN = SOURCE / "samples/torch_gpt/train.py"
FACTS = json.loads((ACCEPTANCE / "torch_gpt_cpu.json").read_text())
MODEL_CLASSES = {"parameter", "gradient", "optimizer_state", "buffer"}


class OwnershipTest(TorchTest):
    runs = {}

    def recorded(self, *arguments):
        if arguments not in self.runs:
            run = self.record(TRAIN, *arguments, "--steps", "3")
            self.assertEqual(run.status, 0, run.stderr)
            self.runs[arguments] = run, self.assert_sound(run)
            self.keep(run)
        return self.runs[arguments]

    def keep(self, run):
        """The first test's folder goes with it, later tests read the trace again."""
        kept = OwnershipTest.folder_of_class / f"{len(self.runs)}.liveset"
        run.trace.rename(kept)
        run.trace = kept

    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(prefix="liveset-ownership-")
        cls.folder_of_class = pathlib.Path(cls.holder.name)

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def modes(self):
        yield ()
        yield ("--checkpoint", "block")
        for mode in ("reentrant", "selective", "offload"):
            yield ("--checkpoint", mode)
        yield ("--checkpoint", "block", "--optimizer", "sgd")
        yield ("--accumulate", "4")
        yield ("--checkpoint", "reentrant", "--accumulate", "4", "--optimizer", "sgd")

    def test_the_classes_of_every_event_sum_to_what_lives(self):
        for arguments in self.modes():
            with self.subTest(arguments=arguments):
                run, summary = self.recorded(*arguments)
                checked = 0
                live = {}
                for row in run.read("ledger", "--physical")["events"]:
                    sign = {"alloc": 1, "free_requested": -1}.get(row["kind"], 0)
                    if sign:
                        live[row["class"]] = live.get(row["class"], 0) + sign * row["bytes"]
                    self.assertEqual(sum(live.values()), row["live_bytes"])
                    self.assertGreaterEqual(min(live.values(), default=0), 0)
                    checked += 1
                # ... and what lives is the allocator's own total (assert_sound: no mismatch).
                self.assertGreater(checked, 1000)
                self.assertGreaterEqual(summary["health"]["checked_events"], checked)

    def test_nothing_is_unattributed_at_any_peak_or_backward(self):
        for arguments in self.modes():
            with self.subTest(arguments=arguments):
                run, summary = self.recorded(*arguments)
                self.assertEqual(summary["peak"]["classes"]["unattributed"], 0)
                for step in summary["steps"]:
                    for backward in step["backwards"]:
                        self.assertEqual(backward["classes"]["unattributed"], 0)
                    for phase, figures in step["phases"].items():
                        if phase not in ("forward", "recompute", "backward"):
                            continue
                        at = run.read("peak", "--at", str(figures["peak_event"]))
                        self.assertEqual(at["bytes"], figures["peak_bytes"])
                        self.assertEqual(at["classes"]["unattributed"], 0, (step["step"], phase))

    def test_rows_sum_to_the_bytes_however_they_are_grouped(self):
        for arguments in ((), ("--checkpoint", "block")):
            run, summary = self.recorded(*arguments)
            for by in ("class", "module", "op", "dtype", "phase", "step", "size", "stack"):
                with self.subTest(arguments=arguments, by=by):
                    peak = run.read("peak", "--by", by)
                    self.assertEqual(peak["bytes"], summary["peak"]["bytes"])
                    self.assertEqual(sum(row["bytes"] for row in peak["rows"]), peak["bytes"])
                    self.assertEqual(sum(row["count"] for row in peak["rows"]), peak["blocks"])
                    for row in peak["rows"]:
                        self.assertEqual(set(row) - {"guess_bytes", "evidence"}, {"key", "bytes", "count"})

    def test_evidence(self):
        run, summary = self.recorded()
        rows = {row["key"]: row for row in run.read("peak", "--by", "class")["rows"]}
        facts = FACTS["modes"]["none"]["backward_start"]
        self.assertEqual(rows["parameter"]["bytes"], facts["parameter_bytes"])
        for name in MODEL_CLASSES & set(rows):
            self.assertEqual(rows[name]["guess_bytes"], 0, name)
        self.assertIn("optimizer state", {found["evidence"].split(":")[0] for found in rows["optimizer_state"]["evidence"]})
        self.assertTrue(all(found["evidence"].startswith("graph: ") for found in rows["activation"]["evidence"]))
        self.assertEqual({row["key"] for row in run.read("peak", "--by", "stack")["rows"]}, {"(recorded without --stacks)"})
        start = summary["steps"][1]["backward_start"]["event"]
        largest = run.read("peak", "--at", str(start), "--top", "1000000")
        activations = [block for block in largest["largest"] if block["class"] == "activation"]
        self.assertEqual(sum(block["bytes"] for block in activations), facts["activation_bytes"])
        for block in activations:
            self.assertEqual(block["evidence"], f"graph: {block['op']}.{block['slot']}")
            self.assertFalse(block["guess"])
            self.assertEqual(block["incarnation"], 0)

    def test_dtypes(self):
        run, summary = self.recorded()
        start = str(summary["steps"][1]["backward_start"]["event"])
        rows = {row["key"]: row["bytes"] for row in run.read("peak", "--at", start, "--by", "dtype")["rows"]}
        shape = FACTS["configuration"]
        tokens = shape["batch"] * shape["sequence"]
        self.assertEqual(rows["int64"], 2 * tokens * 8)  # ids and targets

    def test_rules(self):
        run, summary = self.recorded()
        rules = self.folder / "rules.json"
        readme = (SOURCE / "README.md").read_text()
        examples = re.findall(r"^```json\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
        rules.write_text(next(example for example in examples if '"rules"' in example))
        start = summary["steps"][1]["backward_start"]
        moment = run.read("peak", "--at", str(start["event"]), "--rules", str(rules))
        rows = {row["key"]: row["bytes"] for row in moment["rows"]}
        self.assertEqual(sum(rows.values()), start["live_bytes"])
        shape = FACTS["configuration"]
        # Softmax keeps its result: one matrix of scores a head and layer.
        self.assertEqual(rows["attention"], shape["layers"] * 4 * shape["batch"] * shape["heads"] * shape["sequence"] ** 2)
        self.assertEqual(rows["model"], FACTS["modes"]["none"]["backward_start"]["parameter_bytes"])
        # Each norm keeps, of every row, mean and reciprocal deviation; what it normalises is made elsewhere, but for what dropout is not.
        rows_of_norms = 2 * shape["layers"] * shape["batch"] * shape["sequence"]
        self.assertGreaterEqual(rows["normalisation"], rows_of_norms * 2 * 4)
        self.assertIn("large", rows)


class FrozenTest(TorchTest):
    def test_a_parameter_of_no_module_is_one_in_every_step(self):
        # 300 x 300 and 200 x 200 floats, which the graph holds because the other factor has a gradient. 16 steps: the walks of the
        # first read objects of Python, in the others the recorder reads the slots itself, once it knows where those keep their tensor.
        run = self.record("""
import sys, torch
class Own(torch.nn.Parameter): pass
exact = torch.nn.Parameter(torch.randn(300, 300), requires_grad=False)
own = Own(torch.randn(200, 200), requires_grad=False)
plain = torch.randn(100, 100)
model = torch.nn.Sequential(*[torch.nn.Linear(500, 500) for _ in range(4)])
for step in range(16):
    x = model(torch.randn(300, 500))
    loss = (x[:, :300] @ exact).sum() + (x[:, :200] * 2 @ own).sum() + (x[:, :100] * 2 @ plain).sum()
    loss.backward()
    while "_liveset_shim" not in sys.modules: pass
""")
        self.assertEqual(run.status, 0, run.stderr)
        self.assert_sound(run)
        kept = {360_000: [], 160_000: [], 40_000: []}
        for event in run.read("dump")["events"]:
            if event["kind"] == "keep" and event.get("name") == "MmBackward0.mat2":
                kept[event["bytes"]].append(event["class"])
        self.assertEqual({size: set(classes) for size, classes in kept.items()},
                         {360_000: {"parameter"}, 160_000: {"parameter"}, 40_000: {"activation"}})
        self.assertEqual({len(classes) for classes in kept.values()}, {16})


class OutOfMemoryTest(TorchTest):
    JOB = """
import sys
import torch
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.ones(64, 512)).sum()
    if step == FAIL:
        try:
            torch.empty(2**58)
        except RuntimeError:
            if sys.argv[1] == "raise":
                raise
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
sys.exit(STATUS)
"""

    def test_the_classes_of_that_moment_stand_beneath_the_error(self):
        script = self.folder / "job.py"
        script.write_text(self.JOB.replace("FAIL", "1").replace("STATUS", "0"))
        command = [LIVESET, "run", "-o", self.folder / "run.liveset", "--", sys.executable, script, "raise"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        error, table = done.stderr.index("RuntimeError"), done.stderr.index("OUT OF MEMORY")
        self.assertLess(error, table)
        said = done.stderr[table:]
        self.assertIn("1048576.00 TiB" if "TiB asked" in said else "1024.00 PiB", said)
        self.assertRegex(said, r"parameter +2\.00 MiB")
        self.assertIn("--by module", said)
        quiet = subprocess.run([command[0], "run", "-q", *command[2:]], capture_output=True, text=True, timeout=100)
        self.assertNotIn("OUT OF MEMORY", quiet.stderr)

    def test_a_job_that_went_on_says_nothing(self):
        script = self.folder / "job.py"
        script.write_text(self.JOB.replace("FAIL", "0").replace("STATUS", "3"))
        command = [LIVESET, "run", "-o", self.folder / "run.liveset", "--", sys.executable, script, "go on"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 3)
        self.assertNotIn("OUT OF MEMORY", done.stderr)


if __name__ == "__main__":
    unittest.main()
