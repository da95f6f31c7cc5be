#!/usr/bin/env python3
"""Sums up CTest's JUnit files: failed tests with their output, skipped ones with their reason, then one line of totals.

usage: test_report.py [--failed WHAT]... NAME=FILE...
"""
import re
import sys
import xml.etree.ElementTree as ElementTree

OUTPUT_LINES = 60  # of a failed test that are shown; the log has all of them


def skip_reason(output):
    """The reason that a test printed when it skipped itself: GoogleTest's (after ': Skipped') or 'SKIPPED: reason'."""
    match = re.search(r": Skipped\n(.+)", output) or re.search(r"SKIPPED:? *(.+)", output)
    return match.group(1).strip() if match and match.group(1).strip(" ]") else "no reason given"


def read_suite(path):
    passed, failed, skipped = [], [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name, output = case.get("name"), case.findtext("system-out") or ""
        if case.find("skipped") is not None and "Unable to find executable" not in output:
            skipped.append((name, skip_reason(output)))
        elif case.get("status") == "run":
            passed.append(name)
        else:  # fail, or could not be run at all
            failed.append((name, output))
    return passed, failed, skipped


def main(arguments):
    broken, suites = [], []
    while arguments:
        argument = arguments.pop(0)
        if argument == "--failed":
            broken.append(arguments.pop(0))
        else:
            name, path = argument.split("=", 1)
            suites.append((name, *read_suite(path)))
    broken += [f"{suite}: no test ran" for suite, passed, failed, _ in suites if not passed and not failed]
    if not suites and not broken:
        broken.append("no test ran")
    for suite, _, failed, _ in suites:
        for name, output in failed:
            print(f"\nFAILED {suite}: {name}")
            print("\n".join("    " + line for line in output.splitlines()[-OUTPUT_LINES:]))
    print()
    for suite, passed, failed, skipped in suites:
        print(f"{suite}: {len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    for suite, _, _, skipped in suites:
        for name, reason in skipped:
            print(f"  skipped {suite}: {name}: {reason}")
    for what in broken:
        print(f"  failed: {what}")
    for suite, _, failed, _ in suites:
        for name, _ in failed:
            print(f"  failed {suite}: {name}")
    total_failed = len(broken) + sum(len(failed) for _, _, failed, _ in suites)
    print(f"{sum(len(passed) for _, passed, _, _ in suites)} passed, {total_failed} failed")
    return 1 if total_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
