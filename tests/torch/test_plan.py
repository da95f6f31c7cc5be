"""plan on a recorded step: the modules that it says to checkpoint, checkpointed for real, take the peak that it promised."""
import json
import subprocess
import unittest

from support import JOBS, LIVESET, TorchTest

JOB = JOBS / "planned.py"


class PlanTest(TorchTest):
    def plan(self, subject, *options, status=0):
        done = subprocess.run([LIVESET, "plan", subject, *options, "--format", "json"], capture_output=True, text=True, timeout=100)
        self.assertEqual((done.returncode, done.stderr), (status, ""))
        return json.loads(done.stdout)

    def measured(self, network, plan, name):
        policy = plan["policy"]
        blocks = {"gpt": "GPT.bs.*", "nested": "Nested.blocks.*"}[network]
        names = [] if policy == "save-all" else [blocks] if policy == "full" else policy.removeprefix("regions:").split(",")
        if policy.startswith("selective:"):
            names = [policy, blocks]
        run = self.record(JOB, network, *names, name=name)
        self.assertEqual((run.status, run.stderr), (0, ""), policy)
        return run.read("summary")["steps"][1]["peak_bytes"]

    def check(self, network, budgets):
        """`budgets`: shares of the way from the least peak to that of save-all."""
        none = self.record(JOB, network, name="none")
        sweep = self.plan(none.trace, "--sweep")
        least, most = (sweep["frontier"][at]["peak"]["bytes"] for at in (0, -1))
        self.assertEqual(least, sweep["least_budget"])
        plans = {share: self.plan(none.trace, "--budget", str(least + int(share * (most - least)))) for share in budgets}
        found = {share: plan["peak"]["bytes"] for share, plan in plans.items()}
        measured = self.side_by_side({share: lambda share=share: self.measured(network, plans[share], f"at-{share}") for share in plans})
        self.assertEqual(found, measured, {share: plan["policy"] for share, plan in plans.items()})
        for share, plan in plans.items():
            self.assertLessEqual(plan["peak"]["bytes"], plan["budget"])
        return none, sweep, plans

    def test_modules_inside_of_blocks_to_the_byte(self):
        none, sweep, plans = self.check("nested", (0, 0.3, 0.7))
        # No set of whole blocks is as small: that is what the tree is for.
        self.assertRegex(plans[0]["policy"], r"\.(attention|mlp)")
        rules = {rule["policy"]: rule for rule in sweep["rules_of_thumb"]}
        self.assertGreater(rules["full"]["peak"]["bytes"], sweep["least_budget"])
        self.assertGreater(rules["full"]["cost_above_frontier"], 0)
        self.assertIn("refused", rules["segment:10"])
        self.assertEqual([absent["planner"] for absent in sweep["absent"]], ["revolve, rotor, exact search"])
        self.assertFalse(self.plan(none.trace, "--budget", str(sweep["least_budget"] - 1), status=1)["feasible"])
        # Each line is a policy that whatif takes, with the same outcome; and the step's model file leads to the same plans.
        for line in sweep["frontier"]:
            found = none.read("whatif", "--policy", line["policy"])["policies"][0]
            self.assertEqual((found["peak"]["bytes"], found["extra_time_ns"]), (line["peak"]["bytes"], line["extra_cost"]))
        path = self.folder / "step.textproto"
        subprocess.run([LIVESET, "model", none.trace, "-o", path], check=True, capture_output=True)
        self.assertEqual(self.plan(path, "--sweep")["frontier"], sweep["frontier"])

    def test_what_a_dropout_makes_is_no_output_of_the_operator_before_it(self):
        none = self.record(JOB, "nested", name="none")
        policy = "selective:AddmmBackward0,GeluBackward0"
        found = none.read("whatif", "--policy", policy)["policies"][0]["peak"]["bytes"]
        self.assertEqual(found, self.measured("nested", {"policy": policy}, "selective"))

    def test_gpt_to_the_byte(self):
        self.check("gpt", (0, 0.4))


if __name__ == "__main__":
    unittest.main()
