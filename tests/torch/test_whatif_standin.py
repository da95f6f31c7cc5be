"""The closed loop on the stand-in device: ONE dry run without checkpointing says what every other mode takes of each counter. Measured is
what PyTorch's own caching allocator counted in a dry run of that mode."""
import json
import unittest

import torch
from support import ACCEPTANCE, JOBS, SOURCE, DryRunTest

from test_whatif import NETWORKS, policies

FACTS = json.loads((ACCEPTANCE / "torch_cuda_standin.json").read_text())
TRAIN = SOURCE / "samples/torch_gpt/train.py"
JOB = JOBS / "closed_loop.py"
COUNTERS = ("requested", "allocated", "active", "reserved")
MODES = {"none": "save-all", "block": "full", "selective": "selective:addmm"}


class ClosedLoopTest(DryRunTest):
    def predicted(self, run, chosen, *options):
        """-> by policy: the peak of each counter. self.estimates: which of them are estimates"""
        arguments = [word for policy in chosen for word in ("--policy", policy)]
        outcomes = run.read("whatif", *arguments, *options)["policies"]
        self.estimates = {(outcome["policy"], counter): peak["estimate"] for outcome in outcomes for counter, peak in outcome["counters"].items()}
        return {outcome["policy"]: {counter: peak["bytes"] for counter, peak in outcome["counters"].items()} for outcome in outcomes}

    def measured(self, run):
        """The peak of each counter in the second step."""
        self.assertEqual((run.status, run.stderr), (0, ""))
        counters = run.read("summary", "--range", "step:1")["counters"]["cuda:0"]
        return {counter: counters[counter]["peak"] for counter in COUNTERS}

    def gpt(self, dtype, attention, mode="none", expandable=False):
        environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if expandable else {}
        return self.dry_run(TRAIN, "--device", "cuda", "--preset", "standin", "--json", "--dtype", dtype, "--sdpa", attention,
                            "--checkpoint", mode, environment=environment, name=f"{dtype}-{attention}-{mode}-{expandable}")

    @unittest.skipUnless(torch.__version__.startswith("2.14.1"), f"the facts are torch 2.14.1's, this is {torch.__version__}")
    def test_every_step_of_gpt_is_as_the_facts_say(self):
        """Step 0 too, which makes the optimizer's state and finds an empty cache; and with segments that grow, which the trace shows."""
        keys = sorted({(fact["dtype"], fact["attention"], fact["expandable_segments"]) for fact in FACTS["runs"]})
        runs = self.side_by_side({key: lambda key=key: self.gpt(*key[:2], expandable=key[2]) for key in keys})
        for fact in FACTS["runs"]:
            key, policy = (fact["dtype"], fact["attention"], fact["expandable_segments"]), MODES[fact["checkpoint"]]
            for number, step in enumerate(fact["steps"]):
                found = self.predicted(runs[key], [policy], "--step", str(number))[policy]
                with self.subTest(run=key, policy=policy, step=number):
                    self.assertEqual((found["allocated"], found["reserved"]), (step["peak_allocated"], step["peak_reserved"]))

    def test_every_counter_of_gpt(self):
        """Blocks of bfloat16 are often larger than what was asked for: what remains of a free one is not worth a split."""
        for dtype, attention in (("float32", "math"), ("bfloat16", "flash")):
            runs = self.side_by_side({mode: lambda mode=mode: self.gpt(dtype, attention, mode) for mode in MODES})
            found = self.predicted(runs["none"], MODES.values())
            for mode, policy in MODES.items():
                with self.subTest(dtype=dtype, mode=mode):
                    self.assertEqual(found[policy], self.measured(runs[mode]))

    def test_every_counter_of_the_networks(self):
        jobs = {(network, mode): lambda network=network, mode=mode: self.dry_run(JOB, network, mode, "cuda", name=f"{network}-{mode}")
                for network in NETWORKS for mode in policies(network)}
        runs = self.side_by_side(jobs)
        for network in NETWORKS:
            chosen = policies(network)
            found = self.predicted(runs[network, "none"], chosen.values())
            measured = {mode: self.measured(runs[network, mode]) for mode in chosen}
            for mode, policy in chosen.items():
                with self.subTest(network=network, mode=mode):
                    # Nothing tells what was asked for of a temporary: up to 511 bytes less than its block.
                    excess = found[policy].pop("requested") - measured[mode].pop("requested")
                    self.assertTrue(0 <= excess < 1024, excess)
                    self.assertTrue(self.estimates[policy, "requested"] or excess == 0)
                    # What a region's forward let go, and when, is not recorded; reserved depends on it.
                    self.assertEqual([self.estimates[policy, counter] for counter in COUNTERS[1:]], [False, False, mode != "none"])
                    self.assertEqual(found[policy], measured[mode])


if __name__ == "__main__":
    unittest.main()
