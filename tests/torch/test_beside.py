"""Beside other tools in the same process: torch.profiler, torch.compile, and warnings that are errors."""
import json
import sys
import unittest

from support import JOBS, TorchTest

PRELUDE = f"""
import sys, warnings, json
sys.path.insert(0, {str(JOBS)!r})
import small, torch
torch.set_num_threads(1)
"""


class ProfilerTest(TorchTest):
    SCRIPT = PRELUDE + """
from torch.profiler import ProfilerActivity, profile
small.train()
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
    small.train()
rows = seen.key_averages()
print(json.dumps([sorted((row.key, row.count, row.self_cpu_memory_usage) for row in rows if not row.key.startswith("["))]))
"""

    def test_torch_profiler_sees_the_same_memory(self):
        run = self.record(self.SCRIPT)
        plain = self.plain([sys.executable, self.folder / "run.py"])
        self.assertEqual(run.status, 0, run.stderr)
        self.assertEqual(json.loads(run.stdout), json.loads(plain.stdout))
        self.assertTrue(any(row[2] > 0 for row in json.loads(run.stdout)[0]))
        self.assertEqual(len(self.assert_sound(run)["steps"]), 4)


class CompileTest(TorchTest):
    SCRIPT = PRELUDE + """
warnings.simplefilter("error")
from torch._dynamo import config, utils
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
compiled = torch.compile(net, fullgraph=True)
for _ in range(3):
    loss = compiled(torch.rand(5, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
print(dict(utils.counters["stats"]), dict(utils.counters["graph_break"]))
"""

    def test_a_compiled_step(self):
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(self.folder / "cache")}
        run = self.record(self.SCRIPT, environment=cache)
        self.assertEqual((run.status, run.stderr), (0, ""))
        plain = self.plain([sys.executable, self.folder / "run.py"], {"TORCHINDUCTOR_CACHE_DIR": str(self.folder / "cache2")})
        # The same losses, one graph, no break, no warning.
        self.assertEqual(run.stdout, plain.stdout)
        self.assertEqual(run.traces(), [run.trace])  # the compilers and their workers leave nothing
        summary = self.assert_sound(run)
        self.assertEqual(len(summary["steps"]), 3)
        classes = summary["steps"][1]["backward_start"]["classes"]
        # x 5x8, both outputs of the first linear's GELU 5x16 each at most, output 5x4: whatever the partitioner kept, all of it is known.
        self.assertEqual(classes["unattributed"] + classes["temporary"], 0, classes)
        self.assertEqual(classes["parameter"], 4 * (8 * 16 + 16 + 16 * 4 + 4))


if __name__ == "__main__":
    unittest.main()
