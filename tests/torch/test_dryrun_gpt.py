"""samples/torch_gpt on the stand-in device: PyTorch's own counters against acceptance/torch_cuda_standin.json, our trace against both, and
what `whatif` says of the modes against them."""
import json
import pathlib
import tempfile
import unittest

import torch
from support import ACCEPTANCE, JOBS, SOURCE, DryRunTest, counted_peaks, predicted_peaks

FACTS = json.loads((ACCEPTANCE / "torch_cuda_standin.json").read_text())
TRAIN = SOURCE / "samples/torch_gpt/train.py"
REPEATS = 5
POLICIES = {"none": "save-all", "block": "full", "selective": "selective:addmm"}


def key_of(fact):
    return (fact["dtype"], fact["attention"], fact["checkpoint"], "expandable" if fact["expandable_segments"] else "default")


@unittest.skipUnless(torch.__version__.startswith("2.14.1"), f"the facts are torch 2.14.1's, this is {torch.__version__}")
class GptOnStandInTest(DryRunTest):
    runs = None  # by configuration: run once for all tests

    def configuration(self, dtype, attention, checkpoint, segments, repeat=0):
        name = "-".join((dtype, attention, checkpoint, segments, str(repeat)))
        environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if segments == "expandable" else {}
        return self.dry_run(TRAIN, "--device", "cuda", "--preset", "standin", "--json", "--dtype", dtype, "--sdpa", attention,
                            "--checkpoint", checkpoint, environment=environment, name=name)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kept = tempfile.TemporaryDirectory(prefix="liveset-torch-")
        cls.addClassCleanup(cls.kept.cleanup)

    def all_runs(self):
        if GptOnStandInTest.runs is None:
            self.folder = pathlib.Path(self.kept.name)  # the traces are read by every test
            GptOnStandInTest.runs = self.side_by_side({
                key: lambda key=key: self.configuration(*key) for key in map(key_of, FACTS["runs"])})
        return GptOnStandInTest.runs

    def memory_of(self, run):
        """What PyTorch counted, of each step."""
        self.assertEqual((run.status, run.stderr), (0, ""))
        return json.loads(run.stdout)["memory"]

    def test_every_step_is_as_the_facts_say(self):
        self.assertEqual(len(FACTS["runs"]), 20)
        for fact in FACTS["runs"]:
            with self.subTest(run=key_of(fact)):
                memory = self.memory_of(self.all_runs()[key_of(fact)])
                self.assertEqual([{name: step[name] for name in facts} for step, facts in zip(memory, fact["steps"], strict=True)],
                                 fact["steps"])

    def test_the_trace_says_the_same_as_pytorch(self):
        for key, run in self.all_runs().items():
            with self.subTest(run=key):
                memory, summary = self.memory_of(run), self.assert_sound(run)
                counters, health = summary["counters"]["cuda:0"], summary["health"]
                self.assertEqual([step["peak_bytes"] for step in summary["steps"]], [step["peak_allocated"] for step in memory])
                self.assertEqual(counters["allocated"]["peak"], max(step["peak_allocated"] for step in memory))
                self.assertEqual(counters["reserved"]["peak"], max(step["peak_reserved"] for step in memory))
                # At every block event: our sum is the allocator's total (assert_sound), and our segments are what it reserved.
                self.assertGreater(health["checked_events"], 1000)
                self.assertEqual(health["segments_not_reserved"], 0)

    def test_requested_and_active_are_sampled_at_step_ends(self):
        for key, run in self.all_runs().items():
            with self.subTest(run=key):
                memory, summary = self.memory_of(run), run.summary()
                for name in ("requested", "active"):
                    counter = summary["counters"]["cuda:0"][name]
                    self.assertEqual(counter["peak"], max(step[f"peak_{name}"] for step in memory))
                    self.assertEqual(counter["final"], summary["counters"]["cuda:0"]["allocated"]["final"])
                    self.assertTrue(counter["sampled"])

    def test_again_and_again_the_same(self):
        key = ("bfloat16", "flash", "block", "default")
        again = self.side_by_side({number: lambda number=number: self.configuration(*key, repeat=number)
                                   for number in range(1, REPEATS)})
        for run in again.values():
            self.assertEqual(self.memory_of(run), self.memory_of(self.all_runs()[key]))

    def test_a_run_without_checkpoints_says_every_step_of_each_mode(self):
        """`whatif`: step 0 too, which makes the optimizer's state and finds an empty cache; and with segments that grow, which the trace shows."""
        for fact in FACTS["runs"]:
            dtype, attention, checkpoint, segments = key_of(fact)
            run, policy = self.all_runs()[dtype, attention, "none", segments], POLICIES[checkpoint]
            for number, step in enumerate(fact["steps"]):
                found = predicted_peaks(run, [policy], "--step", str(number))[0][policy]
                with self.subTest(run=key_of(fact), step=number):
                    self.assertEqual((found["allocated"], found["reserved"]), (step["peak_allocated"], step["peak_reserved"]))

    def test_a_run_without_checkpoints_says_every_counter_of_each_mode(self):
        """Blocks of bfloat16 are often larger than what was asked for: what remains of a free one is not worth a split."""
        for dtype, attention in (("float32", "math"), ("bfloat16", "flash")):
            runs = {mode: self.all_runs()[dtype, attention, mode, "default"] for mode in ("none", "block")}
            runs["selective"] = self.configuration(dtype, attention, "selective", "default")
            found, _ = predicted_peaks(runs["none"], POLICIES.values())
            for mode, policy in POLICIES.items():
                with self.subTest(dtype=dtype, mode=mode):
                    self.memory_of(runs[mode])
                    self.assertEqual(found[policy], counted_peaks(runs[mode]))


@unittest.skipUnless(torch.__version__.startswith("2.14.1"), f"written for torch 2.14.1, this is {torch.__version__}")
class LiveSetTest(DryRunTest):
    """The job compares itself: it ends without cleaning up, right after it took the allocator's snapshot."""

    def test_our_live_set_is_the_allocators(self):
        for segments in ("default", "expandable"):
            with self.subTest(segments=segments):
                environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if segments == "expandable" else {}
                run = self.dry_run(JOBS / "gpt_snapshot.py", environment=environment, name=segments)
                self.assertEqual((run.status, run.stderr), (0, ""))
                snapshot = {block["address"]: block["size"] for segment in json.loads(run.stdout) for block in segment["blocks"]
                            if block["state"] == "active_allocated"}
                summary = run.summary()
                live = run.read("peak", "--heap", "cuda:0", "--at", str(summary["events"] - 1), "--top", "100000")
                ours = {block["address"]: block["bytes"] for block in live["largest"]}
                self.assertGreater(len(ours), 100)
                self.assertEqual(ours, snapshot)
                self.assertEqual(sum(ours.values()), live["allocated_bytes"])


if __name__ == "__main__":
    unittest.main()
