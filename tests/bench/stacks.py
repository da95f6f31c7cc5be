#!/usr/bin/env python3
"""What `run --stacks` adds to `run`: two recorded processes, one with stacks, take turns on one core (as in torch_overhead.py).

Prints one JSON object on the last line:
  us_per_stack           of an allocation or a free that is 20 frames deep, in a loop whose innermost three frames change at each one
  us_per_stack_same      the same where the stack stays as it was
  step_ratio_median, step_ratio_upper95, cpu_ratio_...   torch_overhead.py's, for a GPT step with --stacks against the bare one
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch_overhead
from torch_overhead import BUILD, measure

DEPTH, LOOPS = 20, 2000


def work():
    import torch
    empty = torch.empty

    def one(size):
        return empty(size)

    def other(size):
        return empty(size)

    def through_one(size):
        return one(size)

    def through_other(size):
        return other(size)

    def changing():
        for _ in range(LOOPS // 4):
            through_one(64)
            through_other(64)
            one(64)
            other(64)

    def same():
        for _ in range(LOOPS):
            one(64)

    def deep(depth, body):
        return deep(depth - 1, body) if depth else body()

    torch.ones(1) + 1
    print("ready", flush=True)
    for line in sys.stdin:
        body, inner = (changing, 2) if line == "changing\n" else (same, 1)
        start = time.process_time_ns()
        deep(DEPTH - inner - 3, body)  # the module, work, deep's last and the body are frames, too
        print(json.dumps({"ns": (time.process_time_ns() - start) / (2 * LOOPS)}), flush=True)


class Worker(torch_overhead.Worker):
    script = __file__


def compare(turns):
    with tempfile.TemporaryDirectory() as folder:
        plain, stacks = (Worker([BUILD / "bin/liveset", "run", "-q", *options, "-o", f"{folder}/{name}.liveset", "--"], "none")
                         for name, options in (("plain", ()), ("stacks", ("--stacks",))))
        try:
            added = {}
            for what in ("changing", "same"):
                rows = []
                for number in range(turns + 3):
                    first, second = (plain, stacks) if number % 2 else (stacks, plain)
                    times = {first: first.ask(what)["ns"]}
                    times[second] = second.ask(what)["ns"]
                    rows.append(times[stacks] - times[plain])
                added[what] = statistics.median(rows[3:]) / 1e3
        finally:
            plain.close()
            stacks.close()
    return {"us_per_stack": added["changing"], "us_per_stack_same": added["same"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few turns: a look, not a statement")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        os.sched_setaffinity(0, {int(os.environ["LIVESET_BENCH_CORE"])})
        work()
        return
    result = compare(20 if options.quick else 100)
    step = measure("none", 20 if options.quick else 200, 3, ("--stacks",))
    result.update({key: value for key, value in step.items() if "ratio" in key})
    print(json.dumps(result))


if __name__ == "__main__":
    main()
