"""The closed loop: a model of ONE step without checkpointing says what every other mode takes. Measured is
each mode, recorded."""
import json
import subprocess
import unittest

import torch
from support import ACCEPTANCE, JOBS, LIVESET, SOURCE, TorchTest

FACTS = json.loads((ACCEPTANCE / "torch_gpt_cpu.json").read_text())
TRAIN = SOURCE / "samples/torch_gpt/train.py"
JOB = JOBS / "closed_loop.py"
# blocks, the operator whose outputs `selective` keeps (None: torch refuses it, of values that are overwritten)
NETWORKS = {"mlp": (6, "addmm"), "resnet": (4, "convolution"), "inplace": (5, None), "prenorm": (5, "addmm"), "encoder": (5, "addmm")}
FIRST_MODE = ("--step", "1")  # of a job that trains with one mode after the other


def policies(network):
    blocks, operator = NETWORKS[network]
    modes = {"none": "save-all", "block": "full", "second": "regions:" + ",".join(f"blocks.{i}" for i in range(0, blocks, 2))}
    return modes if operator is None else modes | {"selective": f"selective:{operator}"}


def recorded_modes(network, modes):
    """The arguments of closed_loop.py for one job of all modes, and by mode the number of its second step."""
    return (network, ",".join(modes)), {mode: 3 * index + 1 for index, mode in enumerate(modes)}


class WhatIfTest(TorchTest):
    def peaks(self, network, modes):
        """One job trains the network with each mode in turn. -> the job, which began with the first mode; by mode: the peak of its second step"""
        arguments, steps = recorded_modes(network, modes)
        run = self.record(JOB, *arguments, name=network)
        self.assertEqual((run.status, run.stderr), (0, ""))
        summary = self.assert_sound(run)
        self.assertEqual(len(summary["steps"]), 3 * len(modes))
        return run, {mode: summary["steps"][step]["peak_bytes"] for mode, step in steps.items()}

    def peak(self, run, step=1):
        self.assertEqual((run.status, run.stderr), (0, ""))
        return run.read("summary")["steps"][step]["peak_bytes"]

    def predicted(self, run, *chosen, options=()):
        arguments = [word for policy in chosen for word in ("--policy", policy)]
        return [policy["peak"]["bytes"] for policy in run.read("whatif", *options, *arguments)["policies"]]

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
        recorded = self.side_by_side({network: lambda network=network: self.peaks(network, policies(network)) for network in NETWORKS})
        for network, (run, measured) in recorded.items():
            chosen = policies(network)
            found = dict(zip(chosen, self.predicted(run, *chosen.values(), options=FIRST_MODE)))
            with self.subTest(network):
                self.assertEqual(found, measured)
                # The same mode is the smallest.
                self.assertEqual(min(found, key=found.get), min(measured, key=measured.get))

    def test_layers_are_calls_that_record_a_graph(self):
        """A block that runs three times in a row is three layers, blocks that the program calls itself are layers, an evaluation has none."""
        cases = {"shared": {"none": "save-all", "block": "full", "second": "regions:" + ",".join(f"blocks.{block}{call}" for block in (0, 1) for call in ("#1", "#3"))},
                 "loop": {"none": "save-all", "block": "full", "second": "regions:PreNorm#1,PreNorm#3,PreNorm#5"},
                 "dicts": {"none": "save-all", "block": "regions:blocks.0..3.wide,blocks.0..3.narrow"},
                 "evaluated": {"none": "save-all", "block": "full", "pairs": "segment:2", "second": "regions:blocks.0,blocks.2,blocks.4"}}
        recorded = self.side_by_side({network: lambda network=network: self.peaks(network, cases[network]) for network in cases})
        self.assertEqual(recorded["dicts"][0].read("whatif", *FIRST_MODE)["unit"], "InDicts.*")  # "InDicts.blocks.0" is not called
        for network, (run, measured) in recorded.items():
            with self.subTest(network):
                self.assertEqual(dict(zip(cases[network], self.predicted(run, *cases[network].values(), options=FIRST_MODE))), measured)

    def test_what_a_region_is_called_with_and_what_it_takes_back(self):
        """A value that only the caller holds is no argument, and a weight is taken back like any other value."""
        for network, estimate in (("joins", True), ("frozen", False)):
            modes = {"block": "full", "second": "regions:" + ",".join(f"blocks.{i}" for i in range(0, 4, 2))}
            if network == "frozen":
                modes["second"] += ",blocks.4"
            run, measured = self.peaks(network, ["none", *modes])
            found = run.read("whatif", *FIRST_MODE, *(word for policy in modes.values() for word in ("--policy", policy)))["policies"]
            for mode, policy in zip(modes, found):
                with self.subTest(network=network, mode=mode):
                    self.assertEqual(policy["peak"]["bytes"], measured[mode])
                    if estimate:
                        self.assertTrue(policy["peak"]["estimate"])

    def test_damage_is_an_estimate_or_refused(self):
        run = self.record(TRAIN, name="whole")
        whole = run.trace.read_bytes()
        estimates = 0
        for place in range(len(whole) // 120, len(whole), len(whole) // 60):
            damaged = self.folder / "damaged.liveset"
            damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1:])
            done = subprocess.run([LIVESET, "whatif", damaged, "--policy", "full", "--format", "json"], capture_output=True, text=True)
            self.assertIn(done.returncode, (0, 2, 3), (place, done.stderr))
            health = json.loads(subprocess.run([LIVESET, "summary", damaged, "--format", "json"], capture_output=True, text=True).stdout or "{}").get("health")
            if done.returncode == 0 and health and health["damaged_packets"]:
                found = json.loads(done.stdout)
                self.assertTrue(found["policies"][0]["peak"]["estimate"], place)
                self.assertIn("parts are damaged", " ".join(found["notes"]))
                estimates += 1
        self.assertGreater(estimates, 0)

    def test_networks_that_use_each_others_forward_make_estimates(self):
        """A step ends with each optimizer's: the first leaves a forward to the second one's backward."""
        job = "import torch, torch.nn as nn\n" \
              "make = lambda: nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])\n" \
              "g, d = make(), make()\n" \
              "og, od = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (g, d))\n" \
              "for _ in range(3):\n    fake = g(torch.randn(32, 64))\n    od.zero_grad()\n" \
              "    (d(torch.randn(32, 64)).mean() - d(fake.detach()).mean()).backward()\n    od.step()\n" \
              "    og.zero_grad()\n    d(fake).mean().backward()\n    og.step()\n"
        run = self.record(job, name="gan")
        for step in (2, 3):
            found = {each["policy"]: each["peak"]["estimate"] for each in
                     run.read("whatif", "--step", str(step), "--unit", "Sequential.*", "--policy", "save-all", "--policy", "full")["policies"]}
            self.assertEqual(found, {"save-all": False, "full": True}, step)

    def test_segments_end_with_each_forward_of_an_accumulated_step(self):
        """Two microbatches, each with its backward: four blocks twice. Segments of eight are two of four."""
        none = self.record(TRAIN, "--accumulate", "2", name="accumulated")
        found = {each["policy"]: each["peak"] for each in none.read("whatif", "--policy", "full", "--policy", "segment:8", "--policy", "segment:4")["policies"]}
        self.assertEqual(found["segment:8"]["bytes"], found["segment:4"]["bytes"])
        block = self.record(TRAIN, "--accumulate", "2", "--checkpoint", "block", name="accumulated block")
        self.assertEqual((found["full"]["bytes"], found["full"]["estimate"]), (self.peak(block), False))

    def test_forwards_without_their_backward_make_estimates(self):
        """A second forward that nobody's backward takes, and a graph that is kept."""
        job = "import torch, torch.nn as nn\n" \
              "net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])\n" \
              "o, x = torch.optim.SGD(net.parameters(), lr=0.1), torch.randn(32, 64)\n" \
              "for _ in range(3):\n    {}\n    o.step()\n    o.zero_grad()\n"
        for name, body in (("plain", "net(x).sum().backward()"), ("second", "held = net(x).sum()\n    net(x).sum().backward()"),
                           ("kept", "y = net(x).sum()\n    y.backward(retain_graph=True)"),
                           ("twice", "y = net(x).sum()\n    y.backward(retain_graph=True)\n    y.backward()")):
            run = self.record(job.format(body), name=name)
            found = {each["policy"]: each["peak"]["estimate"] for each in
                     run.read("whatif", "--unit", "Sequential.*", "--policy", "save-all", "--policy", "full")["policies"]}
            self.assertEqual(found, {"save-all": False, "full": name != "plain"}, name)
        double = self.record(job.format("g, = torch.autograd.grad(net(x).pow(2).sum(), net[0][0].weight, create_graph=True)\n"
                                        "    g.pow(2).sum().backward()"), name="double")
        done = subprocess.run([LIVESET, "whatif", double.trace], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("differentiates its own backward (create_graph=True), which is not modelled", done.stderr)

    def test_what_cannot_be_modelled_is_said(self):
        block = self.record(TRAIN, "--checkpoint", "block", name="block")
        done = subprocess.run([LIVESET, "whatif", block.trace, "--policy", "full"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("step 1 recomputes: a model comes from a step without checkpointing", done.stderr)
        plain = self.record(TRAIN, name="plain")
        done = subprocess.run([LIVESET, "whatif", plain.trace, "--unit", "blocks.*"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("no module of the step is called 'blocks.*' (it has GPT, GPT.e, GPT.ln, GPT.hd, GPT.bs.0..3, ", done.stderr)
        none = self.record("import torch\nx = torch.ones(1000)\n", name="nothing")
        done = subprocess.run([LIVESET, "whatif", none.trace], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("has no steps", done.stderr)
        done = subprocess.run([LIVESET, "whatif", block.trace, "--policy", "regions:"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
