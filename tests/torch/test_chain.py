"""samples/torch_chain: the seed's numbers, the difference between policies, and what autograd retains before backward."""
import json
import unittest

from support import ACCEPTANCE, SOURCE, TorchTest

FACTS = json.loads((ACCEPTANCE / "chain_ledgers.json").read_text())
CHAIN = SOURCE / "samples/torch_chain/chain.py"
VALUE_BYTES = 8
# loss = 0.5 * (h * h): autograd keeps the factor 0.5 as a tensor of its own.
LOSS_EXPRESSION_BYTES = 8


class ChainTest(TorchTest):
    def check(self, facts):
        policy = "save-all" if facts["k"] is None else f"segment:{facts['k']}"
        run = self.record(CHAIN, "--policy", policy)
        self.assertEqual((run.status, run.stderr), (0, ""))
        result = json.loads(run.stdout)
        self.assertEqual(result["forward_layers"], facts["forward_layers"])
        self.assertEqual(result["max_difference_to_save_all"], 0)
        for measured, expected in zip([result["loss"], *result["gradients"], result["input_gradient"]],
                                      [facts["loss"], *facts["dL_dw"], facts["dL_dh0"]], strict=True):
            self.assertLessEqual(abs(measured - expected), 1e-13 * abs(expected))

        start = self.assert_sound(run)["steps"][0]["backward_start"]
        classes = start["classes"]
        held = classes["activation"] + classes["checkpoint_input"] - LOSS_EXPRESSION_BYTES
        self.assertEqual(held, VALUE_BYTES * len(facts["held_at_loss"]))
        # Of these, the loss holds h6, and h0 is a leaf that wants a gradient; the other boundaries hang on checkpoint frames.
        inner = [value for value in facts["held_at_loss"] if value not in (0, 6)] if facts["k"] else []
        self.assertEqual(classes["checkpoint_input"], VALUE_BYTES * len(inner))
        self.assertEqual(classes["parameter"], VALUE_BYTES * len(FACTS["chain"]["w"]))
        self.assertEqual(classes["unattributed"], 0)


def add_test(facts):
    setattr(ChainTest, f"test_{facts['policy'].replace('-', '_')}", lambda self: self.check(facts))


for policy_facts in FACTS["policies"]:
    add_test(policy_facts)


class ChainArgumentsTest(TorchTest):
    def test_a_policy_that_does_not_exist(self):
        run = self.record(CHAIN, "--policy", "segment:x")
        self.assertEqual(run.status, 2)
        self.assertIn("'segment:x' is neither save-all nor segment:K", run.stderr)


if __name__ == "__main__":
    unittest.main()
