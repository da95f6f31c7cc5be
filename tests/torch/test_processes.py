"""Jobs of many kinds: how they are started, how they end, what they start. The right files, the job's own status and streams."""
import sys
import unittest

from support import JOBS, TorchTest

SMALL = JOBS / "small.py"
IMPORT_SMALL = f"import sys; sys.path.insert(0, {str(JOBS)!r}); import small, torch, os; torch.set_num_threads(1)\n"


class StartTest(TorchTest):
    def assert_same_as_plain(self, run, command, environment=None):
        plain = self.plain(command, environment)
        self.assertEqual((run.status, run.stdout, run.stderr), (plain.status, plain.stdout, plain.stderr))

    def check_recorded(self, run, steps):
        self.assertEqual(len(run.traces()), 1)
        summary = self.assert_sound(run)
        self.assertEqual(len(summary["steps"]), steps)
        self.assertIn("python", [source["name"] for source in summary["sources"]])
        return summary

    def test_isolated_interpreters(self):
        for flags in (["-I"], ["-S"], ["-E"], ["-W", "error"]):
            with self.subTest(flags=flags):
                path = self.folder / "job.py"
                # -I and -S leave out site-packages: the job finds torch by itself.
                path.write_text(f"import sys; sys.path[:0] = {sys.path!r}\n" + IMPORT_SMALL + "print(small.train())\n")
                run = self.record(path, python=flags, name="run" + flags[-1].strip("-"))
                self.assert_same_as_plain(run, [sys.executable, *flags, path])
                self.check_recorded(run, 2)

    def test_torch_imported_late(self):
        script = "import time, json, threading\nsum(i for i in range(10**5))\n" + IMPORT_SMALL + "small.train()\n"
        self.check_recorded(self.record(script), 2)

    def test_torch_never_imported(self):
        run = self.record("print('no torch here')")
        self.assertEqual((run.status, run.stdout, run.stderr, run.traces()), (0, "no torch here\n", "", []))

    def test_torch_imported_and_not_used(self):
        run = self.record("import torch; print(torch.__version__)")
        self.assertEqual((run.status, run.stderr, run.traces()), (0, "", []))

    def test_the_users_own_sitecustomize_runs(self):
        (self.folder / "sitecustomize.py").write_text("import builtins; builtins.mine = 'kept'\n")
        environment = {"PYTHONPATH": str(self.folder)}
        script = IMPORT_SMALL + "print(mine, small.train())\n"
        run = self.record(script, environment=environment)
        self.assertTrue(run.stdout.startswith("kept "), run.stdout)
        self.check_recorded(run, 2)

    def test_the_hooks_are_on_no_path(self):
        script = IMPORT_SMALL + "small.train(); print([p for p in sys.path if p.endswith(('liveset/python', 'hooks/python', 'liveset_shim'))])\n"
        self.assertEqual(self.record(script).stdout, "[]\n")


class EndTest(TorchTest):
    def end(self, ending):
        run = self.record(IMPORT_SMALL + "print(small.train())\nsys.stdout.flush()\n" + ending)
        self.assertTrue(run.stdout.startswith("["))
        summary = self.assert_sound(run)
        self.assertEqual(len(summary["steps"]), 2)
        return run

    def test_sys_exit_status(self):
        self.assertEqual(self.end("sys.exit(7)").status, 7)

    def test_os_exit(self):
        self.assertEqual(self.end("os._exit(3)").status, 3)

    def test_uncaught_exception(self):
        run = self.end("raise ValueError('mine')")
        self.assertEqual(run.status, 1)
        self.assertTrue(run.stderr.endswith("ValueError: mine\n"), run.stderr)

    def test_exception_inside_a_module(self):
        run = self.record(IMPORT_SMALL + """
class Bad(torch.nn.Module):
    def forward(self, x):
        raise KeyError("inside")
try:
    torch.nn.Sequential(torch.nn.Linear(8, 8), Bad())(torch.ones(2, 8))
except KeyError as error:
    print("caught", error)
print(len(small.train()))
""")
        self.assertEqual((run.status, run.stdout, run.stderr), (0, "caught 'inside'\n2\n", ""))
        summary = self.assert_sound(run)
        self.assertEqual(len(summary["steps"]), 2)  # the one that failed and the first whole one are the same step
        self.assertEqual(summary["steps"][1]["phases"]["forward"]["allocations"], 3)

    def test_killed(self):
        run = self.record(IMPORT_SMALL + "small.train(); os.kill(os.getpid(), 9)")
        self.assertEqual(run.status, 128 + 9)
        self.assertEqual(len(run.summary()["steps"]), 2)


class ChildrenTest(TorchTest):
    LOADER = """
import multiprocessing, sys
sys.path.insert(0, {jobs!r})
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return torch.full((8,), float(i)) * torch.ones(8)

def main():
    import small
    torch.set_num_threads(1)
    loader = DataLoader(Squares(), batch_size=8, num_workers=2, multiprocessing_context={method!r})
    print(sorted(float(batch.sum()) for batch in loader))
    print(len(small.train()))

if __name__ == "__main__":
    main()
"""
    SUMS = [float(8 * sum(range(8 * i, 8 * i + 8))) for i in range(4)]

    def load(self, method):
        run = self.record(self.LOADER.format(jobs=str(JOBS), method=method))
        self.assertEqual((run.status, run.stdout, run.stderr), (0, f"{self.SUMS}\n2\n", ""))
        summary = self.assert_sound(run)
        self.assertEqual(len(summary["steps"]), 2)
        # The batches come through shared memory, which is none of the CPU allocator's: a heap of its own. 4 batches of 8x8 floats.
        self.assertEqual(summary["counters"]["cpu/mapped"]["allocated"]["final"], 0)
        self.assertGreaterEqual(summary["counters"]["cpu/mapped"]["allocated"]["peak"], 8 * 8 * 4)
        return run

    def test_data_loader_workers_that_are_forked(self):
        run = self.load("fork")
        self.assertEqual(run.traces(), [run.trace])  # a fork without exec is silent

    def test_data_loader_workers_that_are_spawned(self):
        run = self.load("spawn")
        # Programs of their own that use torch: each has its file.
        self.assertEqual(len(run.traces()), 3)
        for trace in run.traces()[1:]:
            summary = self.assert_sound(run, trace)
            self.assertEqual(summary["steps"], [])
            self.assertGreater(summary["allocations"], 16 * 2)

    def test_training_in_a_forked_child(self):
        run = self.record(IMPORT_SMALL + """
first = small.train()
sys.stdout.flush()
child = os.fork()
if child == 0:
    os._exit(0 if small.train() == first and not torch.nn.modules.module._global_forward_hooks else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), small.train() == first)
""")
        self.assertEqual((run.status, run.stdout, run.stderr), (0, "0 True\n", ""))
        self.assertEqual(run.traces(), [run.trace])
        self.assertEqual(len(self.assert_sound(run)["steps"]), 4)

    def test_a_shell_with_two_jobs(self):
        run = self.record_command(["sh", "-c", f"{sys.executable} {SMALL} 2 && {sys.executable} {SMALL} 3"])
        self.assertEqual((run.status, run.stderr), (0, ""))
        self.assertEqual([len(self.assert_sound(run, trace)["steps"]) for trace in run.traces()], [2, 3])


if __name__ == "__main__":
    unittest.main()
