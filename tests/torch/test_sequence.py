"""Which node of autograd a block is of, and which a module makes, against what the nodes themselves say in the job."""
import json
import sys
import unittest

from support import JOBS, SOURCE, TorchTest

JOB = JOBS / "sequence.py"
# Slots that hold what the node's own operator made.
OUTPUTS = {"NativeLayerNormBackward0.result1", "NativeLayerNormBackward0.result2", "SoftmaxBackward0.result", "LogSoftmaxBackward0.result",
           "NllLossBackward0.total_weight"}


class Follower:
    """Follows a trace's threads: at each block and each end of a scope, the number of its thread's next node."""

    def __init__(self, events):
        self.next, self.blocks, self.scopes, self.slots, self.repeated = {}, {}, [], [], 0
        node = step = None
        open_scopes = {}
        for event in events:
            kind, thread = event["kind"], event["tid"]
            if kind == "sequence":
                self.repeated += self.next.get(thread) == event["number"]
                self.next[thread] = event["number"]
            elif kind == "alloc":
                self.blocks[event["address"]] = thread, self.next[thread] - 1, step
            elif kind == "scope_begin":
                open_scopes.setdefault(thread, []).append(self.next[thread])
            elif kind == "scope_end":
                self.scopes.append((event["scope"], open_scopes[thread].pop(), self.next[thread]))
            elif kind == "step_begin":
                step = event["number"]
            elif kind == "graph_node":
                node = event["number"]
            elif kind == "keep" and event["address"] in self.blocks:
                _, number, made = self.blocks[event["address"]]
                if made == step:
                    self.slots.append((event["name"], number, node))


class SequenceTest(TorchTest):
    def follow(self, case):
        """-> (what the job said, the followed trace)"""
        run = self.record(JOB, case)
        self.assertEqual(run.status, 0, run.stderr)
        self.assert_sound(run)
        return json.loads(run.stdout), Follower(run.read("dump")["events"])

    def check_blocks(self, said, followed, count):
        wanted = [(tag, number) for _, number, tag in said["blocks"]]
        self.assertEqual(wanted, [(tag, followed.blocks[hex(address)][1]) for address, _, tag in said["blocks"]])
        self.assertEqual(len(wanted), count)
        self.assertEqual(followed.repeated, 0)

    def test_blocks_are_of_the_node_of_their_operator(self):
        said, followed = self.follow("forward")
        # Twice two layers of two and a custom function; what is made inside of the function, the first time.
        self.check_blocks(said, followed, 2 * 5 + 1)

    def test_modules_have_the_nodes_that_they_made(self):
        said, followed = self.follow("forward")
        layers = [[first, end] for path, first, end in followed.scopes if path.split("/")[-1] in ("layers.0", "layers.1")]
        self.assertEqual(layers, said["layers"])
        self.assertEqual(len(layers), 4)
        self.assertGreater(layers[1][0], layers[0][0])

    def test_a_recompute_makes_nodes_anew(self):
        self.check_blocks(*self.follow("recompute"), 4)

    def test_a_reentrant_region_is_one_node_until_it_is_recomputed(self):
        self.check_blocks(*self.follow("reentrant"), 4)

    def test_each_thread_counts_for_itself(self):
        said, followed = self.follow("threads")
        self.assertEqual(sorted(len(blocks) for blocks in said["threads"].values()), [1, 2, 3, 5])
        for thread, blocks in said["threads"].items():
            self.assertEqual([(int(thread), number) for _, number in blocks], [followed.blocks[hex(address)][:2] for address, _ in blocks])
            self.assertEqual(blocks[0][1], 0)

    def test_outputs_that_the_graph_of_a_gpt_holds(self):
        run = self.record_command([sys.executable, SOURCE / "samples/torch_gpt/train.py", "--steps", "2"])
        followed = Follower(run.read("dump")["events"])
        outputs = [slot for slot in followed.slots if slot[0] in OUTPUTS]
        self.assertEqual({name for name, _, _ in outputs}, OUTPUTS)
        self.assertEqual([slot for slot in outputs if slot[1] != slot[2]], [])
        self.assertEqual(len(outputs), 2 * (2 * 9 + 4 + 2))  # nine norms, four attentions and the loss, in two steps
        # What a node holds of others was made by nodes before it.
        inputs = [slot for slot in followed.slots if slot[0] not in OUTPUTS]
        self.assertEqual([slot for slot in inputs if slot[1] >= slot[2]], [])
        self.assertGreater(len(inputs), 50)


if __name__ == "__main__":
    unittest.main()
