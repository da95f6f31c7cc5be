"""Records jobs with `liveset run` and reads the traces with liveset's own commands; and drives the shim with a stand-in recorder."""
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LIVESET_BUILD_DIR", SOURCE / "build/release"))
LIVESET = BUILD / "bin/liveset"
JOBS = pathlib.Path(__file__).resolve().parent / "jobs"
ACCEPTANCE = SOURCE / "tests/golden/acceptance"


def slots_readable():
    """Whether this torch shows what a slot of the graph holds without running its hooks (from 2.14 on)."""
    import torch
    return hasattr(getattr(torch._C._autograd, "SavedTensor", None), "data")


def compare(test, measured, predicted, *options, status=1):
    """`liveset compare` as JSON, its classes checked: they sum to the difference of the peaks."""
    done = subprocess.run([LIVESET, "compare", measured, predicted, *options, "--format", "json"], capture_output=True, text=True, timeout=100)
    test.assertEqual((done.returncode, done.stderr), (status, ""))
    found = json.loads(done.stdout)
    if found["gap"] is not None:
        test.assertEqual(sum(found["gap"].values()), found["difference"])
        test.assertEqual(found["measured"]["peak"]["bytes"] - found["predicted"]["peak"]["bytes"], found["difference"])
        for rows in found["gap_rows"].values():
            for row in rows:
                test.assertEqual(row["measured"] - row["predicted"], row["bytes"])
    return found


class Run:
    """A finished command."""

    def __init__(self, completed, trace):
        self.status = completed.returncode
        self.stdout = completed.stdout
        self.stderr = completed.stderr
        if "LIVESET_TORCH_LACKS" in os.environ:  # scripts/torch_matrix: a version that lacks something, which is said in lines of ours
            self.stderr = "".join(line for line in self.stderr.splitlines(True) if not line.startswith("liveset: torch "))
        self.trace = trace

    def traces(self):
        """All files that were written: the first process's, and those of the others."""
        folder = pathlib.Path(f"{self.trace}.d")
        return ([self.trace] if self.trace.exists() else []) + sorted(folder.glob("*.liveset") if folder.exists() else [])

    def read(self, *command, trace=None, statuses=(0,)):
        done = subprocess.run([LIVESET, *command, "--format", "json", trace or self.trace], capture_output=True, text=True, timeout=100)
        if done.returncode not in statuses:
            raise AssertionError(f"liveset {' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def summary(self, trace=None):
        return self.read("summary", trace=trace)


class TorchTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="liveset-torch-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def record(self, script, *arguments, python=(), environment=None, name="run", options=()):
        """`script` is a file, or the text of one."""
        if not isinstance(script, pathlib.Path):
            path = self.folder / f"{name}.py"
            path.write_text(script)
            script = path
        return self.record_command([sys.executable, *python, script, *arguments], environment, name, options)

    def record_command(self, command, environment=None, name="run", options=()):
        """`options`: of `liveset run`."""
        trace = self.folder / f"{name}.liveset"
        completed = subprocess.run([LIVESET, "run", "-q", *options, "-o", trace, "--", *command], capture_output=True, text=True, timeout=280,
                                   env={**os.environ, **(environment or {})}, cwd=self.folder)
        return Run(completed, trace)

    def plain(self, command, environment=None):
        completed = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, **(environment or {})},
                                   cwd=self.folder)
        return Run(completed, None)

    def side_by_side(self, jobs):
        """Calls each of {key: function}, two at a time. -> {key: result}"""
        with ThreadPoolExecutor(2) as pool:
            waiting = {key: pool.submit(job) for key, job in jobs.items()}
            return {key: each.result() for key, each in waiting.items()}

    def assert_sound(self, run, trace=None):
        """What must hold of every trace of a job that ended by itself. -> its summary"""
        # The dictionary is stored as it is, so a note of the hooks about an error of theirs is found by its name.
        self.assertNotIn(b"liveset.python_error", (trace or run.trace).read_bytes())
        summary = run.summary(trace)
        health = summary["health"]
        self.assertEqual(health["lost_events"], 0)
        self.assertEqual(health["unmatched_frees"], 0)
        self.assertEqual(health["conservation_mismatches"], 0)
        self.assertFalse(health["truncated"])
        return summary


COUNTERS = ("requested", "allocated", "active", "reserved")


def predicted_peaks(run, chosen, *options):
    """`whatif` of a dry run. -> by policy: the peak of each counter; by (policy, counter): whether it is an estimate"""
    arguments = [word for policy in chosen for word in ("--policy", policy)]
    outcomes = run.read("whatif", *arguments, *options)["policies"]
    peaks = {outcome["policy"]: {counter: peak["bytes"] for counter, peak in outcome["counters"].items()} for outcome in outcomes}
    return peaks, {(outcome["policy"], counter): peak["estimate"] for outcome in outcomes for counter, peak in outcome["counters"].items()}


def counted_peaks(run, step=1):
    """By counter of the device: its peak in a step."""
    counters = run.read("summary", "--range", f"step:{step}")["counters"]["cuda:0"]
    return {counter: counters[counter]["peak"] for counter in COUNTERS}


STAND_INS = BUILD / "lib/liveset/standin/cuda13/libcudart.so.13"


@unittest.skipUnless(STAND_INS.exists(), f"this build has no stand-in libraries ({STAND_INS})")
class DryRunTest(TorchTest):
    """Jobs on a GPU that is not there."""

    def dry_run(self, *command, gpu="h200", options=(), environment=None, name="run"):
        """`command`: what follows the Python, or a whole command when its first word is a path that can be executed."""
        if not (isinstance(command[0], pathlib.Path) and os.access(command[0], os.X_OK) and command[0].suffix != ".py"):
            command = (sys.executable, *command)
        trace = self.folder / f"{name}.liveset"
        line = [LIVESET, "dryrun", "-q", "--gpu", gpu, *options, "-o", trace, "--", *command]

        done = subprocess.run(line, capture_output=True, text=True, timeout=280, env={**os.environ, **(environment or {})}, cwd=self.folder)
        return Run(done, trace)


class FakeRecorder:
    """Stands for the preloaded library: keeps what the shim says as a list of tuples."""

    def __init__(self):
        self.events = []
        self.strings = [""]
        self.scopes = [""]  # path of each scope
        self.phase_now = 0
        self.steps = 0
        self.pending = True
        self.failures = []
        self.attributes = []  # (key, JSON text)
        self.facts = []  # (kind, name, tensor facts, scope) of each statement about a tensor

    def functions(self):
        names = ["recording", "string", "heap", "scope", "scope_begin", "scope_end", "phase", "mark", "step_over", "step_begin",
                 "current_step", "storage", "retain", "attribute", "counter", "source", "create_graph", "reports_before"]
        names += ["drop", "remake", "offload", "holder", "collective", "use_slot", "offload_slot", "graph_node", "walked", "storage_tensor", "retain_tensor",
                  "drop_tensor", "remake_tensor",                  "learn_tensor", "retain_slot", "learn_slot", "types"]
        return {name: getattr(self, name) for name in names}

    def recording(self):
        return 1

    def string(self, text):
        if text not in self.strings:
            self.strings.append(text)
        return self.strings.index(text)

    def heap(self, device_type, index):
        return 1 + device_type * 100 + index

    def scope(self, parent, kind, name):
        path = f"{self.scopes[parent]}.{self.strings[name]}" if parent else self.strings[name]
        if path not in self.scopes:
            self.scopes.append(path)
        return self.scopes.index(path)

    def scope_begin(self, scope):
        self.events.append(("begin", self.scopes[scope]))

    def scope_end(self):
        self.events.append(("end",))

    def phase(self, phase):
        before, self.phase_now = self.phase_now, phase
        if before != phase:
            self.events.append(("phase", phase))
        return before

    def mark(self, kind, number):
        self.events.append(("mark", kind, number))

    def step_over(self):
        self.pending = True

    def step_begin(self, root=False):
        if self.pending:
            self.pending = False
            self.events.append(("step", self.steps))
            self.steps += 1
        return self.steps - 1

    def current_step(self):
        return self.steps - 1

    def storage(self, *statement):
        self.say("storage", *statement)

    def retain(self, *statement):
        self.say("retain", *statement)

    def drop(self, *statement):
        self.say("drop", *statement)

    def remake(self, *statement):
        self.say("remake", *statement)

    def offload(self, *statement):
        self.say("offload", *statement)

    def holder(self, *statement):
        self.say("holder", *statement)

    def collective(self, *statement):
        self.say("collective", *statement)

    def say(self, kind, memory_class, heap, address, size, name, facts=0, scope=0):
        self.events.append((kind, memory_class, heap, address, size, self.strings[name]))
        self.facts.append((kind, self.strings[name], facts, self.scopes[scope]))

    def use_slot(self, name, facts, scope=0):
        self.facts.append(("use", self.strings[name], facts, self.scopes[scope]))

    def offload_slot(self, name, facts, scope=0):
        self.facts.append(("offload", self.strings[name], facts, self.scopes[scope]))

    def graph_node(self, name, number):
        self.events.append(("graph_node", self.strings[name], number))

    def storage_tensor(self, *arguments):
        return 0  # as with a torch whose tensors cannot be read but by Python

    retain_tensor = drop_tensor = remake_tensor = learn_tensor = retain_slot = learn_slot = storage_tensor

    def types(self, tensor, parameter, slot):
        pass

    def walked(self, node, number, name, is_python):
        return 0

    def attribute(self, key, value):
        said = self.failures if self.strings[key] == "liveset.python_error" else self.attributes
        said.append((self.strings[key], self.strings[value]))

    def counter(self, heap, name, number):
        self.events.append(("counter", heap, self.strings[name], number))

    def source(self, version, covers, cannot_see):
        self.events.append(("source", version, covers, cannot_see))

    def create_graph(self, on):
        self.events.append(("create_graph", on))

    def reports_before(self):
        return 0

    def of(self, kind):
        return [event for event in self.events if event[0] == kind]


def load_shim():
    folder = SOURCE / "hooks/python/liveset_shim"
    spec = importlib.util.spec_from_file_location("_liveset_shim", folder / "__init__.py", submodule_search_locations=[str(folder)])
    shim = importlib.util.module_from_spec(spec)
    sys.modules["_liveset_shim"] = shim
    spec.loader.exec_module(shim)
    return shim
