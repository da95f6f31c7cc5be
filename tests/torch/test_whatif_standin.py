"""The closed loop on the stand-in device: ONE step without checkpointing says what every other mode takes of each counter. Measured is
what PyTorch's own caching allocator counted in a step of that mode. Of samples/torch_gpt: test_dryrun_gpt.py."""
import unittest

from support import COUNTERS, JOBS, DryRunTest, counted_peaks, predicted_peaks
from test_whatif import FIRST_MODE, NETWORKS, policies, recorded_modes

JOB = JOBS / "closed_loop.py"


class ClosedLoopTest(DryRunTest):
    def test_every_counter_of_the_networks(self):
        arguments, steps = {}, {}
        for network in NETWORKS:
            arguments[network], steps[network] = recorded_modes(network, policies(network))
        runs = self.side_by_side({network: lambda network=network: self.dry_run(JOB, *arguments[network], "cuda", name=network) for network in NETWORKS})
        for network, run in runs.items():
            chosen = policies(network)
            self.assertEqual((run.status, run.stderr), (0, ""))
            self.assertEqual(len(self.assert_sound(run)["steps"]), 3 * len(chosen))
            found, estimates = predicted_peaks(run, chosen.values(), *FIRST_MODE)
            for mode, policy in chosen.items():
                with self.subTest(network=network, mode=mode):
                    counted = counted_peaks(run, steps[network][mode])
                    # Nothing tells what was asked for of a temporary: up to 511 bytes less than its block.
                    excess = found[policy].pop("requested") - counted.pop("requested")
                    self.assertTrue(0 <= excess < 1024, excess)
                    self.assertTrue(estimates[policy, "requested"] or excess == 0)
                    # What a region's forward let go, and when, is not recorded; reserved depends on it.
                    self.assertEqual([estimates[policy, counter] for counter in COUNTERS[1:]], [False, False, mode != "none"])
                    self.assertEqual(found[policy], counted)


if __name__ == "__main__":
    unittest.main()
