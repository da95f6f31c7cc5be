#!/usr/bin/env python3
"""The C++ example of README.md is a program that compiles and records what the README says.

usage: readme_example.py extract README.md OUT.cpp     writes the first ```cpp block
       readme_example.py run LIVESET PROGRAM TRACE     records the program and checks its summary
"""
import json
import re
import subprocess
import sys


def extract(readme, out):
    with open(readme) as file:
        blocks = re.findall(r"^```cpp\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)
    if not blocks:
        sys.exit(f"{readme}: no ```cpp block")
    with open(out, "w") as file:
        file.write(blocks[0])


def run(liveset, program, trace):
    subprocess.run([liveset, "run", "-q", "-o", trace, "--", program], check=True)
    summary = json.loads(subprocess.run([liveset, "summary", trace, "--format", "json"], check=True, capture_output=True).stdout)
    peak = summary["peak"]
    # The example holds one block of 1 MiB from forward to backward, in each of three steps.
    found = (peak["counter"], peak["bytes"], peak["phase"], peak["module"], len(summary["steps"]), summary["counters"])
    print(found)
    assert peak["bytes"] == 1 << 20 and peak["phase"] == "forward" and peak["module"] == "block0", found
    assert len(summary["steps"]) == 3 and all(step["peak_bytes"] == 1 << 20 for step in summary["steps"]), summary["steps"]
    assert summary["counters"]["cpu/pool"]["allocated"]["final"] == 0, found


if __name__ == "__main__":
    {"extract": extract, "run": run}[sys.argv[1]](*sys.argv[2:])
