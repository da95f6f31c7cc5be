"""Gradient accumulation: which forward and backward belong together."""
import unittest

from support import TorchTest

JOB = """
import sys
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.ones(4, 8)
for step, count in enumerate((1, 3, 2)):
    for part in range(count):
        loss = model(data).sum()
        if part == 1:
            with torch.no_grad():
                model(data)  # looks at what it has so far: no microbatch
        loss.backward()
    with torch.no_grad():
        model(data)
    optimizer.step()
    optimizer.zero_grad()
with torch.no_grad():
    model(data)
"""


class MicrobatchTest(TorchTest):
    def test_each_forward_after_a_backward_begins_one(self):
        run = self.record(JOB)
        self.assertEqual(run.status, 0, run.stderr)
        self.assert_sound(run)
        marks = [(event["kind"], event["number"]) for event in run.read("dump")["events"]
                 if event["kind"] in ("step_begin", "microbatch_begin", "microbatch_end", "backward_begin")]
        expected = []
        for step, count in enumerate((1, 3, 2)):
            expected.append(("step_begin", step))
            for part in range(count):
                expected += ("microbatch_begin", part), ("backward_begin",), ("microbatch_end", part)
        # The evaluation after the last step is a forward, so a step that no optimizer ends.
        expected += ("step_begin", 3), ("microbatch_begin", 0)
        self.assertEqual([mark if mark[0] != "backward_begin" else mark[:1] for mark in marks], expected)


if __name__ == "__main__":
    unittest.main()
