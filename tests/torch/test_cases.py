"""Situations that people met (tests/torch/cases): each script has the finding that liveset must print, and a clean twin that has none."""
import unittest

import support

CASES = support.SOURCE / "tests/torch/cases"


def replay_kinds(run):
    """{(kind, module)} of `check --replay`"""
    check = run.read("check", "--replay", statuses=(0, 1))["checks"][0]
    return {(finding["kind"], finding["module"]) for finding in check["findings"]}


class Cases(support.TorchTest):
    def record_case(self, name, clean, options=(), status=0):
        run = self.record(CASES / f"{name}.py", *(["--clean"] if clean else []), options=options, name=f"{name}{clean}")
        self.assertEqual(run.status, status, run.stderr)
        self.assert_sound(run)
        return run

    def assert_replay(self, name, expected, status=0):
        dirty = self.record_case(name, False, ("--check-replay",), status)
        self.assertEqual(replay_kinds(dirty), expected)
        self.assertEqual(replay_kinds(self.record_case(name, True, ("--check-replay",))), set())
        return dirty

    def test_batchnorm_twice(self):
        run = self.assert_replay("batchnorm_twice", {("buffer_changed", "Net")})
        findings = run.read("check", "--replay", statuses=(1,))["checks"][0]["findings"]
        self.assertEqual({finding["op"] for finding in findings},
                         {"Net.bn.running_mean", "Net.bn.running_var", "Net.bn.num_batches_tracked"})

    def test_autocast_cache(self):
        self.assert_replay("autocast_cache", {("autocast", "Linear")})

    def test_dropout_rng(self):
        self.assert_replay("dropout_rng", {("value", "Sequential.Dropout"), ("rng_before", ""), ("rng_after_step", "")})

    def test_branch_differs(self):
        self.assert_replay("branch_differs", {("operators", "Net"), ("value", "Net"), ("python_state_changed", "Net")})

    def test_nested_regions(self):
        dirty = self.record_case("nested_regions", False, ("--check-replay",))
        check = dirty.read("check", "--replay", statuses=(1,))["checks"][0]
        regions = {finding["region"] for finding in check["findings"] if finding["kind"] == "rng_before"}
        self.assertEqual(regions, {"checkpoint:0/Outer/checkpoint:1"})
        self.assertEqual(replay_kinds(self.record_case("nested_regions", True, ("--check-replay",))), set())

    def test_function_that_reads_its_saved_tensors_twice(self):
        self.assert_replay("reads_twice", {("unpacked_twice", "")}, status=1)

    def test_stale_gradients(self):
        """8 layers of 256 x 256 float32: parameters and gradients are 2 MiB each."""
        dirty, clean = (self.record_case("stale_gradients", clean).read("peak") for clean in (False, True))
        self.assertEqual((dirty["phase"], dirty["classes"]["gradient"]), ("loss", 2 << 20))
        self.assertEqual(clean["phase"], "backward")
        self.assertLess(clean["classes"]["gradient"], 2 << 18)
        self.assertLess(clean["bytes"], dirty["bytes"])

    def test_foreach_optimizer(self):
        dirty, clean = (self.record_case("foreach_optimizer", clean).read("peak") for clean in (False, True))
        self.assertEqual((dirty["phase"], dirty["classes"]["temporary"] >> 20), ("optimizer", 2))  # as large as all parameters
        self.assertLess(clean["classes"]["temporary"], 1 << 20)


if __name__ == "__main__":
    unittest.main()
