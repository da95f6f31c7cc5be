#!/usr/bin/env python3
"""Measures liveset against its goals; run by scripts/bench, which builds what is measured.

Everything that is compared is measured in the same run: round after round, each mode once, in rotating order; a figure is the
median over the rounds, a difference or ratio the median of the rounds' own differences or ratios.

Goals are held against processor time of the one thread that is measured: on a quiet machine it equals time on the wall, and what other
programs take from a busy one is not in it. Time on the wall stands in the details.
"""
import argparse
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.path.join(ROOT, "build", "release")
WORK = os.path.join(ROOT, "build", "bench")
BURST = ["--burst", "50000", "--pause-us", "10000"]  # less than half a ring of 4 MiB, then time to drain it


def path_of(program):
    return os.path.join(BUILD, "bin", program)


def progress(text):
    print(text, file=sys.stderr, flush=True)


class Figures:
    """What was measured, and the goals it is held to."""

    def __init__(self):
        self.goals = []
        self.details = {}
        self.skipped = []

    def goal(self, name, figure, unit, limit, at_least=False):
        passed = figure >= limit if at_least else figure <= limit
        sign = ">=" if at_least else "<="
        self.goals.append({"name": name, "figure": figure, "unit": unit, "goal": f"{sign} {limit:g}", "passed": passed})

    def skip(self, what, why):
        self.skipped.append({"what": what, "why": why})


def run(command, cpus=None, environment=None):
    """Runs to the end: seconds on the wall and on the processor, peak resident bytes, standard output."""
    pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
    errors = tempfile.TemporaryFile("w+")
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=pin,
                               env={**os.environ, **(environment or {})}, cwd=WORK)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    if process.returncode != 0:
        errors.seek(0)
        raise RuntimeError(f"{' '.join(command)}: status {process.returncode}: {errors.read().strip()[-500:]}")
    return {"wall": seconds, "cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss * 1024, "output": output}


def interleave(modes, rounds, measure):
    """{mode: [measure(mode) of each round]}; every round runs each mode once, the next round starts one mode later."""
    values = {mode: [] for mode in modes}
    for number in range(rounds):
        shift = number % len(modes)
        for mode in modes[shift:] + modes[:shift]:
            values[mode].append(measure(mode))
        progress(f"  round {number + 1} of {rounds}")
    return values


def median_difference(values, mode, base):
    return statistics.median(a - b for a, b in zip(values[mode], values[base]))


def exponent_of(seconds):
    """{size: seconds} -> the power of the size by which seconds grow: the line of least squares through the logarithms of all of them."""
    sizes = [math.log(size) for size in seconds]
    times = [math.log(each) for each in seconds.values()]
    middle, level = statistics.mean(sizes), statistics.mean(times)
    return sum((x - middle) * (y - level) for x, y in zip(sizes, times)) / sum((x - middle) ** 2 for x in sizes)


def spread(values):
    return {mode: {"median": round(statistics.median(v), 2), "min": round(min(v), 2), "max": round(max(v), 2)} for mode, v in values.items()}


# ---- the hook ---------------------------------------------------------------------------------------------------------


def workload_command(mode, events, pace, job_cpu):
    arguments = ["--events", str(events), *pace, *(["--cpu", str(job_cpu)] if job_cpu is not None else [])]
    bare, hooked = [path_of("workload_bare"), *arguments], [path_of("workload"), *arguments]
    return {
        "bare": bare,
        "calls": hooked,
        "off": hooked,
        "recorded": [path_of("liveset"), "run", "-q", "-o", os.path.join(WORK, "workload.liveset"), "--", *hooked],
        "heaptrack": ["heaptrack", "-o", os.path.join(WORK, "workload.heaptrack"), *bare],
    }[mode]


def workload_ns(mode, events, pace, cpus):
    """Nanoseconds an event of one run, of the processor and on the wall. The job has the first core, the recorder's own process the second."""
    job_cpu, other = (cpus[0], {cpus[1]}) if len(cpus) > 1 else (None, None)
    environment = {"LD_PRELOAD": os.path.join(BUILD, "lib", "libliveset_preload.so")} if mode == "off" else None
    output = run(workload_command(mode, events, pace, job_cpu), other, environment)["output"]
    line = next(line for line in output.splitlines() if line.startswith("{"))
    result = json.loads(line)
    if result["events"] < events or bool(result["recording"]) != (mode == "recorded"):
        raise RuntimeError(f"mode {mode} did not do what it should: {line}")
    return {"cpu": result["cpu_ns_per_event"], "wall": result["ns_per_event"]}


def by_clock(values, clock):
    return {mode: [each[clock] for each in runs] for mode, runs in values.items()}


def bench_hook(figures, options):
    cpus = sorted(os.sched_getaffinity(0))
    modes = ["bare", "calls", "off", "recorded"]
    if shutil.which("heaptrack"):
        modes.append("heaptrack")
    else:
        figures.skip("comparison with heaptrack", "heaptrack is not installed (scripts/setup --bench)")
    progress(f"Hook: {options.events:,} events in bursts")
    bursts = interleave(modes, options.rounds, lambda mode: workload_ns(mode, options.events, BURST, cpus))
    lost = lost_events(options.events)
    progress("Hook: the same without pauses")
    sustained = interleave(modes, max(3, options.rounds // 2), lambda mode: workload_ns(mode, options.events, [], cpus))
    for pace, values in (("bursts", bursts), ("sustained", sustained)):
        for clock in ("cpu", "wall"):
            of_clock = by_clock(values, clock)
            figures.details[f"hook, {pace}, {clock}, ns/event"] = {
                "each": spread(of_clock),
                "added": {mode: round(median_difference(of_clock, mode, "bare"), 2) for mode in modes[1:]},
            }
    bursts = by_clock(bursts, "cpu")
    added = median_difference(bursts, "recorded", "bare")
    figures.goal("hook, events lost", lost, "events", 0)
    figures.goal("hook, recording, added", added, "ns/event", 20)
    figures.goal("hook, loaded but off, added", median_difference(bursts, "off", "bare"), "ns/event", 5)
    if "heaptrack" in modes:
        ratio = statistics.median(
            (h - b) / max(r - b, 0.1) for h, r, b in zip(bursts["heaptrack"], bursts["recorded"], bursts["bare"]))
        figures.goal("heaptrack 1.4.0 adds, times as much", ratio, "x", 12, at_least=True)


def driver_calls_ns(mode):
    """Nanoseconds of one look-up and of one allocation with its free, of the fake driver of the tests."""
    command = [path_of("driver_calls"), "100000"]
    recorded = [path_of("liveset"), "run", "-q", "-o", os.path.join(WORK, "driver_calls.liveset"), "--", *command]
    environment = {"LD_PRELOAD": os.path.join(BUILD, "lib", "libliveset_preload.so")} if mode == "off" else None
    return json.loads(run(recorded if mode == "recorded" else command, None, environment)["output"].splitlines()[-1])


def bench_driver(figures, options):
    progress("Driver hook: look-ups and allocations of a fake driver")
    runs = interleave(["bare", "off", "recorded"], options.rounds, driver_calls_ns)
    look_ups = {mode: [each["dlsym_ns"] for each in values] for mode, values in runs.items()}
    allocations = {mode: [each["allocation_ns"] for each in values] for mode, values in runs.items()}
    figures.details["driver hook, ns"] = {"dlsym": spread(look_ups), "allocation and free": spread(allocations)}
    figures.goal("dlsym, preload loaded, added", median_difference(look_ups, "off", "bare"), "ns/call", 5)
    figures.goal("driver allocation and free, off, added", median_difference(allocations, "off", "bare"), "ns/pair", 100)
    figures.goal("driver allocation and free, recorded, added", median_difference(allocations, "recorded", "bare"), "ns/pair", 500)


def lost_events(events):
    """Of the last recording. A fast hook that loses events is no hook."""
    summary = json.loads(run([path_of("liveset"), "summary", "workload.liveset", "--format", "json"])["output"])
    return max(summary["health"]["lost_events"], events - summary["events"])


# ---- the trace and its analysis ----------------------------------------------------------------------------------------


def make_trace(events, pattern="train"):
    name = os.path.join(WORK, f"{pattern}-{events}.liveset")
    if not os.path.exists(name) or os.path.getmtime(name) < os.path.getmtime(path_of("make_trace")):
        progress(f"  writing a trace of {events:,} events")
        run([path_of("make_trace"), "--events", str(events), "--pattern", pattern, "--out", name + ".part"])
        os.rename(name + ".part", name)
    return name


def summary_command(trace):
    return [path_of("liveset"), "summary", trace, "--format", "json"]


def bench_analysis(figures, options):
    progress("Analysis: traces of the train pattern")
    sizes = [events for events in (10**6, 10**7, 10**8) if events <= options.largest]
    traces = {events: make_trace(events) for events in sizes}
    main = 10**7
    figures.goal("trace, exact ns", os.path.getsize(traces[main]) / main, "B/event", 2.8)
    modes = [f"summary {events}" for events in sizes]
    heaptrack_trace = find_heaptrack_trace()
    if heaptrack_trace:
        modes += ["summary of the workload", "heaptrack_print of the workload"]

    def measure(mode):
        if mode.startswith("heaptrack"):
            return run(["heaptrack_print", heaptrack_trace])
        trace = os.path.join(WORK, "workload.liveset") if mode.endswith("workload") else traces[int(mode.split()[1])]
        return run(summary_command(trace))

    runs = interleave(modes, options.rounds, measure)
    seconds = {mode: [each["cpu"] for each in values] for mode, values in runs.items()}
    walls = {mode: statistics.median(each["wall"] for each in values) for mode, values in runs.items()}
    medians = {mode: statistics.median(values) for mode, values in seconds.items()}
    rss = {mode: statistics.median(each["rss"] for each in values) for mode, values in runs.items()}
    figures.details["analysis_seconds"] = {mode: {"cpu": round(medians[mode], 4), "wall": round(walls[mode], 4)} for mode in modes}
    figures.details["analysis_rss_bytes"] = {mode: int(value) for mode, value in rss.items()}
    figures.goal("analysis, one thread", main / medians[f"summary {main}"] / 1e6, "M events/s", 50, at_least=True)
    figures.goal("analysis, resident memory", rss[f"summary {sizes[-1]}"] / sizes[-1], "B/event", 10)
    exponent = math.log(medians[f"summary {sizes[-1]}"] / medians[f"summary {sizes[0]}"]) / math.log(sizes[-1] / sizes[0])
    figures.goal(f"analysis, exponent {sizes[0]:.0e} to {sizes[-1]:.0e}", exponent, "", 1.03)
    if heaptrack_trace:
        ratio = statistics.median(h / s for h, s in zip(seconds["heaptrack_print of the workload"], seconds["summary of the workload"]))
        figures.goal("heaptrack_print takes, times as long", ratio, "x", 4, at_least=True)


def bench_lineage(figures, options):
    """What reads regions, nodes and slots. Every second event of these traces is one of these."""
    progress("Lineage: traces of the checkpoint pattern")
    small, main = 10**6, 10**7
    modes = [(command, events) for command in ("recompute", "leaks") for events in (small, main)]
    traces = {events: make_trace(events, "checkpoint") for events in (small, main)}
    runs = interleave(modes, options.rounds, lambda mode: run([path_of("liveset"), mode[0], traces[mode[1]]])["cpu"])
    medians = {mode: statistics.median(values) for mode, values in runs.items()}
    for command in ("recompute", "leaks"):
        figures.goal(f"{command}, one thread", main / medians[command, main] / 1e6, "M events/s", 20, at_least=True)
        exponent = math.log(medians[command, main] / medians[command, small]) / math.log(main / small)
        figures.goal(f"{command}, exponent 1e+06 to 1e+07", exponent, "", 1.05)


def bench_compare(figures, options):
    """A trace of 10 million events beside another one."""
    progress("Compare: two traces each")
    sizes = (10**6, 3 * 10**6, 10**7)
    main = sizes[-1]
    modes = [(pattern, events) for pattern in ("train", "checkpoint") for events in sizes]
    traces = {mode: make_trace(mode[1], mode[0]) for mode in modes}
    runs = interleave(modes, options.rounds, lambda mode: run([path_of("liveset"), "compare", traces[mode], traces[mode]])["cpu"])
    medians = {mode: statistics.median(values) for mode, values in runs.items()}
    for pattern in ("train", "checkpoint"):
        figures.goal(f"compare, two traces of 10 M events ({pattern})", medians[pattern, main], "s", 2)
        exponent = exponent_of({events: medians[pattern, events] for events in sizes})
        figures.goal(f"compare, exponent 1e+06 to 1e+07 ({pattern})", exponent, "", 1.05)


def bench_plan(figures, options):
    """Rotor on chains of random sizes, with half of the memory that keeping everything needs: stages^3 x slots at most."""
    progress("Planner: rotor")
    # The last one as anybody calls it, the others with slots only.
    sizes = [(100, 500, 0), (200, 500, 0), (400, 500, 0), (100, 1000, 0), (100, 2000, 0), (100, 500)]
    runs = interleave(sizes, options.rounds, lambda size: json.loads(run([path_of("plan_rotor"), *map(str, size)])["output"]))
    seconds = {size: statistics.median(each["table_s"] + each["plan_s"] for each in values) for size, values in runs.items()}
    figures.details["rotor, seconds"] = {" ".join(map(str, size)): round(value, 4) for size, value in seconds.items()}
    figures.goal("rotor, 100 stages x 500 slots, all-in", seconds[100, 500], "s", 2)
    figures.goal("rotor, 100 stages x 500 slots", seconds[100, 500, 0], "s", 0.2)
    figures.goal("rotor, exponent of 100 to 400 stages", exponent_of({n: seconds[n, 500, 0] for n in (100, 200, 400)}), "", 3.5)
    figures.goal("rotor, exponent of 500 to 2000 slots", exponent_of({n: seconds[100, n, 0] for n in (500, 1000, 2000)}), "", 1.2)


def bench_predict(figures, options):
    """A chain of layers that all differ, under a policy of every form."""
    progress("Predict: a chain under every policy")
    sizes = (1000, 4000, 16000)
    runs = interleave(sizes, options.rounds, lambda layers: json.loads(run([path_of("predict_chain"), str(layers)])["output"]))
    seconds = {}
    for layers in sizes:
        refused = runs[layers][0]["refused"] or {}
        seconds[layers] = {form: statistics.median(each["seconds"][form] for each in runs[layers])
                           for form in runs[layers][0]["seconds"] if form not in refused}
        figures.details[f"predict, {layers} layers, ms"] = {form: round(1000 * value, 3) for form, value in seconds[layers].items()}
        for form, why in refused.items():
            figures.skip(f"predict, {layers} layers, {form}", why)
    each = seconds[sizes[0]]
    slowest = max(each, key=each.get)
    figures.goal(f"predict, 1,000-layer chain, a policy of each of {len(each)} forms", 1000 * sum(each.values()), "ms", 50)
    figures.goal(f"predict, 1,000-layer chain, slowest form ({slowest})", 1000 * each[slowest], "ms", 50)
    exponents = {form: exponent_of({layers: of_size[form] for layers, of_size in seconds.items()})
                 for form in each if all(form in of_size for of_size in seconds.values())}
    figures.details["predict, exponent of 1,000 to 16,000 layers"] = {form: round(value, 3) for form, value in exponents.items()}
    steepest = max(exponents, key=exponents.get)
    figures.goal(f"predict, exponent 1,000 to 16,000 layers, steepest form ({steepest})", exponents[steepest], "", 1.3)


def bench_allocator(figures, options):
    """The simulated caching allocator: the train pattern, and 100,000 live blocks that are replaced at random."""
    progress("Allocator replay")
    sizes = (10**6, 3 * 10**6, 10**7)
    main = sizes[-1]
    modes = [*(("train", events) for events in sizes), ("random", main)]
    runs = interleave(modes, options.rounds, lambda mode: json.loads(run([path_of("replay_allocations"), str(mode[1]), mode[0]])["output"]))
    seconds = {mode: statistics.median(each["replay_seconds"] for each in values) for mode, values in runs.items()}
    figures.details["allocator replay, seconds"] = {f"{pattern} {events}": round(value, 4) for (pattern, events), value in seconds.items()}
    figures.goal("allocator replay, one thread", main / seconds["train", main] / 1e6, "M events/s", 10, at_least=True)
    figures.goal("allocator replay, exponent 1e+06 to 1e+07", exponent_of({n: seconds["train", n] for n in sizes}), "", 1.05)


def find_heaptrack_trace():
    names = [name for name in os.listdir(WORK) if name.startswith("workload.heaptrack.")]
    return os.path.join(WORK, names[0]) if names and shutil.which("heaptrack_print") else None


# ---- torch -------------------------------------------------------------------------------------------------------------


def torch_script(figures, options, name, script, doing):
    """-> what tests/bench/SCRIPT prints on its last line, kept among the details; None without torch, which is said."""
    python = os.path.join(ROOT, "build", "venv", "bin", "python")
    if not os.path.exists(python):
        figures.skip(name, "no build/venv (scripts/setup)")
        return None
    progress(doing)
    command = [python, os.path.join(ROOT, "tests", "bench", script)] + (["--quick"] if options.quick else [])
    result = json.loads(run(command)["output"].strip().splitlines()[-1])
    figures.details[name.replace(" ", "_")] = result
    return result


def bench_torch(figures, options):
    result = torch_script(figures, options, "torch", "torch_overhead.py", "Torch: a GPT step bare and recorded, in pairs")
    if result is None:
        return
    figures.goal("torch hook, all-in", result["cpu_us_per_allocation_event"], "us/event", 1)
    figures.goal("graph walk, in a step", result["walk_us_per_node_in_step"], "us/node", 2)
    figures.goal("both hooks of a module call, in a step", result["module_us_per_call_in_step"], "us/call", 2)
    figures.goal("GPT step on the CPU, upper 95 % bound", result["cpu_ratio_upper95"], "x", 1.03)


def bench_stacks(figures, options):
    result = torch_script(figures, options, "stacks", "stacks.py", "Torch: stacks of blocks, loops and a GPT step in pairs")
    if result is None:
        return
    figures.goal("a stack, 20 frames deep", result["us_per_stack"], "us", 1)
    figures.goal("GPT step on the CPU with --stacks, upper 95 % bound", result["cpu_ratio_upper95"], "x", 1.06)


def bench_dry_run(figures, options):
    result = torch_script(figures, options, "dry run", "dry_run.py", "Dry run: a large model, steps in pairs, imports in pairs")
    if result is None:
        return
    figures.goal("dry run of a 6.7B shape, recorded, wall", result["large_wall_s"], "s", 5)
    figures.goal("dry run of a 6.7B shape, resident memory", result["large_host_bytes"] / 1e9, "GB", 0.7)
    figures.goal("dry run, recording, all-in", result["cpu_us_per_event"], "us/event", 1)
    figures.goal("import of torch, stand-in against real libraries", result["import_ratio"], "x", 1)


# ---- the report --------------------------------------------------------------------------------------------------------


def machine():
    model = "unknown"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "load_before": os.getloadavg()[0]}


def show(figures, about):
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load_before']:.2f} before the run")
    width = max((len(goal["name"]) for goal in figures.goals), default=0)
    for goal in figures.goals:
        verdict = "pass" if goal["passed"] else "FAIL"
        print(f"{goal['name']:<{width}}  {goal['figure']:>9.3f} {goal['unit']:<11} goal {goal['goal']:<8} {verdict}")
    for skipped in figures.skipped:
        print(f"skipped: {skipped['what']}: {skipped['why']}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures liveset against its goals.")
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--quick", action="store_true", help="3 rounds, up to 10^7 events: a look, not a statement")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--events", type=int, help="of the hook's workload (10,000,000; quick: 2,000,000)")
    parser.add_argument("--only", choices=("hook", "driver", "analysis", "lineage", "compare", "plan", "predict", "allocator", "torch",
                                           "stacks", "dry-run"), action="append")
    options = parser.parse_args()
    options.rounds = min(options.rounds, 3) if options.quick else options.rounds
    options.events = options.events or (2_000_000 if options.quick else 10_000_000)
    options.largest = 10**7 if options.quick else 10**8
    os.makedirs(WORK, exist_ok=True)
    about, figures = machine(), Figures()
    for name, bench in (("hook", bench_hook), ("driver", bench_driver), ("analysis", bench_analysis), ("lineage", bench_lineage), ("compare", bench_compare),
                        ("plan", bench_plan), ("predict", bench_predict), ("allocator", bench_allocator), ("torch", bench_torch),
                        ("stacks", bench_stacks), ("dry-run", bench_dry_run)):
        if not options.only or name in options.only:
            bench(figures, options)
    show(figures, about)
    if options.json:
        with open(options.json, "w") as file:
            result = {"schema": "liveset.bench/1", "machine": about, "quick": options.quick, "rounds": options.rounds,
                      "goals": figures.goals, "skipped": figures.skipped, "details": figures.details}
            json.dump(result, file, indent=1)
            file.write("\n")
    return 0 if figures.goals and all(goal["passed"] for goal in figures.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
