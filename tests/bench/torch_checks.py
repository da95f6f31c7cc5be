#!/usr/bin/env python3
"""What --check-replay and --fingerprint cost: processor time of a step of samples/torch_gpt, beside the same job under plain `liveset run`.

usage: torch_checks.py LIVESET [ROUNDS]
"""
import pathlib
import statistics
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
JOB = """
import sys, time
sys.path.insert(0, sys.argv[1])
import train
parts = train.build("block")
times = []
for step in range(12):
    begin = time.process_time()
    train.train_step(*parts)
    times.append(time.process_time() - begin)
print(sorted(times[2:])[5])
"""
OPTIONS = {"run": [], "--check-replay": ["--check-replay"], "--check-replay=0.1": ["--check-replay=0.1"],
           "--fingerprint (each step)": ["--fingerprint=1000"]}


def main():
    liveset, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    times = {name: [] for name in OPTIONS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name, options in OPTIONS.items():
                line = [liveset, "run", "-q", *options, "-o", f"{folder}/t.liveset", "--", sys.executable, "-c", JOB, SOURCE / "samples/torch_gpt"]
                times[name].append(float(subprocess.run(line, capture_output=True, text=True, check=True).stdout))
    base = statistics.median(times["run"])
    for name, found in times.items():
        median = statistics.median(found)
        print(f"{name:28} {1000 * median:8.1f} ms a step  x {median / base:.2f}  ({1000 * min(found):.1f} to {1000 * max(found):.1f})")


main()
