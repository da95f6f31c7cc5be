#!/usr/bin/env python3
"""What a dry run costs: a large model all-in, recording by event, and the import of torch on the stand-in libraries.

The comparisons are made inside a dry run: this script starts itself under `liveset dryrun`, and from there its children with and without
what is compared, in turns. Prints one JSON object on the last line:
  large_wall_s, large_host_bytes      tests/bench/large_model.py under `liveset dryrun`: all of it, and its resident memory
  cpu_us_per_event, events_per_step   what recording adds to a training step of some 40,000 block events on the stand-in
  import_ratio, import_ratio_upper95  `import torch` on the stand-in libraries over that on the real ones
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

from torch_overhead import BUILD, ROOT, upper_bound

LIVESET = BUILD / "bin/liveset"
# Micro-batches of samples/torch_gpt's small preset in a step, for some 40,000 events.
MICROBATCHES = 85


def dry_run(*command, trace):
    done = subprocess.run([LIVESET, "dryrun", "-q", "--gpu", "h200", "-o", trace, "--", sys.executable, *command], check=True, text=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout.strip().splitlines()[-1])


def without(*names):
    return {name: value for name, value in os.environ.items() if name not in names}


# ---- inside a dry run --------------------------------------------------------------------------------------------------


def work():
    """A process that trains: a step for each line on stdin."""
    sys.path.insert(0, str(ROOT / "samples/torch_gpt"))
    import torch
    import train
    model, optimizer, tokens, targets = train.build("none", "cuda")
    print("ready", flush=True)
    for _ in sys.stdin:
        before = torch.cuda.memory_stats()
        start = time.process_time_ns()
        for _ in range(MICROBATCHES):
            train.F.cross_entropy(model(tokens).view(-1, train.VOCABULARY), targets.view(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        spent = time.process_time_ns() - start
        after = torch.cuda.memory_stats()
        events = sum(after[f"allocation.all.{kind}"] - before[f"allocation.all.{kind}"] for kind in ("allocated", "freed"))
        print(json.dumps({"cpu_ns": spent, "events": events}), flush=True)


class Worker:
    def __init__(self, environment):
        self.process = subprocess.Popen([sys.executable, __file__, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        assert self.process.stdout.readline() == "ready\n", "the training process did not start"

    def step(self):
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare_steps(pairs):
    bare, recorded = Worker(without("LD_PRELOAD")), Worker(os.environ)
    rows = []
    for number in range(2 + pairs):
        first, second = (bare, recorded) if number % 2 else (recorded, bare)
        answers = {first: first.step()}
        answers[second] = second.step()
        rows.append((answers[bare], answers[recorded]))
    bare.close()
    recorded.close()
    rows = rows[2:]
    events = rows[-1][1]["events"]
    added = statistics.median(two["cpu_ns"] - one["cpu_ns"] for one, two in rows)
    return {"cpu_us_per_event": added / events / 1e3, "events_per_step": events,
            "bare_step_ms": statistics.median(one["cpu_ns"] for one, _ in rows) / 1e6}


def import_seconds(environment):
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True, env=environment)
    return time.perf_counter() - start


def compare_imports(pairs):
    stand_in = without("LD_PRELOAD")
    real = without("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "LIVESET_STANDIN")
    ratios = []
    for number in range(1 + pairs):
        order = [("stand_in", stand_in), ("real", real)]
        seconds = {name: import_seconds(environment) for name, environment in (order if number % 2 else reversed(order))}
        ratios.append(seconds["stand_in"] / seconds["real"])
    return {"import_ratio": statistics.median(ratios[1:]), "import_ratio_upper95": upper_bound(ratios[1:], random.Random(0)),
            "import_real_s": seconds["real"]}


# ---- the measurement ---------------------------------------------------------------------------------------------------


def large_model(trace):
    start = time.perf_counter()
    result = dry_run(ROOT / "tests/bench/large_model.py", trace=trace)
    peaks = {"checkpointed" if step["checkpointed"] else "saved": [step["allocated"], step["reserved"]] for step in result["steps"]}
    return {"large_wall_s": time.perf_counter() - start, "large_host_bytes": result["host_bytes"], "large_peaks": peaks}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few pairs: a look, not a statement")
    parser.add_argument("--inside", choices=("steps", "imports"), help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work()
    if options.inside:
        print(json.dumps((compare_steps if options.inside == "steps" else compare_imports)(options.pairs)))
        return None
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "run.liveset"
        walls = [large_model(trace) for _ in range(2 if options.quick else 5)]
        result = min(walls, key=lambda each: each["large_wall_s"]) | {
            "large_wall_s": statistics.median(each["large_wall_s"] for each in walls)}
        for what, pairs in (("steps", 5 if options.quick else 30), ("imports", 3 if options.quick else 15)):
            result |= dry_run(__file__, "--inside", what, "--pairs", str(pairs), trace=trace)
    print(json.dumps(result))
    return None


if __name__ == "__main__":
    sys.exit(main())
