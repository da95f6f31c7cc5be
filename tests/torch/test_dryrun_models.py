"""Kinds of models and ways to train, each dry-run: what comes of it is what the table in README.md says."""
import re
import unittest

from support import JOBS, SOURCE, DryRunTest

# Rows of the table, and what of jobs/models.py they are.
JOBS_OF_ROWS = {
    "ResNet-50": "resnet50", "U-Net": "unet", "ViT": "vit", "LSTM (cuDNN)": "lstm", "mixture of experts, routed by values": "moe",
    "autocast and GradScaler": "amp", "torch.compile of a model": "compiled", "torch.compile of a function": "compiled_function",
    "module.compile()": "compiled_in_place", "CUDA graph capture": "cuda_graph",
    "torch.profiler with CUDA activity": "profiler", "DataLoader workers with pinned memory": "loader", "DDP, 2 ranks (torchrun)": "ddp",
    "FSDP2, 2 ranks (torchrun)": "fsdp2",
}
RANKS = {"ddp": 2, "fsdp2": 2}
# What makes no figure of the allocator an estimate.
ASIDE = {"device_value_read", "context_bytes", "library_memory"}


def table():
    """{row: (comes to, label)} of README.md."""
    rows = re.findall(r"^\| ([^|]+) \| (runs|ends: [^|]+) \| ([^|]+) \|$", (SOURCE / "README.md").read_text(), re.MULTILINE)
    return {row: (outcome, label) for row, outcome, label in rows}


class ModelsTest(DryRunTest):
    def run_model(self, name):
        launcher = []
        if name in RANKS:
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS[name])]
        return self.dry_run(*launcher, JOBS / "models.py", name, gpu="h100", name=name)

    def outcome(self, run):
        """-> the table's two columns"""
        if run.status != 0:
            return f"ends: {run.stderr.strip().splitlines()[-1]}", "-"
        counters = run.summary()["counters"]  # of several ranks, of the one that came first
        device = counters[min(heap for heap in counters if heap.startswith("cuda:"))]
        self.assertEqual((device["reserved"]["estimate"], device["reserved"]["label"]), (True, "estimate"))
        allocated = device["allocated"]["label"]
        self.assertEqual(device["allocated"]["estimate"], allocated == "estimate")
        causes = {estimate["what"] for estimate in run.summary()["estimates"]}
        if allocated == "estimate":
            return "runs", "estimate: " + ", ".join(sorted(causes - ASIDE))
        return "runs", allocated

    def test_the_table_in_the_readme(self):
        self.assertEqual(set(table()), set(JOBS_OF_ROWS))
        runs = self.side_by_side({row: lambda name=name: self.run_model(name) for row, name in JOBS_OF_ROWS.items()})
        for row, run in runs.items():
            with self.subTest(model=row):
                self.assertEqual(self.outcome(run), table()[row], run.stderr[-2000:])
                if run.status == 0:
                    self.assertEqual(run.summary()["health"]["conservation_mismatches"], 0)
                    self.assertGreaterEqual(len(run.traces()), RANKS.get(JOBS_OF_ROWS[row], 1))


if __name__ == "__main__":
    unittest.main()
