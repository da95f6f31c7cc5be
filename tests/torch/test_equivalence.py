"""`run --fingerprint` and `check A B --equivalence`: what was computed is known by its bits, and the first tensor that differs is named."""
import json
import struct
import subprocess
import sys
import unittest

import support

JOB = support.JOBS / "fingerprint.py"


class EquivalenceTest(support.TorchTest):
    def fingerprint(self, *arguments, options=()):
        name = "_".join(arguments + options) or "plain"
        run = self.record(JOB, *arguments, options=("--fingerprint", *options), name=name)
        self.assertEqual((run.status, run.stderr), (0, ""))
        self.assert_sound(run)
        return run

    def compare(self, one, other, status):
        done = subprocess.run([support.LIVESET, "check", "--equivalence", "--format", "json", one.trace, other.trace],
                              capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout)["checks"][0]


class Equivalence(EquivalenceTest):
    def test_checkpointing_changes_no_bit_and_a_lost_random_state_does(self):
        plain, kept, lost = (self.fingerprint(*arguments) for arguments in ((), ("--checkpoint",), ("--checkpoint", "--no-restore")))
        alone = self.plain([sys.executable, JOB])
        self.assertEqual(plain.stdout, alone.stdout)  # the job computes what it computes alone
        check = self.compare(plain, kept, 0)
        # 3 steps of a loss, 6 gradients and 6 parameters.
        self.assertEqual((check["coverage"]["compared"], check["coverage"]["bitwise_equal"]), (39, 39))
        check = self.compare(plain, lost, 1)
        first = check["findings"][0]
        # The forward was the same, so the first loss is; `early` is called before `late`, though it was made after it.
        self.assertEqual((first["kind"], first["op"], first["module"], first["step"]), ("value", "gradient", "block.early.weight", 0))
        # 4 rows go into the model, and no parameter has a side longer than 8.
        self.assertEqual(check["coverage"]["reduction_length"], 32)

    def test_another_model_and_numbers_that_are_not_finite(self):
        plain, wider, broken = (self.fingerprint(*arguments) for arguments in ((), ("--wider",), ("--nan",)))
        shapes = [finding for finding in self.compare(plain, wider, 1)["findings"] if finding["detail"].endswith("of another shape")]
        self.assertIn("head.weight", {finding["module"] for finding in shapes})
        check = self.compare(plain, broken, 1)
        self.assertEqual((check["findings"][0]["op"], check["findings"][0]["step"]), ("loss", 1))
        self.assertIn("0 elements are not finite in one and 1 in the other", check["findings"][0]["detail"])
        self.assertEqual(check["coverage"]["not_finite_a"], 0)

    def test_whole_values_make_the_difference_exact(self):
        plain, other = (self.fingerprint(*arguments, options=("--fingerprint-values",)) for arguments in ((), ("--other-order",)))
        check = self.compare(plain, other, 0)  # rounded otherwise, within the tolerance
        different = check["coverage"]["compared"] - check["coverage"]["bitwise_equal"]
        self.assertGreater(different, 0)
        self.assertEqual(check["coverage"]["measured_exactly"], different)
        folder = plain.trace.parent / f"{plain.trace.name}.values"
        index = json.loads((folder / "index.json").read_text())
        entry = next(entry for entry in index["tensors"] if entry["what"] == "loss" and entry["step"] == 1)
        loss, = struct.unpack("<f", (folder / entry["file"]).read_bytes())
        self.assertEqual(loss, float(plain.stdout.splitlines()[1]))

    def test_a_trace_without_fingerprints_is_refused(self):
        bare = self.record(JOB, name="bare")
        done = subprocess.run([support.LIVESET, "check", "--equivalence", bare.trace, bare.trace], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 2)
        self.assertIn("recorded without --fingerprint", done.stderr)


if __name__ == "__main__":
    unittest.main()
