"""The logical ledger of PyTorch traces: what the graph retains against the chain's model and against the accepted bytes of the GPT."""
import json
import subprocess
import unittest

from support import ACCEPTANCE, LIVESET, SOURCE, TorchTest, slots_readable

CHAIN = json.loads((ACCEPTANCE / "chain_ledgers.json").read_text())
GPT = json.loads((ACCEPTANCE / "torch_gpt_cpu.json").read_text())
MODEL = SOURCE / "samples/tanh_chain/chain.textproto"


class LogicalTest(TorchTest):
    def compare(self, trace, policy):
        done = subprocess.run([LIVESET, "compare", trace, MODEL, "--policy", policy, "--held", "--format", "json"], capture_output=True,
                              text=True, timeout=100)
        return done.returncode, json.loads(done.stdout)

    def test_what_the_chain_retains_is_what_its_model_holds_at_the_loss(self):
        for facts in (CHAIN["policies"][k] for k in (0, 1, 4)):
            policy = "save-all" if facts["k"] is None else f"segment:{facts['k']}"
            with self.subTest(policy):
                run = self.record(SOURCE / "samples/torch_chain/chain.py", "--policy", policy)
                self.assertEqual(run.status, 0, run.stderr)
                status, compared = self.compare(run.trace, policy)
                self.assertEqual((status, compared["equal"], compared["compared"]), (0, True, "held"))
                self.assertEqual(len(compared["recorded"]["held_at_loss"]), len(facts["held_at_loss"]))
                # 0.5 * (h * h): autograd keeps the factor as a tensor of its own, of which the model does not speak.
                self.assertEqual([value["bytes"] for value in compared["held"]["of_the_loss"]], [8])

    def test_another_policy_is_a_difference(self):
        run = self.record(SOURCE / "samples/torch_chain/chain.py", "--policy", "segment:3")
        status, compared = self.compare(run.trace, "save-all")
        self.assertEqual((status, compared["equal"]), (1, False))
        self.assertEqual(len(compared["held"]["only_predicted"]), 4)

    def test_recomputed_storages_are_reruns(self):
        run = self.record(SOURCE / "samples/torch_chain/chain.py", "--policy", "segment:2")
        ledger = run.read("ledger", "--logical")
        self.assertEqual(ledger["broken_rules"]["count"], 0)
        self.assertIsNone(ledger["forward_layers"])
        reruns = [event["value"] for event in ledger["events"] if event["kind"] == "rerun"]
        slot = "TanhBackward0.result" if slots_readable() else "value"
        self.assertEqual(sorted(reruns), [f"Chain.layers.{layer}/{slot}@1" for layer in range(6)])

    def test_reruns_without_an_original(self):
        """Each block divides by a number, a tensor of 8 bytes that each run of it makes and that is not given up: the graph keeps the first."""
        run = self.record(SOURCE / "samples/torch_gpt/train.py", "--checkpoint", "block", "--steps", "1")
        reruns, sizes, before = 0, [], 0
        for event in run.read("ledger", "--logical")["events"]:
            if event["kind"] == "rerun":
                reruns += 1
                if event["original"] is None:
                    sizes.append(event["live_bytes"] - before)
            before = event["live_bytes"]
        self.assertEqual(sizes, [8] * 4)
        self.assertEqual(reruns - len(sizes), len(run.read("recompute")["values"]))

    def test_what_the_gpt_retains(self):
        for mode in ("none", "block"):
            with self.subTest(mode):
                facts = GPT["modes"][mode]["backward_start"]
                run = self.record(SOURCE / "samples/torch_gpt/train.py", "--checkpoint", mode, "--steps", "1")
                self.assertEqual(run.status, 0, run.stderr)
                ledger = run.read("ledger", "--logical")
                # Each block divides by a number, a tensor of 8 bytes that its node saves; nodes of a region are not read everywhere.
                unread = 4 * 8 if mode == "block" and not slots_readable() else 0
                self.assertEqual(ledger["held_at_loss_bytes"], facts["activation_bytes"] + facts.get("checkpoint_input_bytes", 0) - unread)
                self.assertEqual(ledger["broken_rules"]["count"], 0)


if __name__ == "__main__":
    unittest.main()
