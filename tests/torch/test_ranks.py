"""`liveset check --distributed`: each broken rule is found where it is broken, and its clean twin is silent; the job stays as it is."""
import json
import socket
import subprocess
import sys
import unittest

from support import JOBS, LIVESET, DryRunTest, FakeRecorder, TorchTest, load_shim

JOB = JOBS / "ranks.py"


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def check(trace):
    """-> exit status, {name of a check: it}"""
    done = subprocess.run([LIVESET, "check", "--distributed", "--format", "json", trace], capture_output=True, text=True, timeout=100)
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


class RanksTest(TorchTest):
    def launched(self, *arguments, ranks=2):
        return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1",
                "--master-port", str(free_port()), JOB, *arguments]

    def two_ranks(self, *arguments):
        run = self.record_command(self.launched(*arguments), {"OMP_NUM_THREADS": "1"}, name="-".join(arguments))
        self.assertEqual(run.status, 0, run.stderr)
        for trace in run.traces():
            self.assert_sound(run, trace)
        status, checks = check(run.trace)
        self.assertEqual(status, 0 if all(each["ok"] for each in checks.values()) else 1)
        return checks

    def one_rank(self, *arguments):
        environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": str(free_port())}
        run = self.record(JOB, *arguments, environment=environment, name="-".join(arguments))
        plain = self.plain([sys.executable, JOB, *arguments], environment)
        self.assertEqual((run.status, run.stdout, run.stderr), (plain.status, plain.stdout, plain.stderr))
        self.assert_sound(run)
        return check(run.trace)[1]

    def assert_silent(self, checks):
        self.assertEqual([finding for each in checks.values() for finding in each["findings"]], [])

    def test_a_rank_that_does_not_checkpoint_a_block(self):
        checks = self.two_ranks("policy", "broken")
        (finding,) = checks["ranks"]["findings"]
        # The region of the first rank that has no twin: its third. What follows on the second rank is known by its module, not its number.
        self.assertEqual((finding["kind"], finding["region"], finding["module"], finding["step"], finding["count"]),
                         ("policy", "Net/checkpoint:2", "Net.blocks.2", 0, 3))
        self.assertEqual(finding["detail"], "rank 1: not checkpointed; rank 0: non_reentrant, with early stop; run 1 time and recomputed 1 time "
                                            "(1 stopped early)")
        self.assertTrue(checks["overlap"]["ok"])

    def test_ranks_that_do_the_same(self):
        checks = self.two_ranks("policy")
        self.assert_silent(checks)
        self.assertEqual(checks["ranks"]["coverage"], {"ranks": 2, "steps": 3, "regions_of_a_step": 4})
        # Three steps of two ranks: four regions, eight gradients.
        self.assertEqual(checks["overlap"]["coverage"], {"recomputes": 24, "reductions": 48, "reductions_of_known_gradients": 48,
                                                         "recomputes_without_parameters": 0})

    def test_another_kind_of_region(self):
        (finding,) = self.two_ranks("kind", "broken")["ranks"]["findings"]
        self.assertEqual((finding["module"], finding["count"]), ("Net.blocks.1", 3))
        self.assertEqual(finding["detail"], "rank 1: reentrant, without early stop; run 1 time and recomputed 1 time; "
                                            "rank 0: non_reentrant, with early stop; run 1 time and recomputed 1 time (1 stopped early)")

    def test_early_stop_on_one_rank(self):
        (finding,) = self.two_ranks("early_stop", "broken")["ranks"]["findings"]
        self.assertEqual(finding["module"], "Net.blocks.0")
        self.assertIn("rank 1: non_reentrant, without early stop;", finding["detail"])
        self.assertTrue(finding["detail"].endswith("; 3 further regions of the step differ"), finding["detail"])

    def test_a_rank_that_recomputes_once_more(self):
        (finding,) = self.two_ranks("again", "broken")["ranks"]["findings"]
        self.assertIn("rank 1: non_reentrant, with early stop; run 1 time and recomputed 2 times", finding["detail"])

    def test_stages_of_a_pipeline(self):
        checks = self.two_ranks("stages")
        self.assert_silent(checks)
        self.assertIn("does not run 8 modules that the other checkpoints", " ".join(checks["ranks"]["notes"]))

    def test_a_reduction_before_the_recompute(self):
        checks = self.one_rank("hooks", "broken")
        found = {(finding["kind"], finding["region"], finding["module"], finding["detail"].split(" was ")[0], finding["count"])
                 for finding in checks["overlap"]["findings"]}
        # The block's first run is recomputed last.
        self.assertEqual(found, {("reduced_before_recompute", "Shared/checkpoint:0", "Shared.block",
                                  f"rank 0: the gradient of Shared.block.0.{name}", 3) for name in ("weight", "bias")})
        self.assert_silent(self.one_rank("hooks"))

    def test_a_recompute_whose_gradients_nothing_reduces(self):
        checks = self.one_rank("between", "broken")
        found = {(finding["kind"], finding["module"]) for finding in checks["overlap"]["findings"]}
        self.assertEqual(found, {("not_reduced_after_recompute", f"Net.blocks.{block}") for block in range(4)})
        self.assertEqual(len(checks["overlap"]["findings"]), 8)  # weight and bias
        self.assert_silent(self.one_rank("between"))

    def test_buckets(self):
        checks = self.two_ranks("ddp")
        self.assert_silent(checks)
        coverage = checks["overlap"]["coverage"]
        # A step has two microbatches of four regions. One bucket is reduced in the first step, then two; they are settled from the third on
        # (or the second: the first backward is the first microbatch's).
        self.assertEqual((coverage["recomputes"], coverage["reductions"]), (2 * 4 * 2 * 4, 2 * (1 + 2 + 2 + 2)))
        self.assertIn(coverage["reductions_of_known_gradients"], (2 * 4, 2 * 6))

    def test_gradients_that_are_views_of_buckets(self):
        checks = self.one_rank("views")
        self.assert_silent(checks)
        self.assertGreaterEqual(checks["overlap"]["coverage"]["reductions_of_known_gradients"], 6)


    def test_a_failing_operation_fails_as_it_would(self):
        path = self.folder / "fails.py"
        path.write_text("""
import sys
import torch
import torch.distributed as dist

class Plain(dist.ProcessGroup):
    pass

torch.ones(1)
(Plain if sys.argv[1] == "subclass" else dist.ProcessGroup)(0, 1).allreduce([torch.ones(2)])
""")
        for kind in ("subclass", "group"):
            run, plain = self.record(path, kind, name=kind), self.plain([sys.executable, path, kind])
            self.assertEqual((run.status, run.stdout, run.stderr), (plain.status, plain.stdout, plain.stderr))
            self.assertIn("No backend type associated", run.stderr)
            self.assertEqual([event["name"] for event in run.read("dump")["events"] if event["kind"] == "collective"], ["all_reduce"])

    def test_sharded_parameters(self):
        checks = self.two_ranks("sharded")
        self.assert_silent(checks)
        # Each region's block is a unit of its own: three steps, two ranks.
        self.assertEqual(checks["overlap"]["coverage"], {"recomputes": 24, "reductions": 24, "reductions_of_known_gradients": 24,
                                                         "recomputes_without_parameters": 0})


class GroupTest(unittest.TestCase):
    """The part of the shim that wraps process groups, with a stand-in recorder, in this interpreter."""

    def setUp(self):
        import torch
        import torch.distributed as dist
        load_shim()
        self.torch, self.group = torch, dist.ProcessGroup
        self.recorder = FakeRecorder()
        self.plain = dict(self.group.__dict__)
        context = sys.modules["_liveset_shim.context"].Context(torch, self.recorder.functions())
        modules = type("Modules", (), {"roots": {}})()
        self.part = sys.modules["_liveset_shim.distributed"].Distributed(context, modules)
        self.part.install()
        self.addCleanup(self.part.uninstall)

    def test_what_an_operation_starts_on_is_stated(self):
        class Mine(self.group):
            def allreduce(self, tensors, options=None):
                return "mine"

        tensor = self.torch.ones(10, 4)[2:4]
        self.assertEqual(Mine(0, 1).allreduce([tensor]), "mine")
        self.assertEqual(self.recorder.of("collective"), [])  # its own is not the wrapped one
        with self.assertRaises(RuntimeError):  # no backend
            self.group(0, 1).allreduce([tensor])
        self.assertEqual(self.recorder.of("collective"), [("collective", 0, 1, tensor.data_ptr(), 32, "all_reduce")])

    def test_a_subclass_that_leaves_the_method_as_it_is(self):
        class Plain(self.group):
            pass

        errors = []
        for wrapped in (True, False):
            if not wrapped:
                self.part.uninstall()
            with self.assertRaises(Exception) as raised:
                Plain(0, 1).allreduce([self.torch.ones(2)])
            errors.append((type(raised.exception), str(raised.exception).splitlines()[0]))
        self.assertEqual(errors[0], errors[1])

    def test_uninstalled_all_is_as_it_was(self):
        self.part.uninstall()
        self.assertEqual({name: self.group.__dict__[name] for name in self.plain}, self.plain)


class DevicesTest(DryRunTest):
    def on_two_devices(self, *arguments):
        run = self.dry_run(JOB, *arguments, environment={"CUDA_VISIBLE_DEVICES": "0,1"}, name="-".join(arguments))
        self.assertEqual((run.status, run.stderr), (0, ""))
        return check(run.trace)

    def test_a_region_over_a_device_boundary(self):
        status, checks = self.on_two_devices("boundary", "broken")
        self.assertEqual(status, 1)
        boundary, movement = checks["devices"]["findings"]
        self.assertEqual((boundary["kind"], boundary["region"], boundary["detail"], boundary["count"]),
                         ("device_boundary", "checkpoint:0", "its blocks lie on cuda:0 and cuda:1", 4))
        # On the second device a recompute makes again what the second Linear saved, the moved input, and what tanh saved: 8 x 64 floats each.
        self.assertEqual((movement["kind"], movement["count"]), ("device_movement", 2))
        self.assertIn("(4,096 bytes) on cuda:1, from inputs on cuda:0", movement["detail"])

    def test_regions_that_keep_to_their_device(self):
        status, checks = self.on_two_devices("boundary")
        self.assertEqual((status, checks["devices"]["findings"], checks["devices"]["coverage"]), (0, [], {"regions": 2, "devices": 2}))


if __name__ == "__main__":
    unittest.main()
