"""Situations that people met (tests/torch/cases): each script has the finding that liveset must print, and a clean twin that has none."""
import unittest

import support

CASES = support.SOURCE / "tests/torch/cases"


def replay_kinds(run):
    """{(kind, module)} of `check --replay`"""
    check = run.read("check", "--replay", statuses=(0, 1))["checks"][0]
    return {(finding["kind"], finding["module"]) for finding in check["findings"]}


class CaseTest(support.TorchTest):
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


class Cases(CaseTest):
    def test_batchnorm_twice(self):
        run = self.assert_replay("batchnorm_twice", {("buffer_changed", "Net")})
        findings = run.read("check", "--replay", statuses=(1,))["checks"][0]["findings"]
        self.assertEqual({finding["op"] for finding in findings},
                         {"Net.bn.running_mean", "Net.bn.running_var", "Net.bn.num_batches_tracked"})

    def test_autocast_cache(self):
        self.assert_replay("autocast_cache", {("autocast", "Linear")})

    def test_dropout_rng(self):
        self.assert_replay("dropout_rng", {("value", "Sequential.1"), ("rng_before", ""), ("rng_after_step", "")})

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

    def test_reentrant_region_that_is_not_trained(self):
        run = self.record_case("reentrant_untrained", False, ("--check-replay",))
        finding, = run.read("check", "--replay", statuses=(1,))["checks"][0]["findings"]
        self.assertEqual((finding["kind"], finding["module"], finding["count"]), ("no_gradient", "Net", 2))
        self.assertIn("its 12 parameters get no gradient", finding["detail"])
        self.assertEqual(replay_kinds(self.record_case("reentrant_untrained", True, ("--check-replay",))), set())

    def test_one_region_around_the_whole_model(self):
        """10 blocks save 2 activations of 1024 x 64 float32 each: 5 MiB, all made again at once where one region is around all of them."""
        whole, clean = (self.record_case("whole_model", clean) for clean in (False, True))
        none = self.record(CASES / "whole_model.py", "--none", name="none")
        peaks = [run.read("peak") for run in (whole, clean, none)]
        self.assertEqual(peaks[0]["classes"]["recomputed_activation"], 20 << 18)
        self.assertGreaterEqual(peaks[0]["bytes"], peaks[2]["bytes"])
        self.assertLess(peaks[1]["bytes"], 0.7 * peaks[2]["bytes"])
        regions = [[region for region in run.read("recompute")["regions"] if region["step"] == 0] for run in (whole, clean)]
        self.assertEqual([region["remade_bytes"] for region in regions[0]], [20 << 18])
        self.assertEqual([region["remade_bytes"] for region in regions[1]], [2 << 18] * 10)
        self.assertEqual(none.read("recompute")["regions"], [])

    def test_short_regions(self):
        """A matrix is 12,800 bytes. 100 regions keep 100 of them (the first, which needs no gradient, is an input), 20 keep 20."""
        runs = [self.record_case("short_regions", clean) for clean in (False, True)]
        kept = [run.read("peak")["classes"]["checkpoint_input"] for run in runs]
        self.assertEqual(kept, [99 * 12800, 19 * 12800])
        self.assertEqual([len(run.read("recompute")["regions"]) for run in runs], [100, 20])

    def test_unpack_twice(self):
        times = [[region["times"] for region in self.record_case("unpack_twice", clean).read("recompute")["regions"]] for clean in (False, True)]
        self.assertEqual(times, [[2], [1]])

    def bytes_of_earlier_steps(self, name, clean, step):
        """Of the live set at the peak of a step."""
        peak = self.record_case(name, clean).read("peak", "--by", "step", "--range", f"step:{step}..{step}")
        earlier = {f"step {number}" for number in range(step)}
        return sum(group["bytes"] for group in peak["groups"] if group["name"] in earlier)

    def test_old_logits(self):
        """2 x 128 x 2048 float32 logits of the step before: 2 MiB."""
        dirty, clean = (self.bytes_of_earlier_steps("old_logits", clean, 2) for clean in (False, True))
        self.assertGreaterEqual(dirty, 2 << 20)
        self.assertLess(clean, 1 << 16)

    def test_pool_segments(self):
        """Each step leaves the gradients of three pools' inputs: 8 x 4 x (64 x 64 + 32 x 32 + 16 x 16) float32, 688,128 bytes."""
        dirty, clean = (self.bytes_of_earlier_steps("pool_segments", clean, 3) for clean in (False, True))
        self.assertGreaterEqual(dirty, 3 * 688128)
        self.assertLess(clean, 688128)  # not even one step's

    def test_who_holds_the_pools_gradients(self):
        holders = []
        for clean in (False, True):
            run = self.record_case("pool_segments", clean, ("--who-holds",))
            holders.append([(growth["block_bytes"], growth["holder"]) for growth in run.read("leaks")["growth"]])
        held = "global `kept` of __main__ (a list)"
        self.assertEqual(sorted(holders[0]), [(4 * 8 * 4 * side * side, held) for side in (16, 32, 64)])
        self.assertEqual(holders[1], [])

    def test_one_segment(self):
        """checkpoint_sequential with one segment (rasbt/deeplearning-models#74) runs it as it is: there is no region, and no saving."""
        one, none = (self.record(CASES / "whole_model.py", option, name=option[2:]) for option in ("--segment", "--none"))
        self.assertEqual(one.read("recompute")["regions"], [])
        self.assertEqual(one.read("peak")["bytes"], none.read("peak")["bytes"])


class Leaks(CaseTest):
    """Which list of `leaks` has something; a clean twin's are all empty."""

    def assert_leaks(self, name, *lists):
        for clean in (False, True):
            leaks = self.record_case(name, clean).read("leaks")
            found = {key for key in ("values", "unused", "two_dtypes", "growth") if leaks[key]}
            self.assertEqual(found, set() if clean else set(lists), leaks)

    def test_kept_output(self):
        self.assert_leaks("kept_output", "values", "growth")

    def test_kept_recompute(self):
        """tanh's result, 256 x 64 float32, of each of four blocks and three steps: made again, and kept after its last use."""
        self.assert_leaks("kept_recompute", "values")
        values = self.record_case("kept_recompute", False).read("leaks")["values"]
        self.assertEqual({(value["name"], value["kind"], value["bytes"]) for value in values},
                         {(f"Net.blocks.{block}/TanhBackward0.result@1", "remade", 256 * 64 * 4) for block in range(4)})
        self.assertEqual(len(values), 12)

    def test_cycle(self):
        self.assert_leaks("cycle", "growth")

    def test_two_dtypes(self):
        self.assert_leaks("two_dtypes", "two_dtypes")


if __name__ == "__main__":
    unittest.main()
