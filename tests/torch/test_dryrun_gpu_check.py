"""tests/gpu/run.sh, which needs a GPU, with a stand-in for the GPU: what it reads, prints and decides."""
import os
import pathlib
import sys
import unittest

from support import BUILD, SOURCE, DryRunTest

CHECK = SOURCE / "tests/gpu/run.sh"


class GpuCheckTest(DryRunTest):
    def check(self, *options):
        return self.plain([CHECK, BUILD, *options], {"LIVESET_PYTHON": sys.executable})

    def test_a_stand_in_differs_from_itself_in_nothing(self):
        run = self.check("--stand-in", "h200", "--only", "small block")
        self.assertEqual(run.status, 0, run.stdout + run.stderr)
        self.assertIn('device under test: {"name": "NVIDIA H200", "capability": "9.0", "multiprocessors": 132', run.stdout)
        self.assertIn("1 cases compared", run.stdout)
        self.assertIn("allocated bytes differ by at most 0.0000%", run.stdout)
        figures = [line for line in run.stdout.splitlines() if line.endswith("%") and line.startswith("  ")]
        self.assertGreater(len(figures), 15)
        for line in figures:
            self.assertTrue(line.endswith("+0  +0.0000%"), line)

    def test_the_chain(self):
        if not os.access(BUILD / "bin/cuda_chain", os.X_OK):
            self.skipTest("cuda_chain is not built: no CUDA toolkit was found")
        run = self.check("--stand-in", "h200", "--only", "cuda_chain segment:2")
        self.assertEqual(run.status, 0, run.stdout + run.stderr)
        self.assertIn("loss 0.05442775066820514 on the GPU, 0.05442775066820514 in the dry run", run.stdout)

    def test_what_fails_is_said(self):
        run = self.check("--stand-in", "h200", "--only", "no such case")
        self.assertEqual(run.status, 1)
        self.assertIn("0 cases compared", run.stdout)

    @unittest.skipIf(pathlib.Path("/dev/nvidia0").exists(), "this machine has a GPU")
    def test_without_a_gpu(self):
        run = self.check()
        self.assertEqual((run.status, run.stdout, run.stderr), (77, "SKIPPED: PyTorch finds no GPU on this machine\n", ""))


if __name__ == "__main__":
    unittest.main()
