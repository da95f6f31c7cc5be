"""Two recordings side by side: what lies between their peaks, in classes that sum to the difference."""
import json
import subprocess
import unittest

from support import ACCEPTANCE, JOBS, LIVESET, SOURCE, DryRunTest, TorchTest, compare, slots_readable

GPT = json.loads((ACCEPTANCE / "torch_gpt_cpu.json").read_text())
TRAIN = SOURCE / "samples/torch_gpt/train.py"
CHAIN = SOURCE / "samples/torch_chain/chain.py"


class CompareTest(TorchTest):
    def recorded(self, script, *arguments, name):
        run = self.record(script, *arguments, name=name)
        self.assertEqual((run.status, run.stderr), (0, ""))
        return run.trace

    def gpt(self, mode):
        return self.recorded(TRAIN, "--checkpoint", mode, name=mode)

    @unittest.skipUnless(slots_readable(), "slots of regions are not readable with this torch")
    def test_with_and_without_checkpoints(self):
        found = compare(self, self.gpt("none"), self.gpt("block"), "--samples", "4")
        peaks = {mode: GPT["modes"][mode]["peak_forward_and_backward"]["later_steps"] for mode in ("none", "block")}
        self.assertEqual(found["difference"], peaks["none"] - peaks["block"])
        gap = found["gap"]
        # One block of four is made again at the peak; all others' values are extra. No class of things that both have differs.
        self.assertGreater(gap["extra_values"], 0)
        self.assertLess(gap["recompute_working_set"], 0)
        self.assertEqual([gap[name] for name in ("static", "rounding", "resized_values", "over_retention", "cached", "communication",
                                                 "outside_allocator", "unattributed")], [0] * 8)
        holds = found["measured"]["composition"]["own_peak"]
        self.assertEqual(gap["extra_values"] + found["values"]["matched_bytes"], holds["activation"] + holds["loss"])
        # What the loss's node has let go of by then is a number of 4 bytes.
        self.assertEqual(holds["activation"], GPT["modes"]["none"]["backward_start"]["activation_bytes"] - 4)
        self.assertTrue(found["same_network"])
        self.assertEqual([step["step"] for step in found["steps"]], [0, 1, 2])
        self.assertEqual(found["steps"][1]["difference"], found["difference"])
        for side in ("measured", "predicted"):
            pace = found[side]["pace"]
            self.assertEqual((pace["steps"], pace["only_the_first"]), (2, False))
            self.assertAlmostEqual(pace["samples_per_second"], 4e9 / pace["median_step_ns"])
        other = found["predicted"]["composition"]["other_peak"]
        self.assertEqual(other["found_by"], "node")
        self.assertEqual(sum(other["classes"].values()), other["bytes"])

    def test_a_step_under_another_policy_against_its_recording(self):
        none = self.gpt("none")
        cases = {"none": "save-all"}
        if slots_readable():
            cases.update({"block": "full", "selective": "selective:AddmmBackward0"})
        for mode, policy in cases.items():
            with self.subTest(mode):
                found = compare(self, none if mode == "none" else self.gpt(mode), none, "--policy", policy, status=0)
                self.assertEqual((found["difference"], found["equal"]), (0, True))
                self.assertEqual({name: bytes for name, bytes in found["gap"].items() if bytes}, {})
                self.assertEqual((found["values"]["missing"], found["values"]["extra"]), (0, 0))
                self.assertEqual([step["difference"] for step in found["steps"][1:]], [0, 0])

    def test_smaller_budget_larger_peak(self):
        """Regions of 1, 2, 3, 4, 6 and 12 of twelve layers: what the forward keeps falls, and the peak falls and rises again."""
        value, state = 4 * 64 * 1024, 5056
        traces = {size: self.recorded(JOBS / "regions.py", "--size", str(size), name=f"size{size}") for size in (1, 3, 4, 12)}
        peaks, kept = {}, {}
        for size, trace in traces.items():
            step = self.record_summary(trace)["steps"][-1]
            peaks[size], kept[size] = step["peak_bytes"], step["backward_start"]["live_bytes"]
        self.assertTrue(kept[1] > kept[3] > kept[4] > kept[12], kept)
        self.assertTrue(peaks[1] > peaks[3] > peaks[4] < peaks[12], peaks)
        found = compare(self, traces[12], traces[3])
        # All of the chain is made again where a quarter was, nine values more; three regions' inputs and random states are not kept.
        self.assertEqual({name: bytes for name, bytes in found["gap"].items() if bytes},
                         {"recompute_working_set": 9 * value, "missing_values": -3 * (value + state)})
        self.assertEqual(found["difference"], 9 * value - 3 * (value + state))

    def record_summary(self, trace):
        return json.loads(subprocess.run([LIVESET, "summary", trace, "--format", "json"], capture_output=True, text=True, timeout=100,
                                         check=True).stdout)

    def test_another_network(self):
        found = compare(self, self.recorded(CHAIN, "--policy", "save-all", name="chain"), self.gpt("none"))
        self.assertEqual((found["same_network"], found["gap"], found["difference"]), (False, None, None))
        self.assertIn("not the same network", found["verdict"])
        self.assertEqual(found["steps"], [])


class CompareDryRunsTest(DryRunTest):
    def test_reserved(self):
        traces = {}
        for mode in ("none", "block"):
            run = self.dry_run(TRAIN, "--device", "cuda", "--preset", "standin", "--sdpa", "eff", "--dtype", "bfloat16", "--checkpoint", mode,
                               name=mode)
            self.assertEqual((run.status, run.stderr), (0, ""))
            traces[mode] = run.trace
        for counter in ("allocated", "reserved", "requested", "active"):
            with self.subTest(counter):
                found = compare(self, traces["none"], traces["block"], "--counter", counter)
                self.assertEqual(found["measured"]["heap"], "cuda:0")
                self.assertGreater(found["difference"], 0)
                self.assertGreater(found["gap"]["extra_values"], 0)
                self.assertEqual(found["gap"]["unattributed"], 0)
                self.assertEqual(found["measured"]["label"], "estimate" if counter == "reserved" else found["predicted"]["label"])
                self.assertEqual(found["measured"]["peak"]["moment_known"], counter in ("allocated", "reserved"))
                same = compare(self, traces["none"], traces["none"], "--counter", counter, status=0)
                self.assertEqual(set(same["gap"].values()), {0})
        self.assertNotEqual(compare(self, traces["none"], traces["block"], "--counter", "reserved")["gap"]["cached"], 0)


if __name__ == "__main__":
    unittest.main()
