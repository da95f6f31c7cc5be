"""Jobs as people run them (tests/torch/real), each without and with recording: the same results bit for bit, the same exit status,
output and warnings, and a trace that is whole. A job prints a digest of all its gradients and parameters, and its next random number."""
import dataclasses
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

from support import BUILD, LIVESET, SOURCE, DryRunTest, Run, TorchTest

REAL = pathlib.Path(__file__).resolve().parent / "real"


TORCH_CALLS = r'  File "[^"]*torch/nn/modules/module\.py".*\n(    .*\n)+'


@dataclasses.dataclass
class Row:
    """One job. `blank`: a pattern that differs between any two runs of it (times, process ids)."""
    command: str
    status: int = 0
    steps: int = 3           # of the trace: each ends by an update, so that one which overflowed is part of the next
    needs: str = ""          # a package of scripts/requirements-real.lock
    ranks: int = 0
    traces: int = 1
    attributed: bool = True  # every byte of the peak and of every backward start has a class
    mapped: bool = False     # batches arrive in mapped memory
    environment: dict = dataclasses.field(default_factory=dict)
    blank: str = "$^"
    says: str = ""           # what its stderr must have, so that the row means something


ROWS = [
    Row("autocast.py", steps=6),
    Row("grad_scaler.py", steps=3),
    Row("accumulation.py"),
    Row("loader.py fork", mapped=True),
    Row("loader.py spawn", traces=3, mapped=True),
    Row("data_parallel.py", ranks=2, traces=2),
    Row("offload.py cpu"),
    Row("offload.py disk"),
    Row("compiled.py inductor", steps=3, attributed=False, environment={"TORCHINDUCTOR_COMPILE_THREADS": "1"}),
    Row("compiled.py aot_eager", steps=4, attributed=False),
    Row("functional.py", steps=2, attributed=False),
    Row("own_hooks.py", steps=4),
    Row("in_place.py", steps=1, says="SqrtBackward0"),
    Row("profiled.py", steps=7, environment={"KINETO_LOG_LEVEL": "99"}),
    Row("region_error.py", steps=10),
    Row("region_error.py uncaught", status=1, steps=10, says="TypeError: unsupported operand"),
    Row("interrupted.py forward"),
    Row("interrupted.py recompute"),
    Row("interrupted.py uncaught", status=130, steps=1, says="KeyboardInterrupt"),
    Row("ends.py os_exit", status=9),
    Row("ends.py sys_exit", status=7),
    Row("ends.py hook", status=1, steps=4, says="ValueError: in a gradient hook"),
    Row("ends.py recompute", status=11, steps=4),
    Row("late.py late"),
    Row("late.py thread", steps=0, attributed=False),
    Row("late.py never", traces=0),
    Row("trainer.py", steps=4, needs="transformers"),
    Row("trainer.py checkpoint bf16", steps=4, needs="transformers"),
    Row("trainer.py checkpoint reentrant", steps=4, needs="transformers"),
    Row("lightning_job.py", steps=5, needs="pytorch_lightning"),
    Row("accelerate_job.py", steps=4, needs="accelerate"),
]


def python_with(package):
    """A Python that has it: ours, or the one that scripts/setup made of scripts/requirements-real.lock. None: there is none."""
    if not package or importlib.util.find_spec(package) is not None:
        return sys.executable
    other = os.environ.get("LIVESET_REAL_PYTHON", SOURCE / "build/venv-real/bin/python")
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    found = pathlib.Path(other).exists() and subprocess.run([other, "-c", probe]).returncode == 0
    return str(other) if found else None


class RealJobs(TorchTest):
    """test_... of each row is made below."""
    plain_of = {}  # by command: what a row did without us, for its tests with and without options

    def command(self, row):
        python = python_with(row.needs)
        if python is None:
            self.skipTest(f"no Python with {row.needs} (scripts/setup makes one, or set LIVESET_REAL_PYTHON)")
        script, *arguments = row.command.split()
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(row.ranks)] if row.ranks else []
        return [python, *launcher, REAL / script, *arguments]

    def in_folder(self, command, row, name):
        """Runs it. What compilers keep is each run's own."""
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(self.folder / f"{name}-cache"), **row.environment}
        return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, cwd=self.folder)

    def check(self, row, options=()):
        command = self.command(row)
        trace = self.folder / "run.liveset"
        jobs = {"recorded": lambda: self.in_folder([LIVESET, "run", *options, "-o", trace, "--", *command], row, "recorded")}
        if row.command not in self.plain_of:
            jobs["plain"] = lambda: self.in_folder(command, row, "plain")
        results = self.side_by_side(jobs)
        recorded, plain = results["recorded"], results.get("plain") or self.plain_of[row.command]
        run = Run(recorded, trace)
        # Torch calls a module by other lines of its own when any hooks on modules are there: tracebacks show it.
        blank = lambda text: re.sub(row.blank, "", re.sub(TORCH_CALLS, "", text))
        # A shell says 128 + N of a signal, and so does run.
        self.assertEqual(plain.returncode if plain.returncode >= 0 else 128 - plain.returncode, row.status, plain.stderr)
        self.assertEqual(recorded.returncode, row.status, recorded.stderr)
        self.assertIn(row.says, plain.stderr)
        self.plain_of[row.command] = plain
        self.assertEqual(blank(recorded.stdout), blank(plain.stdout))
        stderr = "".join(line for line in recorded.stderr.splitlines(True) if not line.startswith("liveset: "))
        self.assertEqual(blank(stderr), blank(plain.stderr))
        self.assertTrue(plain.stdout or row.says)
        self.check_traces(row, run)

    def check_traces(self, row, run):
        traces = run.traces()
        self.assertEqual(len(traces), row.traces)
        if row.ranks:
            self.assertEqual(sorted(run.read("info", trace=trace)["process"]["rank"] for trace in traces), list(range(row.ranks)))
        for place, trace in enumerate(traces):
            summary = self.assert_sound(run, trace)
            if place >= max(1, row.ranks):  # workers
                continue
            self.assertEqual(len(summary["steps"]), row.steps)
            if row.attributed:
                moments = [summary["peak"]] + [step["backward_start"] for step in summary["steps"] if step.get("backward_start")]
                self.assertEqual([moment["classes"]["unattributed"] for moment in moments], [0] * len(moments))


class OffloadTest(TorchTest):
    """Where the slots of offload.py are: 11 of each block (66 in three steps of two), as the graph walk says."""

    def statements(self, where):
        run = self.record_command([sys.executable, REAL / "offload.py", where])
        self.assertEqual(run.status, 0, run.stderr)
        return [event for event in run.read("dump")["events"] if event["kind"] == "offload"]

    def test_save_on_cpu_keeps_copies_in_memory(self):
        found = self.statements("cpu")
        self.assertEqual(len(found), 66)
        self.assertEqual({event["heap"] for event in found}, {"cpu"})
        self.assertTrue(all(event["bytes"] > 0 for event in found))

    def test_files_are_no_memory(self):
        found = self.statements("disk")
        self.assertEqual(len(found), 66)
        self.assertEqual({(event["heap"], event["bytes"]) for event in found}, {("", 0)})


class DryRuns(DryRunTest):
    """Jobs that need a device."""

    def check(self, *command):
        run = self.dry_run(REAL / command[0], *command[1:])
        self.assertEqual((run.status, run.stderr), (0, ""))
        return self.assert_sound(run)

    def test_a_recompute_on_a_side_stream(self):
        device = self.check("side_stream.py")["counters"]["cuda:0"]
        # Blocks that were given back while the other stream may still use them: record_stream holds them.
        self.assertGreater(device["active"]["final"], device["allocated"]["final"])

    def test_offload_from_a_device(self):
        summary = self.check("offload.py", "cpu", "cuda")
        self.assertEqual(len(summary["steps"]), 3)


def add(row):
    name = "test_" + re.sub(r"\W+", "_", row.command.replace(".py", ""))
    setattr(RealJobs, name, lambda self: self.check(row))


for row in ROWS:
    add(row)


# What can be asked of a run beside the record, all at once.
OPTIONS = ("--stacks", "--check-replay", "--fingerprint", "--who-holds")
WITH_OPTIONS = ("autocast.py", "grad_scaler.py", "accumulation.py", "loader.py fork", "loader.py spawn", "data_parallel.py", "offload.py disk",
                "compiled.py aot_eager", "functional.py", "own_hooks.py", "in_place.py", "profiled.py", "region_error.py",
                "interrupted.py recompute", "ends.py os_exit", "ends.py hook", "late.py late", "late.py never",
                "trainer.py checkpoint reentrant", "lightning_job.py", "accelerate_job.py")


def add_with_options(row):
    name = "test_all_options_" + re.sub(r"\W+", "_", row.command.replace(".py", ""))
    setattr(RealJobs, name, lambda self: self.check(row, OPTIONS))


for row in ROWS:
    if row.command in WITH_OPTIONS:
        add_with_options(row)


if __name__ == "__main__":
    unittest.main()
