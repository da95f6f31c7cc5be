"""The closed loop: a model of ONE step without checkpointing says what every other mode takes. Measured is each mode's own recording."""
import json
import subprocess
import unittest

import torch
from support import ACCEPTANCE, JOBS, LIVESET, SOURCE, TorchTest

FACTS = json.loads((ACCEPTANCE / "torch_gpt_cpu.json").read_text())
TRAIN = SOURCE / "samples/torch_gpt/train.py"
JOB = JOBS / "closed_loop.py"
# blocks, the operator whose outputs `selective` keeps
NETWORKS = {"mlp": (6, "addmm"), "resnet": (4, "convolution"), "prenorm": (5, "addmm"), "encoder": (5, "addmm")}


def policies(network):
    blocks, operator = NETWORKS[network]
    return {"none": "save-all", "block": "full", "second": "regions:" + ",".join(f"blocks.{i}" for i in range(0, blocks, 2)),
            "selective": f"selective:{operator}"}


class WhatIfTest(TorchTest):
    def peak(self, run, step=1):
        self.assertEqual((run.status, run.stderr), (0, ""))
        return run.read("summary")["steps"][step]["peak_bytes"]

    def predicted(self, run, *chosen):
        arguments = [word for policy in chosen for word in ("--policy", policy)]
        return [policy["peak"]["bytes"] for policy in run.read("whatif", *arguments)["policies"]]

    @unittest.skipUnless(torch.__version__.startswith("2.14.1"), "the facts are torch 2.14.1's")
    def test_gpt_to_the_byte(self):
        none = self.record(TRAIN, name="none")
        modes = {mode: facts["peak_forward_and_backward"]["later_steps"] for mode, facts in FACTS["modes"].items()}
        self.assertEqual(self.predicted(none, "save-all", "full"), [modes["none"], modes["block"]])
        selective = self.record(TRAIN, "--checkpoint", "selective", name="selective")
        self.assertEqual(self.predicted(none, "selective:addmm"), [self.peak(selective)])
        # The file that `model` writes says the same.
        path = self.folder / "step.textproto"
        subprocess.run([LIVESET, "model", none.trace, "-o", path], check=True, capture_output=True)
        for policy, bytes_ in (("save-all", modes["none"]), ("full", modes["block"]), ("selective:addmm", self.peak(selective))):
            found = json.loads(subprocess.run([LIVESET, "predict", path, "--policy", policy, "--format", "json"], check=True, capture_output=True,
                                              text=True).stdout)
            self.assertEqual(found["memory"]["peak"]["bytes"], bytes_, policy)

    def test_networks_to_the_byte(self):
        jobs = {(network, mode): lambda network=network, mode=mode: self.record(JOB, network, mode, name=f"{network}-{mode}")
                for network in NETWORKS for mode in policies(network)}
        runs = self.side_by_side(jobs)
        for network in NETWORKS:
            chosen = policies(network)
            found = dict(zip(chosen, self.predicted(runs[network, "none"], *chosen.values())))
            measured = {mode: self.peak(runs[network, mode]) for mode in chosen}
            with self.subTest(network):
                self.assertEqual(found, measured)
                # The same mode is the smallest.
                self.assertEqual(min(found, key=found.get), min(measured, key=measured.get))

    def test_what_cannot_be_modelled_is_said(self):
        block = self.record(TRAIN, "--checkpoint", "block", name="block")
        done = subprocess.run([LIVESET, "whatif", block.trace, "--policy", "full"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("step 1 recomputes: a model comes from a step without checkpointing", done.stderr)
        none = self.record("import torch\nx = torch.ones(1000)\n", name="nothing")
        done = subprocess.run([LIVESET, "whatif", none.trace], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("has no steps", done.stderr)
        done = subprocess.run([LIVESET, "whatif", block.trace, "--policy", "regions:"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
