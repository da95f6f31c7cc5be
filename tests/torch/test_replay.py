"""`run --check-replay` and `check --replay`: each way in which a recompute can differ is found and named, and nothing else is."""
import importlib.util
import json
import re
import subprocess
import sys
import types
import unittest

import support

JOB = support.JOBS / "replay.py"

# What must be found of each model of the job; of all others, and of all of them with --clean, nothing.
EXPECTED = {
    "InputWritten": {"input_changed", "value"},
    "ParameterWritten": {"parameter_changed", "value"},
    "GradMode": {"grad_mode"},
    "PythonRandom": {"rng_external", "value"},
    "NumpyRandom": {"rng_external", "value"},
    "OwnGenerator": {"rng_external", "value"},
    "Shape": {"shape"},
    "Dtype": {"operators", "dtype"},
    "Fewer": {"operators"},
    "Training": {"python_state_changed"},
    "Closure": {"python_state_changed"},
    "Advancing": {"rng_before", "rng_after_step", "value"},
}


def inputs_seen():
    """Whether this torch's regions let their inputs be seen as they are saved (from 2.14 on)."""
    from torch.utils import checkpoint
    return hasattr(checkpoint._CheckpointFrame, "save_inputs")


def kinds_by_model(check):
    found = {}
    for finding in check["findings"]:
        found.setdefault(finding["region"].split("/")[0], set()).add(finding["kind"])
    return found


class Replay(support.TorchTest):
    def checked(self, run):
        self.assert_sound(run)
        return run.read("check", "--replay", statuses=(0, 1))["checks"][0]

    def record_beside(self, *arguments):
        """-> the recorded run, after a look that the job did bit for bit what it does alone."""
        run = self.record(JOB, *arguments, options=("--check-replay",))
        plain = self.plain([sys.executable, JOB, *arguments])
        self.assertEqual((run.status, run.stdout, run.stderr), (plain.status, plain.stdout, plain.stderr))
        self.assertEqual(run.status, 0)
        return run

    def test_each_difference_is_found_and_nothing_else(self):
        check = self.checked(self.record_beside())
        found = kinds_by_model(check)
        expected = dict(EXPECTED)
        if importlib.util.find_spec("numpy") is None:
            del expected["NumpyRandom"]
        if not inputs_seen():
            expected["InputWritten"] = {"value"}
        self.assertEqual(found, expected)
        self.assertFalse(check["ok"])
        by_kind = {(finding["region"].split("/")[0], finding["kind"]): finding for finding in check["findings"]}
        value = by_kind["PythonRandom", "value"]
        self.assertEqual(value["region"], "PythonRandom/checkpoint:0")
        self.assertEqual(value["op"], "aten.mul.Tensor")
        self.assertRegex(value["detail"], r"float32 \[4, 6\]: element \d+ was ")
        self.assertIn("[4, 6] and has [8, 6]", by_kind["Shape", "shape"]["detail"])
        self.assertEqual(by_kind["Fewer", "operators"]["op"], "aten.sin")
        self.assertEqual(by_kind["GradMode", "grad_mode"]["op"], "aten.sin")
        self.assertEqual(by_kind["ParameterWritten", "parameter_changed"]["op"], "ParameterWritten.two.weight")

    def test_clean_twins_are_silent(self):
        check = self.checked(self.record_beside("--clean"))
        self.assertEqual(check["findings"], [])
        self.assertTrue(check["ok"])
        self.assertEqual(check["coverage"]["regions"], 22)  # of 20 models; the region inside of one begins again when that is made again
        self.assertGreater(check["coverage"]["values"], 40)

    def test_a_transformer_is_clean_in_each_mode_and_computes_the_same(self):
        job = support.SOURCE / "samples/torch_gpt/train.py"
        for mode in ("block", "reentrant", "selective"):
            arguments = [job, "--checkpoint", mode, "--dropout", "0.1", "--steps", "2", "--json"]
            run = self.record_command([sys.executable, *arguments], name=mode, options=("--check-replay", "--fingerprint"))
            plain = self.plain([sys.executable, *arguments])
            self.assertEqual((run.status, run.stdout, run.stderr), (0, plain.stdout, plain.stderr))
            check = self.checked(run)
            self.assertEqual(check["findings"], [])
            self.assertEqual(check["coverage"]["recomputes"], 8)  # 4 blocks, 2 steps

    def test_a_rate_leaves_regions_out_and_says_so(self):
        run = self.record(JOB, "--clean", options=("--check-replay=0.5",))
        coverage = self.checked(run)["coverage"]
        self.assertGreater(coverage["not_sampled"], 0)
        self.assertGreater(coverage["regions"], 0)


SUBCLASS = """
import sys, torch
import torch.utils.checkpoint as cp
class Own(cp.CheckpointFunction):
    @staticmethod
    def forward(ctx, run, preserve, *arguments):
        print("own forward", torch.is_grad_enabled())
        return cp.CheckpointFunction.forward(ctx, run, preserve, *arguments)
x = torch.ones(3, requires_grad=True)
y = Own.apply(lambda a: a * 2, True, x)
print(type(y.grad_fn).__name__)
y.sum().backward()
print(x.grad.tolist())
"""

TRACEBACKS = """
import traceback, torch
from torch.utils.checkpoint import checkpoint
def fails(x):
    calls.append(1)
    if len(calls) == when:
        raise ValueError("of the job")
    return torch.tanh(x)
for when in (1, 2):
    for reentrant in (False, True):
        calls = []
        try:
            checkpoint(fails, torch.ones(2, requires_grad=True), use_reentrant=reentrant).sum().backward()
        except ValueError:
            traceback.print_exc(file=__import__("sys").stdout)
"""

# A mode of the job's begins inside of a region and ends after it: the watch below it can only be taken away later.
MODES = """
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
class Own(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        return function(*arguments, **(keywords or {}))
own = []
def entering(x):
    if not own:
        own.append(Own())
        own[0].__enter__()
    return torch.tanh(x)
def ours():
    return [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()]
for reentrant in (False, True):
    own.clear()
    x = torch.ones(3, requires_grad=True)
    y = checkpoint(lambda a: checkpoint(entering, a, use_reentrant=reentrant), x, use_reentrant=reentrant)
    assert ours()[-1:] == ["Own"], ours()
    own[0].__exit__(None, None, None)
    checkpoint(torch.tanh, x, use_reentrant=reentrant)
    print(ours())
"""

# A profiler is on in the forward, in the recompute, or in both: it counts what it counts without us, and what only one side
# could watch is no difference. Python's random numbers differ each time.
PROFILED = """
import contextlib, random, sys, torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint
def body(x):
    y = torch.tanh(x * 2).exp()
    return torch.tanh(y * random.random()) if "--dirty" in sys.argv else torch.tanh(y)
for reentrant in (False, True):
    for parts in ((0,), (1,), (0, 1)):
        counted = []
        at = lambda part: profile(activities=[ProfilerActivity.CPU]) if part in parts else contextlib.nullcontext()
        x = torch.ones(3, requires_grad=True)
        with at(0) as seen:
            y = checkpoint(body, x, use_reentrant=reentrant)
        counted.append(seen)
        with at(1) as seen:
            y.sum().backward()
        counted.append(seen)
        print(reentrant, parts, [sorted((row.key, row.count) for row in seen.key_averages()) for seen in counted if seen])
"""


class Harmless(support.TorchTest):
    def not_observed(self, run):
        return run.read("check", "--replay", statuses=(0, 1))["checks"][0]["not_observed"]

    def beside(self, script, name, environment=None):
        run = self.record(script, name=name, environment=environment, options=("--check-replay",))
        plain = self.plain([sys.executable, self.folder / f"{name}.py"], environment)
        self.assertEqual((run.status, run.stdout, run.stderr), (0, plain.stdout, plain.stderr))
        self.assert_sound(run)
        return run

    def test_a_jobs_own_checkpoint_function_stays_what_it_is(self):
        run = self.beside(SUBCLASS, "subclass")
        self.assertIn("OwnBackward", run.stdout)
        self.assertEqual(run.stdout.splitlines()[0], "own forward False")
        self.assertEqual([what for what in self.not_observed(run) if "torch has none" in what] == [], inputs_seen())

    def test_nothing_of_ours_is_in_the_tracebacks_of_regions(self):
        run = self.record(TRACEBACKS, name="tracebacks", options=("--check-replay",))
        plain = self.plain([sys.executable, self.folder / "tracebacks.py"])
        self.assertEqual(run.stdout.count("ValueError: of the job"), 4)
        # But for the one that reads what torch says of a recompute: between the frames of a non-reentrant backward.
        own = re.compile(r'  File "[^"]*liveset_shim/replay_frames.py", line \d+, in unpack_hook\n.*\n(?: +\^+\n)?')
        self.assertEqual(len(own.findall(run.stdout)), 1)
        self.assertEqual((run.status, own.sub("", run.stdout), run.stderr), (0, plain.stdout, plain.stderr))

    def test_no_watch_stays_on_the_threads_stack(self):
        self.assertEqual(self.beside(MODES, "modes").stdout, "[]\n[]\n")

    def test_a_profiler_counts_each_operator_once(self):
        clean = self.beside(PROFILED, "profiled", {"KINETO_LOG_LEVEL": "99"})
        self.assertIn("('aten::exp', 1)", clean.stdout)
        self.assertNotIn("('aten::exp', 2)", clean.stdout)
        self.assertEqual(clean.read("check", "--replay")["checks"][0]["findings"], [])
        self.assertEqual(len([what for what in self.not_observed(clean) if "profiler" in what]), 1)
        dirty = self.record(self.folder / "profiled.py", "--dirty", name="dirty", options=("--check-replay",))
        findings = dirty.read("check", "--replay", statuses=(1,))["checks"][0]["findings"]
        counts = {kind: sum(finding["count"] for finding in findings if finding["kind"] == kind) for kind in ("rng_external", "value")}
        self.assertEqual(counts, {"rng_external": 6, "value": 6}, findings)

    def test_memory_that_torch_takes_for_us_is_stated_as_ours(self):
        script = """
import torch
from torch.utils.checkpoint import checkpoint
layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
for reentrant in (False, True):
    checkpoint(layer, torch.ones(2, 4, requires_grad=True), use_reentrant=reentrant).sum().backward()
"""
        own, checked = self.allocated(self.record(script, options=("--check-replay",)))
        none, plain = self.allocated(self.record(script, name="plain"))
        self.assertEqual(none, [])
        self.assertGreaterEqual(len(own), 8)  # states at both ends of a forward and around a recompute
        self.assertEqual(set(own), {torch_state_bytes()})
        self.assertEqual(checked, plain)  # all others are the job's, in the same order

    def allocated(self, run):
        """-> bytes of the blocks that are ours, and of the job's."""
        text = subprocess.run([support.LIVESET, "dump", run.trace], capture_output=True, text=True, timeout=100).stdout
        ours, others = [], []
        lines = text.splitlines()
        for line, following in zip(lines, lines[1:] + [""]):
            event = re.search(r" alloc .* address=(\S+) bytes=(\d+)", line)
            if event is not None:
                said = " storage " in following and f"address={event[1]} " in following and "name=liveset class=library" in following
                (ours if said else others).append(int(event[2]))
        return ours, others


def torch_state_bytes():
    import torch
    return torch.default_generator.get_state().numel()


class Bounded(unittest.TestCase):
    """What a job of any length says for --check-replay fits into what a trace has for texts (16 MiB)."""

    def setUp(self):
        shim = support.load_shim()
        self.recorder = support.FakeRecorder()
        self.texts = {}  # {text: its id}, as the recorder keeps them
        import torch
        context = shim.Context(torch, {**self.recorder.functions(), "string": lambda text: self.texts.setdefault(text, len(self.texts) + 1)})
        self.said = []
        context.attribute = lambda key, text: self.said.append((key, text))
        self.findings = sys.modules["_liveset_shim.replay_findings"].Findings(context, types.SimpleNamespace(stand_in=False), 1.0)
        self.findings.install()
        self.addCleanup(self.findings.uninstall)
        self.context = context

    def test_coverage_of_a_long_job_is_whole_at_exit_and_short(self):
        for step in range(50000):
            self.findings.count("values", step % 7)
            self.findings.count("value_bytes", 1000003 * step)  # never the same
            self.context.on_step_over()
        self.findings.say_coverage()  # as at exit
        names = {number: text for text, number in self.texts.items()}
        covered = [json.loads(names[text]) for key, text in self.said if names[key] == "liveset.replay.coverage"]
        self.assertEqual(sum(each["values"] for each in covered), sum(step % 7 for step in range(50000)))
        self.assertEqual(sum(each["value_bytes"] for each in covered), 1000003 * 50000 * 49999 // 2)
        self.assertEqual([each["values"] for each in covered[1:5]], [1, 2, 3, 4])  # a short job says each step's own
        self.assertLess(sum(map(len, self.texts)), 1 << 20)

    def test_steps_that_are_alike_say_each_their_own(self):
        for _ in range(5000):
            self.findings.count("regions", 4)
            self.context.on_step_over()
        self.assertEqual(len(self.said), 5001)
        self.assertLess(len(self.texts), 10)

    def test_findings_that_are_never_the_same_are_counted_in_the_end(self):
        record = types.SimpleNamespace(region="region", module="", differs=False)
        for step in range(5000):
            self.findings.say(record, "value", f"module{step}", "op", "detail " * 80)
            self.context.on_step_over()
        names = {number: text for text, number in self.texts.items()}
        written = [text for key, text in self.said if names[key] == "liveset.replay"]
        self.findings.say_coverage()
        left_out = sum(json.loads(names[text]).get("left_out", 0) for key, text in self.said if names[key] == "liveset.replay.coverage")
        self.assertEqual(len(written) + left_out, 5000)
        self.assertGreater(len(written), 1000)
        self.assertLess(sum(map(len, self.texts)), 4 << 20)

    def test_gradients_of_a_job_without_an_optimizer_are_not_remembered_for_ever(self):
        engine = sys.modules["_liveset_shim.engine"].Engine
        torch, stated = self.context.torch, self.context.stated_gradients
        stated.update(range(1 << 18))
        leaf = torch.ones(3, requires_grad=True)
        leaf.sum().backward()
        engine._state_gradients(types.SimpleNamespace(context=self.context), [leaf])
        self.assertEqual(stated, {leaf.grad.untyped_storage().data_ptr()})


class DryRun(support.DryRunTest):
    def test_values_of_a_device_that_computes_nothing_are_left_out(self):
        job = support.SOURCE / "samples/torch_gpt/train.py"
        run = self.dry_run(job, "--checkpoint", "block", "--device", "cuda", "--steps", "2", options=("--check-replay",))
        self.assertEqual(run.status, 0, run.stderr)
        check = run.read("check", "--replay")["checks"][0]
        self.assertEqual(check["findings"], [])
        self.assertEqual((check["coverage"]["recomputes"], check["coverage"]["values"]), (8, 0))
        self.assertGreater(check["coverage"]["operators"], 100)
        self.assertIn("values on the stand-in device, which computes nothing", check["not_observed"])

    def test_regions_of_a_captured_graph_are_left_alone_and_counted(self):
        job = self.folder / "capture.py"
        job.write_text("""
import torch
from torch.utils.checkpoint import checkpoint
layer = torch.nn.Linear(4, 4).cuda()
x = torch.ones(2, 4, device="cuda", requires_grad=True)
def step():
    for reentrant in (False, True):
        checkpoint(layer, x, use_reentrant=reentrant, preserve_rng_state=False).sum().backward()
with torch.cuda.stream(torch.cuda.Stream()):
    step()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
graph.replay()
""")
        run = self.dry_run(job, options=("--check-replay", "--fingerprint"))
        self.assertEqual(run.status, 0, run.stderr)
        self.assert_sound(run)
        check = run.read("check", "--replay")["checks"][0]
        self.assertEqual(check["findings"], [])
        self.assertEqual([check["coverage"][name] for name in ("regions", "recomputes", "captured")], [2, 2, 2])
        self.assertIn("regions whose CUDA graph is captured", check["not_observed"])


if __name__ == "__main__":
    unittest.main()
