"""A public model, dry-run on the GPU that it was trained on, beside the memory snapshots that its author published."""
import json
import pickle
import unittest

from support import JOBS, SOURCE, DryRunTest, compare

FOLDER = SOURCE.parent / "shared/realfiles/pickle"
# Snapshot, what the job does, and two facts of the snapshot that were worked out by others: what was allocated when it began, its peak.
CASES = [
    ("Wedsonlin__assignment2-systems__results_medium_128_training_memory_snapshot.pickle", ["training", "128"], 5095321600, 7013335044),
    ("Wedsonlin__assignment2-systems__results_medium_512_inference_memory_snapshot.pickle", ["inference", "512", "--autocast"],
     1701482496, 1949343744),
]


class _NoCode(pickle.Unpickler):
    """Snapshots hold dictionaries, lists, numbers and strings: nothing of a file from elsewhere is run."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"a snapshot has no {module}.{name}")


def allocations_in(path):
    """Requested sizes, in order."""
    with open(path, "rb") as file:
        traces = _NoCode(file).load()["device_traces"]
    return [entry["size"] for entry in traces[0] if entry["action"] == "alloc"]


@unittest.skipUnless(FOLDER.is_dir(), f"the public snapshots are not here ({FOLDER})")
class SnapshotTest(DryRunTest):
    def test_medium_transformer(self):
        runs = self.side_by_side({
            name: lambda name=name, arguments=arguments: self.dry_run(JOBS / "medium_transformer.py", *arguments, gpu="a100-80", name=name)
            for name, arguments, _, _ in CASES})
        for name, arguments, baseline, peak in CASES:
            with self.subTest(snapshot=name):
                run = runs[name]
                self.assertEqual(run.status, 0, run.stderr)
                ours, real = json.loads(run.stdout), allocations_in(FOLDER / name)
                in_order = sum(a == b for a, b in zip(ours["allocations"], real)) / max(len(real), len(ours["allocations"]))
                difference = ours["peak_requested"] / peak - 1
                print(f"{' '.join(arguments)}: {in_order:.4%} of {len(real):,} allocations equal in order, requested peak {difference:+.4%}")
                self.assertEqual(ours["baseline_requested"], baseline)
                self.assertLess(abs(difference), 0.001)
                self.assertGreater(in_order, 0.99)
                self.compared_by_classes(FOLDER / name, run.trace, ours["peak_requested"] - peak)

    def compared_by_classes(self, snapshot, trace, difference):
        """The snapshot counts requested bytes, so that counter is taken; reserved is the other one that both have."""
        found = compare(self, snapshot, trace, "--max-error", "0.1%", status=0)
        self.assertEqual((found["measured"]["peak"]["counter"], found["difference"]), ("requested", -difference))
        self.assertGreater(found["paired_by_size"], 100)
        # Nearly every block of the one has its partner in the other: no class hides a difference behind another one.
        for name, size in found["gap"].items():
            self.assertLess(abs(size), 0.005 * found["measured"]["peak"]["bytes"], name)
        reserved = compare(self, snapshot, trace, "--counter", "reserved", "--max-error", "1%", status=0)
        print(f"reserved {reserved['peak_error']:+.3%}, of it cached {reserved['gap']['cached']:,}")
        self.assertEqual(reserved["predicted"]["label"], "estimate")


if __name__ == "__main__":
    unittest.main()
