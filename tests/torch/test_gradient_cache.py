"""samples/torch_gradient_cache: equal to the kept graph with real dropout, to the exact demo without, and unequal without restored states."""
import json
import subprocess
import sys
import unittest

from support import ACCEPTANCE, LIVESET, SOURCE, TorchTest

sys.path.insert(0, str(SOURCE / "samples/torch_gradient_cache"))
import cache  # noqa: E402

FACTS = json.loads((ACCEPTANCE / "gradient_cache.json").read_text())
CACHE = SOURCE / "samples/torch_gradient_cache/cache.py"
CHUNKS = (1, 2, 4)


class GradientCacheTest(TorchTest):
    def result(self, *options):
        return cache.step(cache.parse_options([str(option) for option in options]))

    def test_it_equals_the_kept_graph_exactly(self):
        for dropout in (0.1, 0.2, 0.5):
            for chunk in CHUNKS:
                with self.subTest(dropout=dropout, chunk=chunk):
                    result = self.result("--dropout", dropout, "--chunk", chunk)
                    self.assertEqual((result["max_difference"], result["random_state_moved"], result["rows_encoded"]), (0, False, 16))
                    self.assertEqual(result["loss"], result["reference_loss"])

    def test_without_dropout_every_chunk_size_agrees_with_the_exact_demo(self):
        tolerance = FACTS["tolerance"]["absolute"]
        self.assertEqual(tolerance, 1e-15)
        for chunk in CHUNKS:
            case, = (case for case in FACTS["cases"] if (case["seed"], case["chunk"], case["dropout"], case["restore"]) == (31, chunk, 0, True))
            for restore in ("on", "off"):
                with self.subTest(chunk=chunk, restore=restore):
                    result = self.result("--dropout", 0, "--chunk", chunk, "--restore", restore)
                    self.assertEqual(result["max_difference"], 0)
                    self.assertLessEqual(abs(result["loss"] - case["loss"]), tolerance)
                    for ours, theirs in ((result["w1_gradient"], case["dL_dW1"]), (result["w2_gradient"], case["dL_dW2"])):
                        for row, expected in zip(ours, theirs, strict=True):
                            for number, right in zip(row, expected, strict=True):
                                self.assertLessEqual(abs(number - right), tolerance)

    def test_other_masks_make_other_gradients(self):
        for dropout in (0.1, 0.2, 0.5):
            with self.subTest(dropout=dropout):
                result = self.result("--dropout", dropout, "--restore", "off")
                self.assertGreater(result["max_difference"], 0.01)
                self.assertTrue(result["random_state_moved"])
                self.assertEqual(result["loss"], result["reference_loss"])  # the loss is of the first encoding

    def test_recorded(self):
        """The same result, and of each of the four chunks every slot is given up and made again once."""
        for restore in ("on", "off"):
            with self.subTest(restore=restore):
                plain = self.plain([sys.executable, CACHE, "--restore", restore])
                run = self.record(CACHE, "--restore", restore, name=restore)
                self.assertEqual((run.status, run.stdout, run.stderr), (0, plain.stdout, ""))
                start = self.assert_sound(run)["steps"][0]["backward_start"]
                # Four chunks of 2 rows of 3 doubles, and the state of the generator four times.
                self.assertEqual(start["classes"]["checkpoint_input"], 4 * 2 * 3 * 8)
                self.assertEqual(start["classes"]["rng_state"], 4 * 5056 if restore == "on" else 0)
                self.assertEqual(start["classes"]["unattributed"], 0)

    def check(self, *arguments, status):
        done = subprocess.run([LIVESET, "check", "--format", "json", *arguments], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout)["checks"][0]

    def test_a_random_state_that_is_not_restored_is_found_by_both_checks(self):
        runs = {name: self.record(CACHE, *arguments, name=name, options=("--check-replay", "--fingerprint"))
                for name, arguments in (("kept", ["--graph", "kept"]), ("on", ["--restore", "on"]), ("off", ["--restore", "off"]))}
        for run in runs.values():
            self.assertEqual((run.status, run.stderr), (0, ""))
        clean = self.check("--replay", runs["on"].trace, status=0)
        self.assertEqual((clean["findings"], clean["coverage"]["recomputes"]), ([], 4))
        found = self.check("--replay", runs["off"].trace, status=1)["findings"]
        self.assertEqual({(finding["kind"], finding["module"]) for finding in found},
                         {("rng_before", ""), ("rng_after_step", ""), ("value", "Encoder.dropout")})
        self.assertEqual({finding["region"] for finding in found}, {f"checkpoint:{number}" for number in range(4)})

        # The loss, and the gradient and the update of each of the two weights; and the loss of the reference, in a step of its own.
        clean = self.check("--equivalence", runs["kept"].trace, runs["on"].trace, status=0)
        self.assertEqual((clean["coverage"]["compared"], clean["coverage"]["bitwise_equal"]), (6, 6))
        found = self.check("--equivalence", runs["kept"].trace, runs["off"].trace, status=1)["findings"]
        self.assertEqual((found[0]["kind"], found[0]["op"], found[0]["module"], found[0]["step"]), ("value", "gradient", "w1", 0))


if __name__ == "__main__":
    unittest.main()
