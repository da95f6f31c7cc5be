#!/usr/bin/env python3
"""What recording costs a PyTorch training step: samples/torch_gpt on CPU, one thread, with and without `liveset run`.

Two long-lived processes, one recorded and one bare, take turns on command; each turn is one training step, timed by the process
itself. Each pair of turns gives a ratio and a difference, so what slows the machine for longer than a pair slows both. Who goes first
alternates. Both are bound to the same core; the collector may use another.

Prints one JSON object on the last line:
  step_ratio_median, step_ratio_upper95   recorded / bare: median over the pairs, and the upper bound of its 95 % interval (bootstrap)
  cpu_ratio_..., cpu_us_...               the same of the processor time that the training process spent: what other programs on the
                                          machine took from it is not in there
  hook_us_per_allocation_event            all that recording adds to a step (blocks, module scopes, graph walk, optimizer), over the
                                          step's allocation events
  walk_us_per_node                        one graph walk with its records, by itself, over the graph's nodes
  ..._in_step                             the same walk where a step begins its backward, the graph long out of the processor's caches; and
                                          both hooks of one module call, the root's aside
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LIVESET_BUILD_DIR", ROOT / "build/release"))


# ---- the process that trains -------------------------------------------------------------------------------------------


def work(mode):
    sys.path.insert(0, str(ROOT / "samples/torch_gpt"))
    import train
    parts = train.build(mode)
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "walk\n":
            answer = time_walk(train, parts)
        elif line == "inside\n":
            answer = time_inside(train, parts)
        else:
            start, start_cpu = time.perf_counter_ns(), time.process_time_ns()
            train.train_step(*parts)
            answer = {"ns": time.perf_counter_ns() - start, "cpu_ns": time.process_time_ns() - start_cpu}
        print(json.dumps(answer), flush=True)


def time_walk(train, parts):
    """The shim's own walk, on a graph of the job."""
    model, _, tokens, targets = parts
    loss = train.F.cross_entropy(model(tokens).view(-1, train.VOCABULARY), targets.view(-1))
    engine = next(part for part in sys.modules["_liveset_shim"]._installed if type(part).__name__ == "Engine")
    samples = []
    for _ in range(30):
        start = time.perf_counter_ns()
        nodes, leaves = engine.graph.walk({loss.grad_fn: None}, loss.device)
        samples.append((time.perf_counter_ns() - start) / nodes)
        del leaves
    return {"ns_per_node": samples, "nodes": nodes}


def time_inside(train, parts, steps=60):
    """What the walk and the hooks of modules take inside of steps, less what it takes to look at the clock."""
    engine = next(part for part in sys.modules["_liveset_shim"]._installed if type(part).__name__ == "Engine")
    hooks = train.torch.nn.modules.module
    now, spent = time.perf_counter_ns, {"walk": [], "before": [], "after": [], "clock": []}

    def timed(name, function):
        spans = spent[name]

        def call(*arguments):
            start = now()
            result = function(*arguments)
            spans.append(now() - start)
            return result
        return call

    engine.graph.walk = timed("walk", engine.graph.walk)
    for name, table in (("before", hooks._global_forward_pre_hooks), ("after", hooks._global_forward_hooks)):
        for key, hook in list(table.items()):
            nothing = timed("clock", lambda *_: None)
            table[key] = lambda *arguments, nothing=nothing, hook=timed(name, hook): nothing(*arguments) or hook(*arguments)
    modules, walks = [], []
    for _ in range(steps):
        for spans in spent.values():
            spans.clear()
        train.train_step(*parts)
        inner = spent["before"][1:] + spent["after"][:-1]  # the root is entered first and left last
        modules.append(2 * (statistics.mean(inner) - statistics.mean(spent["clock"])))
        walks += spent["walk"]
    return {"module_ns": modules, "walk_ns": walks}


class Worker:
    script = __file__

    def __init__(self, prefix, mode):
        core = max(os.sched_getaffinity(0))
        self.process = subprocess.Popen([*prefix, sys.executable, self.script, "--worker", mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, "LIVESET_BENCH_CORE": str(core)})
        assert self.process.stdout.readline() == "ready\n", "the training process did not start"

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def step(self):
        return self.ask("step")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- the measurement ---------------------------------------------------------------------------------------------------


def upper_bound(ratios, generator):
    """Upper end of the 95 % interval of the median."""
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[int(0.975 * len(medians))]


def measure(mode, pairs, warm_up, run_options=()):
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "step.liveset"
        bare = Worker([], mode)
        recorded = Worker([BUILD / "bin/liveset", "run", "-q", *run_options, "-o", trace, "--"], mode)
        try:
            rows = []
            for number in range(warm_up + pairs):
                first, second = (bare, recorded) if number % 2 else (recorded, bare)
                times = {first: first.step()}
                times[second] = second.step()
                rows.append((times[bare], times[recorded]))
            walks = recorded.ask("walk")
            inside = recorded.ask("inside")
        finally:
            bare.close()
            recorded.close()
        done = subprocess.run([BUILD / "bin/liveset", "summary", "--format", "json", trace], capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout)
    # Of a step in the middle: blocks that come and blocks that go, which are as many.
    events = 2 * summary["steps"][len(summary["steps"]) // 2]["allocations"]
    cpu_rows = [(one["cpu_ns"], other["cpu_ns"]) for one, other in rows[warm_up:]]
    rows = [(one["ns"], other["ns"]) for one, other in rows[warm_up:]]
    ratios = [recorded_ns / bare_ns for bare_ns, recorded_ns in rows]
    cpu_ratios = [recorded_ns / bare_ns for bare_ns, recorded_ns in cpu_rows]
    added = statistics.median(recorded_ns - bare_ns for bare_ns, recorded_ns in rows)
    return {
        "checkpoint": mode,
        "pairs": pairs,
        "bare_step_ms": statistics.median(row[0] for row in rows) / 1e6,
        "recorded_step_ms": statistics.median(row[1] for row in rows) / 1e6,
        "step_ratio_median": statistics.median(ratios),
        "step_ratio_upper95": upper_bound(ratios, random.Random(0)),
        "cpu_ratio_median": statistics.median(cpu_ratios),
        "cpu_ratio_upper95": upper_bound(cpu_ratios, random.Random(0)),
        "cpu_us_per_allocation_event": statistics.median(other - one for one, other in cpu_rows) / events / 1e3,
        "allocation_events_per_step": events,
        "hook_us_per_allocation_event": added / events / 1e3,
        "graph_nodes": walks["nodes"],
        "walk_us_per_node": statistics.median(walks["ns_per_node"]) / 1e3,
        "walk_us_per_node_in_step": statistics.median(inside["walk_ns"]) / walks["nodes"] / 1e3,
        "module_us_per_call_in_step": statistics.median(inside["module_ns"]) / 1e3,
        "lost_events": summary["health"]["lost_events"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 pairs: a look, not a statement")
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--checkpoint", choices=("none", "block"), default="none")
    parser.add_argument("--worker", choices=("none", "block"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        os.sched_setaffinity(0, {int(os.environ["LIVESET_BENCH_CORE"])})
        work(options.worker)
        return
    print(json.dumps(measure(options.checkpoint, 20 if options.quick else options.pairs, 3)))


if __name__ == "__main__":
    main()
