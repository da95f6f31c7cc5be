#!/usr/bin/env python3
"""`pip install .`: builds the wheel, installs it into a fresh environment that sees torch, uses it from another folder, takes it away.

usage: wheel_test.py BUILD_FOLDER

Needs scikit-build-core in the Python of the torch tests (scripts/setup installs it); nothing is downloaded. The wheel is compiled in
the folder `wheel` beside BUILD_FOLDER: paths relative to it are those of the release build, so ccache has all of it already.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
PYTHON = os.environ.get("LIVESET_PYTHON") or os.path.join(ROOT, "build", "venv", "bin", "python")
JOB = "import torch; kept = [torch.ones(1 << 18) for _ in range(3)]"
DEVICE_JOB = "import torch; kept = [torch.ones(1 << 18, device='cuda') for _ in range(3)]"


def reason_to_skip():
    if not os.path.exists(PYTHON):
        return "no Python with torch (scripts/setup, or LIVESET_PYTHON)"
    for module in ("scikit_build_core", "pip", "torch"):
        if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode != 0:
            return f"no {module} in {PYTHON}"
    return None


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def files_below(folder):
    found = set()
    for place, folders, names in os.walk(folder):
        found |= {os.path.relpath(os.path.join(place, name), folder) for name in folders + names if "__pycache__" not in place
                  and name != "__pycache__"}
    return found


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="liveset-wheel-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        environment = dict(os.environ)
        if shutil.which("ccache"):
            environment |= {"CMAKE_C_COMPILER_LAUNCHER": "ccache", "CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": ROOT,
                            "CCACHE_NOHASHDIR": "1"}
        run(PYTHON, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check",
            f"--config-settings=build-dir={os.path.join(os.path.dirname(BUILD), 'wheel')}", "-w", cls.folder, ROOT, env=environment)
        cls.wheel, = glob.glob(os.path.join(cls.folder, "*.whl"))
        cls.environment = os.path.join(cls.folder, "environment")
        run(PYTHON, "-m", "venv", "--without-pip", cls.environment)
        cls.python = os.path.join(cls.environment, "bin", "python")
        packages, = glob.glob(os.path.join(cls.environment, "lib", "python*", "site-packages"))
        theirs = run(PYTHON, "-c", "import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))").strip()
        with open(os.path.join(packages, "torch_of_the_tests.pth"), "w", encoding="utf-8") as out:
            out.write(f"import site; site.addsitedir({theirs!r})\n")
        cls.before = files_below(cls.environment)
        cls.pip("install", "--no-deps", "--no-index", cls.wheel)

    @classmethod
    def pip(cls, *arguments):
        run(PYTHON, "-m", "pip", "--disable-pip-version-check", "--python", cls.python, *arguments)

    def command(self, *arguments, name="liveset"):
        """Runs the installed command in an empty folder, with hardly any environment."""
        self.work = tempfile.mkdtemp(dir=self.folder)
        program = os.path.join(self.environment, "bin", name)
        return run(program, *arguments, cwd=self.work, env={"PATH": "/usr/bin:/bin", "HOME": self.work})

    def summary(self):
        return json.loads(run(os.path.join(self.environment, "bin", "liveset"), "summary", "out.liveset", "--format", "json", cwd=self.work,
                              env={"PATH": "/usr/bin:/bin"}))

    def test_has_a_command_and_a_module(self):
        version = self.command("--version")
        self.assertRegex(version, r"\d+\.\d+\.\d+")
        self.assertEqual(self.command("-m", "liveset", "--version", name="python"), version)

    def test_records_from_any_folder(self):
        self.command("run", "-q", "-o", "out.liveset", "--", self.python, "-c", JOB)
        counters = self.summary()["counters"]["cpu"]["allocated"]
        self.assertGreaterEqual(counters["peak"], 3 << 20)

    def test_dry_runs_from_any_folder(self):
        self.command("dryrun", "-q", "--gpu", "h100", "-o", "out.liveset", "--", self.python, "-c", DEVICE_JOB)
        counters = self.summary()["counters"]["cuda:0"]
        self.assertEqual(counters["allocated"]["peak"], 3 << 20)
        self.assertEqual(counters["reserved"]["peak"], 4 << 20)  # PyTorch puts two blocks of 1 MiB into a segment

    def test_zz_uninstalls_without_trace(self):
        self.assertGreater(len(files_below(self.environment) - self.before), 50)
        self.pip("uninstall", "-y", "liveset")
        self.assertEqual(files_below(self.environment), self.before)


if __name__ == "__main__":
    reason = reason_to_skip()
    if reason:
        print(f"SKIPPED: {reason}")
        sys.exit(0)
    unittest.main(verbosity=2)
