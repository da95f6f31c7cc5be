#!/usr/bin/env python3
"""Sets summaries (liveset summary --format json) of several runs side by side.  usage: side_by_side.py NAME=FILE..."""
import json
import sys


def people(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    return ""


PHASES = ["forward", "loss", "recompute", "backward", "optimizer", "other"]


def rows_of(summary):
    """(label, bytes or text) of one run. The last step is shown: the first one also makes the optimizer's state."""
    step = summary["steps"][-1]
    rows = [("peak of the run", summary["peak"]["bytes"]), (f"peak of step {len(summary['steps']) - 1}", step["peak_bytes"])]
    rows += [(f"  while in {name}", step["phases"].get(name, {}).get("peak_bytes")) for name in PHASES]
    rows.append(("live when backward starts", step["backward_start"]["live_bytes"]))
    rows += [(f"  {name}", count) for name, count in step["backward_start"]["classes"].items()]
    return dict(rows)


def main(arguments):
    runs = {}
    for argument in arguments:
        name, path = argument.split("=", 1)
        with open(path) as file:
            runs[name] = rows_of(json.load(file))
    # Every summary has the same labels in the same order; what is nowhere is left out.
    labels = [label for label in next(iter(runs.values())) if any(rows.get(label) for rows in runs.values())]
    print(f"{'':<28}" + "".join(f"{name:>14}" for name in runs))
    for label in labels:
        print(f"{label:<28}" + "".join(f"{people(rows[label]) if rows.get(label) else '-':>14}" for rows in runs.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
