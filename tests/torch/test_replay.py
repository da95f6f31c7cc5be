"""`run --check-replay` and `check --replay`: each way in which a recompute can differ is found and named, and nothing else is."""
import sys
import unittest

import support

JOB = support.JOBS / "replay.py"

# What must be found of each model of the job; of all others, and of all of them with --clean, nothing.
EXPECTED = {
    "InputWritten": {"input_changed", "value"},
    "ParameterWritten": {"parameter_changed", "value"},
    "GradMode": {"grad_mode"},
    "PythonRandom": {"rng_external", "value"},
    "NumpyRandom": {"rng_external", "value"},
    "OwnGenerator": {"rng_external", "value"},
    "Shape": {"shape"},
    "Dtype": {"operators", "dtype"},
    "Fewer": {"operators"},
    "Training": {"python_state_changed"},
    "Closure": {"python_state_changed"},
    "Advancing": {"rng_before", "rng_after_step", "value"},
}


def kinds_by_model(check):
    found = {}
    for finding in check["findings"]:
        found.setdefault(finding["region"].split("/")[0], set()).add(finding["kind"])
    return found


class Replay(support.TorchTest):
    def checked(self, run):
        self.assert_sound(run)
        return run.read("check", "--replay", statuses=(0, 1))["checks"][0]

    def record_beside(self, *arguments):
        """-> the recorded run, after a look that the job did bit for bit what it does alone."""
        run = self.record(JOB, *arguments, options=("--check-replay",))
        plain = self.plain([sys.executable, JOB, *arguments])
        self.assertEqual((run.status, run.stdout, run.stderr), (plain.status, plain.stdout, plain.stderr))
        self.assertEqual(run.status, 0)
        return run

    def test_each_difference_is_found_and_nothing_else(self):
        check = self.checked(self.record_beside())
        found = kinds_by_model(check)
        if "NumpyRandom" not in found:  # no numpy here
            found["NumpyRandom"] = EXPECTED["NumpyRandom"]
        self.assertEqual(found, EXPECTED)
        self.assertFalse(check["ok"])
        by_kind = {(finding["region"].split("/")[0], finding["kind"]): finding for finding in check["findings"]}
        value = by_kind["PythonRandom", "value"]
        self.assertEqual(value["region"], "PythonRandom/checkpoint:0")
        self.assertEqual(value["op"], "aten.mul.Tensor")
        self.assertRegex(value["detail"], r"float32 \[4, 6\]: element \d+ was ")
        self.assertIn("[4, 6] and has [8, 6]", by_kind["Shape", "shape"]["detail"])
        self.assertEqual(by_kind["Fewer", "operators"]["op"], "aten.sin")
        self.assertEqual(by_kind["GradMode", "grad_mode"]["op"], "aten.sin")
        self.assertEqual(by_kind["ParameterWritten", "parameter_changed"]["op"], "ParameterWritten.two.weight")

    def test_clean_twins_are_silent(self):
        check = self.checked(self.record_beside("--clean"))
        self.assertEqual(check["findings"], [])
        self.assertTrue(check["ok"])
        self.assertEqual(check["coverage"]["regions"], 22)  # of 20 models; the region inside of one begins again when that is made again
        self.assertGreater(check["coverage"]["values"], 40)

    def test_a_transformer_is_clean_in_each_mode_and_computes_the_same(self):
        job = support.SOURCE / "samples/torch_gpt/train.py"
        for mode in ("block", "reentrant", "selective"):
            arguments = [job, "--checkpoint", mode, "--dropout", "0.1", "--steps", "2", "--json"]
            run = self.record_command([sys.executable, *arguments], name=mode, options=("--check-replay", "--fingerprint"))
            plain = self.plain([sys.executable, *arguments])
            self.assertEqual((run.status, run.stdout, run.stderr), (0, plain.stdout, plain.stderr))
            check = self.checked(run)
            self.assertEqual(check["findings"], [])
            self.assertEqual(check["coverage"]["recomputes"], 8)  # 4 blocks, 2 steps

    def test_a_rate_leaves_regions_out_and_says_so(self):
        run = self.record(JOB, "--clean", options=("--check-replay=0.5",))
        coverage = self.checked(run)["coverage"]
        self.assertGreater(coverage["not_sampled"], 0)
        self.assertGreater(coverage["regions"], 0)


class DryRun(support.DryRunTest):
    def test_values_of_a_device_that_computes_nothing_are_left_out(self):
        job = support.SOURCE / "samples/torch_gpt/train.py"
        run = self.dry_run(job, "--checkpoint", "block", "--device", "cuda", "--steps", "2", options=("--check-replay",))
        self.assertEqual(run.status, 0, run.stderr)
        check = run.read("check", "--replay")["checks"][0]
        self.assertEqual(check["findings"], [])
        self.assertEqual((check["coverage"]["recomputes"], check["coverage"]["values"]), (8, 0))
        self.assertGreater(check["coverage"]["operators"], 100)
        self.assertIn("values on the stand-in device, which computes nothing", check["not_observed"])


if __name__ == "__main__":
    unittest.main()
