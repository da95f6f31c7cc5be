#!/usr/bin/env python3
"""Proves that what runs the tests and benchmarks (scripts/support/test_report.py, tests/torch/run_module.py,
tests/bench/bench.py) does not call nothing a success."""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def run_script(self, script, *arguments):
        """-> exit status, last line of its output"""
        command = [sys.executable, "-B", os.path.join(ROOT, script), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()[-1] if done.stdout else ""


class Report(Runner):
    def report(self, *suites):
        """`suites`: the test cases of each, as CTest writes them."""
        for number, cases in enumerate(suites):
            self.write(f"{number}.xml", f"<testsuite>{cases}</testsuite>")
        return self.run_script("scripts/support/test_report.py", *[f"suite{number}={number}.xml" for number in range(len(suites))])

    GOOD = '<testcase name="good" status="run"/>'
    BAD = '<testcase name="bad" status="fail"/>'
    SKIPPED = '<testcase name="skipped" status="notrun"><skipped/><system-out>SKIPPED: no GPU</system-out></testcase>'

    def test_totals(self):
        self.assertEqual(self.report(self.GOOD + self.SKIPPED, self.GOOD), (0, "2 passed, 0 failed"))
        self.assertEqual(self.report(self.GOOD + self.BAD, self.GOOD), (1, "2 passed, 1 failed"))

    def test_a_suite_in_which_nothing_ran_has_failed(self):
        self.assertEqual(self.report(self.GOOD, ""), (1, "1 passed, 1 failed"))
        self.assertEqual(self.report(self.GOOD, self.SKIPPED), (1, "1 passed, 1 failed"))
        self.assertEqual(self.report(), (1, "0 passed, 1 failed"))


class Module(Runner):
    def module(self, body):
        self.write("test_it.py", "import unittest\n" + body)
        return self.run_script("tests/torch/run_module.py", "test_it")

    def test_statuses(self):
        case = "class Test(unittest.TestCase):\n    def test_a(self): {}\n    def test_b(self): {}\n"
        self.assertEqual(self.module(case.format("pass", "self.skipTest('not here')")), (0, ""))
        self.assertEqual(self.module(case.format("pass", "self.fail()"))[0], 1)
        self.assertEqual(self.module(case.format("self.skipTest('not here')", "self.fail()"))[0], 1)
        self.assertEqual(self.module("@unittest.skip('another torch')\n" + case.format("pass", "pass")), (77, "SKIPPED: another torch"))
        self.assertEqual(self.module(""), (1, ""))


class Bench(Runner):
    def bench(self, part):
        sys.path.insert(0, os.path.join(ROOT, "tests", "bench"))
        self.addCleanup(sys.path.pop, 0)
        import bench
        shown = io.StringIO()
        with unittest.mock.patch.multiple(bench, WORK=self.folder, bench_torch=lambda figures, options: part(figures)), \
                unittest.mock.patch.object(sys, "argv", ["bench", "--only", "torch"]), contextlib.redirect_stdout(shown):
            return bench.main(), shown.getvalue().splitlines()[-1]

    def test_statuses(self):
        self.assertEqual(self.bench(lambda figures: figures.goal("time", 1, "s", 2))[0], 0)
        self.assertEqual(self.bench(lambda figures: figures.goal("time", 3, "s", 2))[0], 1)
        self.assertEqual(self.bench(lambda figures: figures.skip("torch", "not there")), (1, "skipped: torch: not there"))


if __name__ == "__main__":
    unittest.main()
