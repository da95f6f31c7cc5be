"""What the trace says of samples/torch_gpt's recomputes, against an independent observer of the same job (jobs/gpt_lineage.py --observe,
which runs without liveset): which slots are given up and made again, of which module, type and size, what is kept, and what early
stop left out."""
import json
import re
import subprocess
import sys
import unittest
from collections import Counter

import torch
from support import JOBS, DryRunTest, TorchTest, slots_readable

JOB = JOBS / "gpt_lineage.py"
BLOCKS = 4
DTYPES = {7: "float32", 8: "float64"}  # proto DType + 1
# The divisor of the scores: a number of Python's, which autograd saves as a tensor and shows to no hook, so that no observer sees it.
NUMBER = ("DivBackward0.other", "float64", 8)
WORKSPACE = 32 * 2**20  # of cuBLAS on this device, taken from PyTorch's allocator at the first product
KEPT = "aten.addmm.default"
RECOMPUTE = ("block", "reentrant", "selective")


def observed(mode, memo={}):
    if mode not in memo:
        done = subprocess.run([sys.executable, JOB, "--mode", mode, "--observe"], capture_output=True, text=True, check=True, timeout=280)
        memo[mode] = json.loads(done.stdout)
    return memo[mode]


def module_of(path):
    """The module's own name from its scope: GPT/checkpoint:0/bs.0/ln1 -> bs.0.ln1"""
    parts = [part for part in path.split("/") if part != "GPT" and not part.startswith("checkpoint:")]
    return ".".join(parts)


class Trace:
    """The events of a dump, and the storages they speak of, numbered by their allocations."""

    def __init__(self, run):
        self.recompute = run.read("recompute")
        self.events = run.read("dump")["events"]
        live, self.born = {}, {}
        for event in self.events:
            key = (event.get("heap"), event.get("address"))
            if event["kind"] == "alloc":
                live[key] = event["allocation"]
                self.born[event["allocation"]] = event
            elif "address" in event and event["kind"] != "free":
                event["storage"] = live.get(key)

    def of(self, kind):
        return [event for event in self.events if event["kind"] == kind]

    def attributes(self, key):
        return [(event["scope"], json.loads(event["text"])) for event in self.of("attribute") if event["name"] == key]

    def runs(self):
        """{region: [[allocations in modules in its forward], [in its first recompute], ...]}: (module, bytes). Outside of the modules a
        recompute takes and gives back the state of the generator."""
        found, open_ = {}, []
        for event in self.events:
            if event["kind"] in ("scope_begin", "scope_end") and re.search(r"checkpoint:\d+$", event["scope"]):
                if event["kind"] == "scope_begin":
                    open_.append(event["scope"])
                    found.setdefault(event["scope"], []).append([])
                else:
                    open_.pop()
            elif event["kind"] == "alloc" and open_ and event["scope"].startswith(f"{open_[-1]}/") and event["bytes"] != WORKSPACE:
                found[open_[-1]][-1].append((module_of(event["scope"]), event["bytes"]))
        return found


def index_of(event):
    return (event["number"] >> 8) - 1


def dtype_of(event):
    return DTYPES[event["number"] & 255]


class Checks:
    """`self.trace(mode)`: of the job in that mode. Sizes are those of storages, which a CUDA block rounds up."""

    def check_slots(self, mode):
        trace, saved = self.trace(mode), observed(mode)["saved"]
        regions = [f"GPT/checkpoint:{number}" for number in range(BLOCKS)]
        self.assertEqual([scope for scope, _ in trace.attributes("checkpoint")], regions)
        for number, region in enumerate(regions):
            with self.subTest(mode=mode, region=region):
                expected = saved[f"bs.{number}"]
                given_up = [event for event in trace.of("drop") if event["scope"].startswith(region)]
                self.assertEqual([(index_of(event), module_of(event["scope"]), dtype_of(event), event["bytes"]) for event in given_up],
                                 [(index, module, dtype, size) for index, (module, dtype, size, _, _) in enumerate(expected)])
                remade = [event for event in trace.of("rerun") if event["scope"] == region]
                self.assertEqual([(index_of(event), dtype_of(event), event["bytes"]) for event in remade],
                                 [(index, dtype, size) for index, (_, dtype, size, _, _) in enumerate(expected)])
                self.check_storages(trace, expected, given_up, remade, kept=trace.of("keep") if mode == "selective" else [])

    def check_storages(self, trace, expected, given_up, remade, kept):
        """Each storage that was made again stands for exactly one that was given up; weights and the input are the same ones."""
        originals, kept_storages = {}, {event["storage"] for event in kept if event["name"].startswith("selective.")}
        count = size = 0
        for (_, _, expected_size, _, kind), before, after in zip(expected, given_up, remade, strict=True):
            self.assertIsNotNone(before["storage"])
            self.assertIsNotNone(after["storage"])
            if kind != "made":
                self.assertEqual(before["storage"], after["storage"])
            elif after["storage"] in kept_storages:
                self.assertEqual(trace.born[after["storage"]]["phase"], "forward")
            else:
                self.assertNotEqual(before["storage"], after["storage"])
                self.assertEqual(trace.born[after["storage"]]["phase"], "recompute")
                if after["storage"] not in originals:
                    count, size = count + 1, size + expected_size
                self.assertEqual(originals.setdefault(after["storage"], before["storage"]), before["storage"])
        self.assertEqual(len(set(originals.values())), len(originals))
        # The observer's count and bytes of distinct storages that the block made and that backward wants.
        made = {storage: size for _, _, size, storage, kind in expected if kind == "made"}
        kept_here = {after["storage"] for after in remade} & kept_storages
        self.assertEqual(count + len(kept_here), len(made))
        self.assertEqual(size + sum(trace.born[storage]["bytes"] for storage in kept_here), sum(made.values()))

    def check_early_stop(self, mode):
        """A recompute allocates what the forward did, up to where it stops: the rest are the operators that the observer did not see."""
        trace, operators = self.trace(mode), observed(mode)["operators"]
        runs = trace.runs()
        self.assertEqual({said["early_stopped"] for _, said in trace.attributes("recompute")}, {mode != "reentrant"})
        for number in range(BLOCKS):
            with self.subTest(mode=mode, block=number):
                forward, again = ([(module, sizes) for module, operator, sizes in operators[f"bs.{number}/{run}"]
                                   if operator != "aten.detach.default" and (mode != "selective" or operator != KEPT)] for run in (1, 2))
                self.assertEqual(forward[:len(again)], again)
                not_run = [(module, size) for module, sizes in forward[len(again):] for size in sizes]
                self.assertEqual(not_run == [], mode == "reentrant")
                first, second = runs[f"GPT/checkpoint:{number}"]
                if mode == "selective":  # kept outputs are made in the one and not in the other
                    kept = Counter((module, self.block_bytes(size)) for module, operator, sizes in operators[f"bs.{number}/1"]
                                   if operator == KEPT for size in sizes)
                else:
                    kept = Counter()
                missing = Counter(first) - Counter(second)
                self.assertEqual(missing, kept + Counter((module, self.block_bytes(size)) for module, size in not_run))
                self.assertEqual(Counter(second) - Counter(first), Counter())

    def block_bytes(self, size):
        return size

    def check_reentrant(self):
        """Its forward has no slots; what the recomputed graph holds is what the observer saw a block save."""
        trace, saved = self.trace("reentrant"), observed("reentrant")["saved"]
        self.assertEqual(trace.of("drop"), [])
        for number in range(BLOCKS):
            with self.subTest(block=number):
                expected = saved[f"bs.{number}"]
                stated = [event for event in trace.of("rerun") if event["scope"] == f"GPT/checkpoint:{number}"]
                remade = [event for event in stated if (event["name"], dtype_of(event), event["bytes"]) != NUMBER]
                self.assertEqual(len(stated) - len(remade), 1)
                self.assertEqual({index_of(event) for event in stated}, {-1})
                self.assertEqual(Counter((dtype_of(event), event["bytes"]) for event in remade),
                                 Counter((dtype, size) for _, dtype, size, _, _ in expected))
                made = {event["storage"]: event["bytes"] for event in remade if trace.born[event["storage"]]["phase"] == "recompute"}
                self.assertEqual(Counter(made.values()),
                                 Counter({storage: size for _, _, size, storage, kind in expected if kind == "made"}.values()))

    def check_selective(self):
        """The outputs of the four projections of each block are kept, and nothing else."""
        kept = [event for event in self.trace("selective").of("keep") if event["name"].startswith("selective.")]
        expected = Counter((f"checkpoint:{number}", size) for number in range(BLOCKS)
                           for _, operator, sizes in observed("selective")["operators"][f"bs.{number}/1"] if operator == KEPT for size in sizes)
        self.assertEqual(sum(expected.values()), 4 * BLOCKS)
        self.assertEqual(Counter((event["scope"].split("/")[1], event["bytes"]) for event in kept), expected)
        self.assertEqual({event["name"] for event in kept}, {f"selective.{KEPT}"})

    def check_command(self, mode):
        """`liveset recompute`: every value that was made again has exactly one original; count, bytes and module are the observer's."""
        found, observer = self.trace(mode).recompute, observed(mode)
        values = found["values"]
        self.assertEqual((found["values_unmatched"], found["values_guessed"]), (0, 0))
        self.assertEqual(len({value["original_block"] for value in values}), len(values))
        self.assertEqual(len({value["block"] for value in values}), len(values))
        self.assertEqual({value["matched"] for value in values}, {"order" if mode == "reentrant" else "position"})
        self.assertEqual(len(found["regions"]), BLOCKS)
        for number in range(BLOCKS):
            with self.subTest(mode=mode, block=number):
                made = {storage: (module, size) for module, _, size, storage, kind in reversed(observer["saved"][f"bs.{number}"]) if kind == "made"}
                remade = Counter((value["module"].removeprefix("GPT."), value["bytes"]) for value in values
                                 if value["region"] == f"GPT/checkpoint:{number}")
                expected = Counter((module, self.block_bytes(size)) for module, size in made.values())
                if mode == "selective":  # of what backward wants, the output of f1 is kept: gelu has saved it
                    expected -= Counter({(f"bs.{number}", 4 * 128 * 512 * 4): 1})
                if mode == "reentrant":  # where a block was made is known there, not where it was saved
                    all_made = Counter((module, self.block_bytes(size)) for module, _, sizes in observer["operators"][f"bs.{number}/2"] for size in sizes)
                    numbers = Counter({(f"bs.{number}", NUMBER[2]): 1})  # on the CPU, wherever the scores are
                    self.assertEqual(remade - all_made - numbers, Counter())
                    sizes = lambda counter: Counter(size for _, size in counter.elements())
                    self.assertEqual(sizes(remade), sizes(expected + numbers))
                else:
                    self.assertEqual(remade, expected)

    def check_graph_waits(self, mode):
        """Every slot that was given up is waited for by one slot of the graph."""
        trace = self.trace(mode)
        waits = Counter((event["scope"], index_of(event)) for event in trace.of("use"))
        given_up = Counter((event["scope"][:len("GPT/checkpoint:0")], index_of(event)) for event in trace.of("drop"))
        self.assertEqual(waits, given_up)


@unittest.skipUnless(slots_readable(), f"the slots of the graph are read from torch 2.14 on, this is {torch.__version__}")
class LineageTest(Checks, TorchTest):
    traces = {}

    def trace(self, mode):
        if mode not in self.traces:
            run = self.record(JOB, "--mode", mode, name=mode)
            self.assertEqual((run.status, run.stderr), (0, ""))
            self.assert_sound(run)
            self.traces[mode] = Trace(run)
        return self.traces[mode]

    def test_slots(self):
        for mode in ("block", "selective"):
            self.check_slots(mode)

    def test_the_graph_waits_for_every_slot(self):
        for mode in ("block", "selective"):
            with self.subTest(mode=mode):
                self.check_graph_waits(mode)

    def test_early_stop(self):
        for mode in RECOMPUTE:
            self.check_early_stop(mode)

    def test_reentrant(self):
        self.check_reentrant()

    def test_selective(self):
        self.check_selective()

    def test_the_command(self):
        for mode in RECOMPUTE:
            self.check_command(mode)

    def test_without_a_region(self):
        for mode in ("none", "offload"):
            with self.subTest(mode=mode):
                trace = self.trace(mode)
                self.assertEqual([trace.of(kind) for kind in ("drop", "rerun", "use")], [[], [], []])
                saved = sum(map(len, observed("block")["saved"].values()))
                self.assertEqual(len(trace.of("offload")), saved if mode == "offload" else 0)


class DryRunLineageTest(Checks, DryRunTest):
    """The same on the device, against what the observer saw on the CPU: the operators are the same."""
    traces = {}

    def trace(self, mode):
        if mode not in self.traces:
            run = self.dry_run(JOB, "--mode", mode, "--device", "cuda", name=mode)
            self.assertEqual((run.status, run.stderr), (0, ""))
            self.assert_sound(run)
            self.traces[mode] = Trace(run)
        return self.traces[mode]

    def block_bytes(self, size):
        return (size + 511) // 512 * 512

    def test_slots(self):
        for mode in ("block", "selective"):
            self.check_slots(mode)

    def test_early_stop(self):
        for mode in RECOMPUTE:
            self.check_early_stop(mode)

    def test_reentrant(self):
        self.check_reentrant()

    def test_selective(self):
        self.check_selective()

    def test_the_command(self):
        for mode in RECOMPUTE:
            self.check_command(mode)


del DryRunTest, TorchTest

if __name__ == "__main__":
    unittest.main()
