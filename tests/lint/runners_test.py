#!/usr/bin/env python3
"""Proves that what runs the tests and benchmarks (scripts/support/test_report.py, tests/torch/run_module.py,
tests/bench/bench.py, scripts/torch_matrix) does not call nothing a success."""
import contextlib
import importlib.machinery
import importlib.util
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


class Matrix(Runner):
    def setUp(self):
        super().setUp()
        path = os.path.join(ROOT, "scripts/torch_matrix")
        loader = importlib.machinery.SourceFileLoader("torch_matrix", path)
        self.matrix = importlib.util.module_from_spec(importlib.util.spec_from_loader("torch_matrix", loader))
        loader.exec_module(self.matrix)

    def test_a_lineage_that_is_not_said_is_wrong_and_one_too_many_too(self):
        right = self.matrix.lineage_is_right
        self.assertTrue(right("gpt block", {"drop": 1, "rerun": 2, "use": 3}))
        self.assertFalse(right("gpt block", {"drop": 1, "rerun": 0, "use": 3}))
        self.assertFalse(right("gpt none", {"drop": 0, "rerun": 1, "use": 0}))
        self.assertTrue(right("chain", {"drop": 0, "rerun": 0, "use": 0}))  # nobody says what it has

    def test_gaps_of_one_version_are_its_own_and_those_of_all_are_named_once(self):
        gaps = self.matrix.own_gaps
        self.assertEqual(gaps({}), ({}, set()))
        self.assertEqual(gaps({"2.6": {"slots": "stderr"}}), ({"2.6": {"slots": "stderr"}}, set()))
        self.assertEqual(gaps({"2.6": {"slots": "a", "names": "b"}, "2.9": {"names": "c"}}), ({"2.6": {"slots": "a"}, "2.9": {}}, {"names"}))

    def test_a_sample_that_is_not_there(self):
        os.mkdir(os.path.join(self.folder, "bin"))
        self.write("bin/liveset", "")
        done = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "scripts/torch_matrix"), "--samples", "gtp", "--build", self.folder],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no such sample: gtp", done.stderr)


if __name__ == "__main__":
    unittest.main()
