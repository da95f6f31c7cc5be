"""Jobs and names that nobody planned for: every report of their traces ends well, and a terminal can show it."""
import signal
import subprocess
import unittest

from support import LIVESET, TorchTest

REPORTS = [["summary"], *(["peak", "--by", key] for key in ("class", "module", "op", "dtype", "phase", "stack")), ["recompute"], ["leaks"],
           ["ledger", "--physical"], ["ledger", "--logical"], ["info"], ["dump"], ["check", "--max-peak", "1TB"], ["check", "--distributed"]]

KILLED = """
import os
import signal
import torch
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(net.parameters())
for step in range(3):
    x = torch.randn(16, 64)
    y = torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False)
    if step == 2:
        y.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))  # in the middle of backward
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

NO_BACKWARD = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh())
for step in range(3):
    net(torch.randn(16, 64)).sum().item()
"""

NO_GRAD = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh())
with torch.no_grad():
    for step in range(3):
        net(torch.randn(16, 64)).sum().item()
"""

MANY_MODULES = """
import torch
class Many(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Sequential(*[torch.nn.Tanh() for _ in range(99)]) for _ in range(100))
        self.first = torch.nn.Linear(8, 8)
    def forward(self, x):
        x = self.first(x)
        for part in self.parts:
            x = part(x)
        return x
net = Many()
for step in range(2):
    net(torch.ones(2, 8)).sum().backward()
    assert len(list(net.modules())) > 10_000
"""

ODD_NAMES = """
import torch
names = ["with \\"quotes\\" and 'ones'", "new\\nline\\r\\ttab", "x" * 10_000, "\\x1b[31mred", "\\U0001f600 \\u20ac", " ", "<script>|`"]
class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in names:
            self.add_module(name, torch.nn.Linear(16, 16))
    def forward(self, x):
        for name in names:
            x = torch.utils.checkpoint.checkpoint(getattr(self, name), x, use_reentrant=False).tanh()
        return x
net = Odd()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
kept = []
for step in range(3):
    y = net(torch.ones(4, 16))
    kept.append(y)
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


class BadInput(TorchTest):
    def reports(self, run, without_json=()):
        """Every report as text, readable, and as JSON."""
        texts = {}
        for report in REPORTS:
            command, *options = report
            with self.subTest(report=report):
                shown = subprocess.run([LIVESET, command, *options, run.trace], capture_output=True, text=True, timeout=100)
                self.assertEqual((shown.returncode, shown.stderr.count("rror")), (0, 0), shown.stderr)
                self.assertTrue(shown.stdout.strip())
                for line in shown.stdout.splitlines():
                    self.assertTrue(line.isprintable(), line[:200])
                    self.assertLess(len(line), 5000 if command == "dump" else 400)  # dump shows texts as they are
                if report not in without_json:
                    run.read(command, *options)
                texts[" ".join(report)] = shown.stdout
        return texts

    def test_a_job_that_was_killed_in_backward(self):
        run = self.record(KILLED)
        self.assertEqual(run.status, 128 + signal.SIGKILL)
        texts = self.reports(run)
        summary = run.read("summary")
        self.assertEqual(len(summary["steps"]), 3)
        self.assertIn("region", texts["recompute"])

    def test_a_job_without_a_backward(self):
        for name, script in (("no_backward", NO_BACKWARD), ("no_grad", NO_GRAD)):
            with self.subTest(name):
                run = self.record(script, name=name)
                self.assertEqual((run.status, run.stderr), (0, ""))
                texts = self.reports(run)
                self.assertIn("RECOMPUTE  none", texts["recompute"])
                self.assertIn("LEAKS  none", texts["leaks"])

    def test_ten_thousand_modules(self):
        run = self.record(MANY_MODULES)
        self.assertEqual((run.status, run.stderr), (0, ""))
        self.assert_sound(run)
        self.reports(run, without_json=[["ledger", "--logical"]])  # it lists at every event what lives
        modules = {row["key"] for row in run.read("peak", "--by", "module")["rows"]}
        self.assertTrue(any(key.startswith("Many.parts.99.") for key in modules), list(modules)[:3])

    def test_names_of_modules_that_are_no_names(self):
        run = self.record(ODD_NAMES)
        self.assertEqual((run.status, run.stderr), (0, ""))
        self.assert_sound(run)
        self.reports(run)
        regions = {region["module"] for region in run.read("recompute")["regions"]}
        self.assertLessEqual({"Odd.with \"quotes\" and 'ones'", "Odd.new\nline\r\ttab", "Odd.\x1b[31mred", "Odd.<script>|`"}, regions)


if __name__ == "__main__":
    unittest.main()
