"""`liveset run --who-holds`: the Python references that hold tensors, by name; the job stays as it is."""
import json
import os
import subprocess
import sys
import types
import unittest

from support import LIVESET, DryRunTest, Run, TorchTest, load_shim

JOB = """
import gc, sys, torch, weakref
torch.set_num_threads(1)
torch.manual_seed(0)
gc.disable()
cache = []

class Keeper:
    kept = None

def main():
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    keeper, gone = Keeper(), []
    for step in range(3):
        output = model(torch.randn(32, 64))
        cache.append(output.detach() + 1)
        keeper.last = output.detach() * 2
        odd = Keeper()
        odd.itself, odd.lost = odd, output.detach() * 3
        del odd
        Keeper.kept = output.detach() * 4
        inner = output.detach() * 5
        passing = torch.ones(7)
        gone.append(weakref.ref(passing))
        loss = output.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del passing
        assert gone[-1]() is None, "something keeps the tensor of a name that was deleted"
        keeper.call = lambda: inner
    print(float(loss.detach()), float(model.weight.detach().sum()))

main()
"""


class HoldersTest(TorchTest):
    def who_holds(self, script, *options):
        path = self.folder / "job.py"
        path.write_text(script)
        trace = self.folder / "run.liveset"
        done = subprocess.run([LIVESET, "run", "-q", *options, "-o", trace, "--", sys.executable, path], capture_output=True, text=True,
                              timeout=280, cwd=self.folder, env={**os.environ, "LIVESET_WHO_HOLDS_SECONDS": "100"})
        return Run(done, trace)

    def events(self, run, kind):
        done = subprocess.run([LIVESET, "dump", "--format", "json", run.trace], capture_output=True, text=True, timeout=100)
        return [event for event in json.loads(done.stdout)["events"] if event["kind"] == kind]

    def test_names(self):
        run = self.who_holds(JOB, "--who-holds=1")
        plain = self.plain([sys.executable, self.folder / "job.py"])
        self.assertEqual((run.status, run.stdout, run.stderr), (plain.status, plain.stdout, plain.stderr))
        self.assert_sound(run)
        names = {event["name"] for event in self.events(run, "holder")}
        for name in ("global `cache` of job.py (a list)", "local `keeper` of main() in job.py (attribute `last` of Keeper)",
                     "attribute `lost` of Keeper (only a reference cycle was found)",
                     "global `Keeper` of job.py (attribute `kept` of class Keeper)", "local `output` of main() in job.py",
                     "local `passing` of main() in job.py"):
            self.assertIn(name, names)
        # Neither the model's nor the optimizer's: 64 x 64 floats would be a weight, its gradient or its momentum.
        self.assertEqual([event for event in self.events(run, "holder") if event["bytes"] == 64 * 64 * 4], [])
        # Each of the three of `cache`, found at the end, is another storage.
        found = [event["address"] for event in self.events(run, "holder") if event["name"].startswith("global `cache`")]
        self.assertEqual(len(set(found)), 3)

    def test_leaks_shows_the_holder(self):
        run = self.who_holds("""
import torch
torch.set_num_threads(1)
kept = []
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    hidden = model[1](model[0](torch.ones(32, 64)))
    kept.append(hidden)
    model[2](hidden).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    del hidden
""", "--who-holds=1")
        self.assert_sound(run)
        values = [leak for leak in run.read("leaks")["values"] if leak["bytes"] == 32 * 64 * 4]
        self.assertEqual({leak["holder"].replace("__main__", "job.py") for leak in values}, {"global `kept` of job.py (a list)"})
        self.assertEqual(len(values), 4)

    def test_without_the_option_nothing_is_looked_for(self):
        run = self.who_holds(JOB)
        self.assert_sound(run)
        self.assertEqual(self.events(run, "holder"), [])

    def test_every_tenth_step_and_the_end(self):
        script = "import torch\ncache = torch.ones(999)\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters())\n" \
                 "for _ in range(13):\n    model(torch.ones(1, 2)).sum().backward()\n    optimizer.step()\n"
        run = self.who_holds(script, "--who-holds")
        self.assert_sound(run)
        # After the second and the twelfth step, and at the end.
        self.assertEqual(len([event for event in self.events(run, "holder") if event["bytes"] == 999 * 4]), 3)
        said = json.loads(next(event["text"] for event in self.events(run, "attribute") if event["name"] == "liveset.who_holds"))
        self.assertEqual(said["scans"], 3)

    def test_a_number_that_is_none(self):
        for text in ("0", "-1", "x", "1.5"):
            run = self.who_holds("print('ran')", f"--who-holds={text}")
            self.assertEqual((run.status, run.stdout), (2, ""), text)


class ScanTest(unittest.TestCase):
    """The scan by itself, in this interpreter."""

    def setUp(self):
        import torch
        self.torch = torch
        self.scan = load_shim() and sys.modules.get("_liveset_shim.scan")

    def names(self, size, most_seconds=1e9):
        found = []

        def state(tensor, names):
            if tensor.numel() == size:
                found.extend(names)
        whole = self.scan.Scan(self.torch, most_seconds).run(state)
        return found, whole

    def test_a_closure_and_a_generator(self):
        def close():
            kept = self.torch.ones(1237)
            return lambda: kept

        def generate():
            kept = self.torch.ones(1249)
            yield 1
            yield kept

        closure, generator = close(), generate()
        next(generator)
        # The innermost name is the function's or the generator's, the outer one where these stand.
        where = "test_a_closure_and_a_generator() in test_holders.py"
        self.assertEqual(self.names(1237)[0], [f"local `closure` of {where} (closure of <lambda>())"])
        self.assertEqual(self.names(1249)[0], [f"local `generator` of {where} (local of generate(), which is suspended)"])
        del closure, generator

    def test_a_traceback(self):
        def fail():
            kept = self.torch.ones(1259)
            raise ValueError(kept.numel())
        try:
            fail()
        except ValueError as error:
            self.kept_error = error
        names, _ = self.names(1259)
        self.assertEqual(names, ["local `kept` of fail() in test_holders.py, kept by its frame"])
        del self.kept_error

    def test_slots_and_deep_containers(self):
        class Slots:
            __slots__ = ("part",)
        slots = Slots()
        slots.part = self.torch.ones(1277)
        deep = [[[self.torch.ones(1279)]]]
        where = "test_slots_and_deep_containers() in test_holders.py"
        self.assertEqual(self.names(1277)[0], [f"local `slots` of {where} (attribute `part` of Slots)"])
        self.assertEqual(self.names(1279)[0], [f"local `deep` of {where} (a list)"])
        too_deep = [[[[[self.torch.ones(1283)]]]]]
        self.assertEqual(self.names(1283)[0], ["a list"])  # what is beyond the four levels is not known
        del too_deep

    def test_no_time(self):
        held = [self.torch.ones(1289)]
        names, whole = self.names(1289, 0)
        self.assertEqual((names, whole), ([], False))
        del held

    def test_locals_that_a_job_has_taken_stay(self):
        kept = self.torch.ones(1291)
        mine = locals()
        self.names(1291)
        self.assertIs(mine["kept"], kept)

    def test_nothing_is_kept(self):
        import weakref
        kept = self.torch.ones(1297)
        watch = weakref.ref(kept)
        box = types.SimpleNamespace(kept=kept)
        self.names(1297)
        del kept, box
        self.assertIsNone(watch())


class StreamTest(DryRunTest):
    def test_record_stream_is_stated(self):
        path = self.folder / "job.py"
        path.write_text("""
import torch
side = torch.cuda.Stream()
x = torch.ones(1 << 20, device="cuda")
x.record_stream(side)
print(side.stream_id)
del x
""")
        run = self.dry_run(path, options=("--who-holds",))
        self.assertEqual((run.status, run.stderr), (0, ""))
        done = subprocess.run([LIVESET, "dump", "--format", "json", run.trace], capture_output=True, text=True, timeout=100)
        held = [event for event in json.loads(done.stdout)["events"] if event["kind"] == "holder"]
        self.assertEqual([(event["name"], event["bytes"]) for event in held],
                         [(f"stream {run.stdout.strip()}, by record_stream", 4 << 20)])

    def test_what_waits_for_a_stream_is_sampled(self):
        path = self.folder / "job.py"
        path.write_text("""
import torch
side = torch.cuda.Stream()
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
for step in range(2):
    x = torch.ones(1 << 20, device="cuda")
    model(x[:64]).sum().backward()
    x.record_stream(side)
    del x
    optimizer.step()  # allocates nothing, so nothing asks whether the stream has got there
""")
        run = self.dry_run(path, options=("--who-holds",))
        self.assertEqual((run.status, run.stderr), (0, ""))
        leaks = run.read("leaks")
        self.assertEqual([(figure["heap"], figure["bytes"], figure["sampled"]) for figure in leaks["streams"]], [("cuda:0", 4 << 20, True)])
        self.assertEqual(len(leaks["stream_names"]), 1)
        counters = run.summary()["counters"]["cuda:0"]
        waiting = counters["waiting_for_streams"]
        self.assertEqual((waiting["peak"], waiting["sampled"], waiting["label"]), (4 << 20, True, "estimate"))


if __name__ == "__main__":
    unittest.main()
