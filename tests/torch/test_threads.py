"""Threads: two that train at once, and one that trains while the main thread only waits."""
import unittest

from support import JOBS, TorchTest

PRELUDE = f"""
import sys, threading
sys.path.insert(0, {str(JOBS)!r})
import small, torch
torch.set_num_threads(1)
"""


class ThreadsTest(TorchTest):
    def test_two_threads_that_train_at_once(self):
        run = self.record(PRELUDE + """
torch.zeros(1)
results = {}
ready = threading.Barrier(2)
def work(seed):
    ready.wait()
    results[seed] = small.train(200, 16 + seed, seed)
threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*[len(results[seed]) for seed in (1, 2)], all(loss == loss for losses in results.values() for loss in losses))
""")
        self.assertEqual((run.status, run.stdout, run.stderr), (0, "200 200 True\n", ""))
        summary = self.assert_sound(run)  # no event lost or doubled, conservation at every event
        # Every optimizer step ends a step, but two that follow each other with no forward between them end the same one.
        self.assertGreaterEqual(len(summary["steps"]), 200)
        self.assertLessEqual(len(summary["steps"]), 400)
        backwards = sum(len(step["backwards"]) for step in summary["steps"]) + summary.get("steps_and_backwards_left_out", 0)
        self.assertEqual(backwards, 400)

    WAITS = f"""
import sys, threading
sys.path.insert(0, {str(JOBS)!r})
def work():
    import small
    small.train(3)
    END
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""

    def python_source(self, run):
        self.assertEqual((run.status, run.stdout, run.stderr), (0, "", ""))
        self.assert_sound(run)
        source, = (source for source in run.read("info")["sources"] if source["name"] == "python")
        return source

    def test_a_main_thread_that_waits_lets_the_hooks_in_late_and_the_trace_says_so(self):
        source = self.python_source(self.record(self.WAITS.replace("END", "pass")))
        self.assertRegex(source["cannot_see"], r"let the hooks in \([\d,]{2,} of torch's allocations and frees\)")

    def test_a_main_thread_that_waits_to_the_end(self):
        source = self.python_source(self.record(self.WAITS.replace("END", "import ctypes; ctypes.CDLL(None).exit(0)")))
        self.assertEqual(source["covers"], "nothing")
        self.assertIn("the main thread ran no Python code after torch's first block", source["cannot_see"])

    def test_module_scopes_are_per_thread(self):
        run = self.record(PRELUDE + """
torch.zeros(1)
inside, done = threading.Event(), threading.Event()
class Waits(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        inside.set()
        done.wait()
        return self.layer(x)
waits = threading.Thread(target=lambda: Waits()(torch.ones(2, 4)))
waits.start()
inside.wait()
small.train(1)
done.set()
waits.join()
""")
        self.assertEqual((run.status, run.stderr), (0, ""))
        self.assert_sound(run)
        names = {group["name"] for group in run.read("peak", "--by", "module")["groups"]}
        self.assertFalse([name for name in names if name.startswith("Waits.Sequential")], names)


if __name__ == "__main__":
    unittest.main()
