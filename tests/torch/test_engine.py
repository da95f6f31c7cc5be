"""The nodes that backward runs, as the trace has them, against hooks that the job itself puts on its nodes."""
import collections
import json
import sys
import unittest

from support import JOBS, TorchTest, slots_readable

JOB = JOBS / "engine.py"
ENGINE = ("node_begin", "node_end")


# A node of Python's at the root and another inside; slots that are lists, undefined, of a parameter, packed by a hook of the job's,
# and of a double; a leaf that is no parameter. Prints how many nodes of each graph the recorder has left to Python.
GRAPHS = """
import sys
import torch
import torch.nn as nn

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.linear = nn.Conv1d(2, 2, 3, bias=False), nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.ones(6))
    def forward(self, x):
        x = self.convolution(x)
        x = torch.cat([x, Twice.apply(x.tanh())])
        x = self.linear(x).sigmoid() * self.scale
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (t.clone(), 1), lambda packed: packed[0]):
            x = (x.exp() * x).double()
        a, b = x.chunk(2)
        return Twice.apply(((a * b).sin() + a * a).sum())

model = Net()
with torch.no_grad():
    model.linear(torch.ones(6))
graph = next(part for part in sys.modules["_liveset_shim"]._installed if type(part).__name__ == "Engine").graph
left = []
reach = graph._reach
graph._reach = lambda roots: (found := reach(roots), left.append(len(found[0])))[0]
for step in range(12):
    torch.manual_seed(0)
    model(torch.rand(2, 8, requires_grad=True).unsqueeze(0)).backward()
print(int(graph.packed is not None), *left)
"""


class EngineTest(TorchTest):
    def recorded(self, case, sound=True):
        """-> (what the job's own hooks saw, the trace's events)"""
        run = self.record(JOB, case)
        self.assertEqual(run.status, 0, run.stderr)
        self.assertEqual(run.stderr, "")
        if sound:
            self.assert_sound(run)
        return [tuple(entry) for entry in json.loads(run.stdout)], run.read("dump")["events"]

    def nodes(self, events, kind="node_begin"):
        return [(event["name"], event["number"]) for event in events if event["kind"] == kind]

    def balanced(self, events):
        """Every node of every thread ends, and the innermost first."""
        open_nodes = collections.defaultdict(list)
        for event in events:
            node = event["name"] if event["kind"] in ENGINE else None, event.get("number")
            if event["kind"] == "node_begin":
                open_nodes[event["tid"]].append(node)
            elif event["kind"] == "node_end":
                self.assertEqual(open_nodes[event["tid"]].pop(), node)
        self.assertFalse(any(open_nodes.values()), open_nodes)

    def test_nodes_in_the_order_in_which_they_run(self):
        ran, events = self.recorded("plain")
        self.assertEqual([entry[1:] for entry in ran], self.nodes(events))
        self.assertIn("TwiceBackward", [name for _, name, _ in ran])
        self.assertIn(("AccumulateGrad", -1), self.nodes(events))
        self.balanced(events)

    def test_numbers_of_the_walk_are_those_of_the_engine(self):
        ran, events = self.recorded("plain")
        walked = self.nodes(events, "graph_node")
        self.assertEqual(set(walked) - set(self.nodes(events)), set())
        self.assertEqual(len(walked), len(set(walked)))
        # Of the nodes that ran: the product of the sum and the tanh save what they were given, the matrix product its two factors.
        slots = collections.defaultdict(list)
        node = None
        for event in events:
            if event["kind"] == "graph_node":
                node = event["name"]
            elif event["kind"] == "keep":
                self.assertTrue(event["name"].startswith(f"{node}."), (node, event["name"]))
                self.assertEqual(event["dtype"], "float32")
                slots[node].append(event["name"])
        self.assertEqual({node: len(names) for node, names in slots.items()},
                         {"MulBackward0": 2, "TwiceBackward": 1, "TanhBackward0": 1, "MmBackward0": 1, "AccumulateGrad": 1})

    def test_a_backward_inside_of_a_node(self):
        ran, events = self.recorded("nested")
        self.assertEqual([entry[1:] for entry in ran], self.nodes(events))
        self.balanced(events)
        kinds = [(event["kind"], event["name"]) for event in events if event["kind"] in ENGINE]
        outer = kinds.index(("node_begin", "InnerBackward")), kinds.index(("node_end", "InnerBackward"))
        inside = [name for kind, name in kinds[outer[0] + 1:outer[1]] if kind == "node_begin"]
        self.assertEqual(inside, ["SumBackward0", "MulBackward0", "SinBackward0", "AccumulateGrad"])

    def test_a_node_that_raises_has_no_end(self):
        ran, events = self.recorded("fails")
        self.assertIn("the job's own error", [name for _, name, _ in ran])
        self.assertEqual([entry[1:] for entry in ran if entry[1] != "the job's own error"], self.nodes(events))
        begun, ended = collections.Counter(self.nodes(events)), collections.Counter(self.nodes(events, "node_end"))
        self.assertEqual([name for name, _ in begun - ended], ["FailsBackward"])
        self.assertFalse(ended - begun)
        # The backward that failed is over before the next one begins.
        marks = [event["kind"] for event in events if event["kind"] in ("backward_begin", "backward_end")]
        self.assertEqual(marks, ["backward_begin", "backward_end"] * 2)

    def test_two_threads_each_with_graphs_of_its_own(self):
        ran, events = self.recorded("threads")
        of_thread = collections.defaultdict(list)
        for thread, *node in ran:
            of_thread[thread].append(tuple(node))
        of_tid = collections.defaultdict(list)
        for event in events:
            if event["kind"] == "node_begin":
                of_tid[event["tid"]].append((event["name"], event["number"]))
        self.assertEqual(sorted(map(tuple, of_thread.values())), sorted(map(tuple, of_tid.values())))
        self.assertEqual(len(of_tid), 3)
        self.balanced(events)

    def test_a_graph_that_is_dropped_runs_nothing(self):
        ran, events = self.recorded("dropped")
        self.assertEqual([entry[1:] for entry in ran], self.nodes(events))
        self.assertEqual(len([event for event in events if event["kind"] == "backward_begin"]), 1)

    def test_a_part_of_a_graph(self):
        ran, events = self.recorded("partial")
        # What leads nowhere that is wanted is not computed, though the engine looks at it.
        self.assertLess({entry[1:] for entry in ran} - set(self.nodes(events)), {("", 0)})
        self.assertIn("SinBackward0", [name for _, name, _ in ran])
        self.assertNotIn("ExpBackward0", [name for _, name, _ in ran])
        self.balanced(events)

    def test_slots_that_wait_for_a_checkpoint_region(self):
        ran, events = self.recorded("checkpointed")
        self.assertEqual([entry[1:] for entry in ran], self.nodes(events))
        uses = [(event["name"], event["index"], event["scope"]) for event in events if event["kind"] == "use"]
        if not slots_readable():
            self.assertEqual(uses, [])
            self.skipTest("this torch shows a slot only by running its hooks")
        # The region saves the product's two factors, then tanh's result, then exp's; the graph is walked from its end.
        self.assertEqual([index for _, index, _ in sorted(uses, key=lambda use: use[1])], [0, 1, 2, 3])
        self.assertEqual({name.split(".")[0] for name, _, _ in uses}, {"MmBackward0", "TanhBackward0", "ExpBackward0"})
        self.assertEqual({scope.rsplit("/")[-1] for _, _, scope in uses}, {"checkpoint:0"})

    def test_slots_are_read_alike_by_whatever_reads_them(self):
        """After a few graphs slots are read past Python, by torch's C interface: the same storages, sizes and dtypes."""
        ran, events = self.recorded("many")
        begins = [index for index, event in enumerate(events) if event["kind"] == "backward_begin"]
        last = events[begins[-2]:begins[-1]]
        kept = [(event["name"], event["address"], event["bytes"], event["dtype"]) for event in last
                if event["kind"] == "keep" and not event["name"].startswith("AccumulateGrad")]
        self.assertEqual(collections.Counter(kept), collections.Counter(ran))
        self.assertGreater(len({dtype for _, _, _, dtype in kept}), 3)

    def test_a_graph_is_stated_alike_by_whoever_walks_it(self):
        """The first graphs are walked in Python, until the recorder knows where nodes have their edges and slots."""
        run = self.record(GRAPHS)
        self.assertEqual((run.status, run.stderr), (0, ""))
        self.assert_sound(run)
        stated, node = [], None
        for event in run.read("dump")["events"]:
            if event["kind"] == "phase" and event["phase"] == "forward":
                stated.append(collections.Counter())
            elif event["kind"] == "graph_node":
                node = event["name"]
            elif event["kind"] == "keep" or event["kind"] == "offload":
                stated[-1][event["kind"], node, event["name"], event["bytes"], event["class"], event.get("dtype")] += 1
            elif event["kind"] == "backward_begin":
                stated[-1]["nodes", event["number"]] += 1
        stated = stated[-12:]
        for one in stated[1:]:
            self.assertEqual(one, stated[-1])
        names = {key[2] for key in stated[-1] if len(key) > 2}
        self.assertLessEqual({"TwiceBackward.saved_tensors", "TanhBackward0.result", "ConvolutionBackward0.input"}, names)
        if run.stdout.split()[0] == "0":  # a torch whose slots can be read as they are
            self.assertIn("ExpBackward0.result", names)
            by_python = [int(number) for number in run.stdout.split()[1:]]
            self.assertEqual(by_python[1], by_python[0])
            self.assertLess(by_python[-1], by_python[0] / 2)

    def test_the_job_is_as_without(self):
        for case in ("plain", "nested", "fails", "partial", "checkpointed"):
            with self.subTest(case):
                self.assertEqual(self.record(JOB, case).stdout, self.plain([sys.executable, JOB, case]).stdout)


if __name__ == "__main__":
    unittest.main()
