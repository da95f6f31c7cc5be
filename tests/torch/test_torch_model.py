"""`liveset model --torch`: a step on fake tensors beside the same step, recorded. The model file is replayed here, by code of its own."""
import argparse
import contextlib
import functools
import io
import json
import re
import sys
import unittest
import warnings

import torch
import torch.nn as nn
from support import ACCEPTANCE, JOBS, LIVESET, SOURCE, DryRunTest, TorchTest
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(SOURCE / "viewer/model/torch"))
from liveset_fake.failure import Failure  # noqa: E402
from liveset_fake.step import model_of  # noqa: E402

sys.path.pop(0)

MODELS = JOBS / "fake_models.py"
FACTS = json.loads((ACCEPTANCE / "torch_gpt_cpu.json").read_text())
EXACT = torch.__version__.startswith("2.14.1")  # what the facts and the sizes that kernels.py knows were measured with
LATER = 1 << 30
PHASES = ("forward", "loss", "recompute", "backward")
FIELD = re.compile(r'(\w+): (\[(?:"[^"]*"(?:, )?)*\]|"[^"]*"|[^\s]+)')


class Model:
    """The general form, as text of one item a line."""

    def __init__(self, text):
        self.text = text
        self.items = {"tensor": [], "op": [], "static_storage": []}
        for line in text.splitlines():
            found = re.match(r"\s*(tensor|op|static_storage) \{ (.*) \}$", line)
            if found:
                fields = {key: re.findall(r'"([^"]*)"', value) if value[0] == "[" else value.strip('"')
                          for key, value in FIELD.findall(found[2])}
                self.items[found[1]].append(fields)
        self.bytes = {tensor["id"]: int(tensor["bytes"]) for tensor in self.items["tensor"]}
        self.unit = (re.findall(r'^  unit: "(.*)"$', text, re.MULTILINE) or [""])[0]

    def statics(self, memory_class, step=LATER):
        return sum(int(each["bytes"]) for each in self.items["static_storage"]
                   if each["memory_class"] == memory_class and int(each.get("from_step", 0)) <= step)

    def saved(self):
        return sum(self.bytes[name] for name in {name for op in self.items["op"] for name in op.get("saves", [])})

    def replay(self, step=LATER):
        """-> {phase: peak}, bytes when backward begins"""
        live = sum(int(each["bytes"]) for each in self.items["static_storage"] if int(each.get("from_step", 0)) <= step)
        alive = {tensor["id"] for tensor in self.items["tensor"] if tensor.get("given") == "true"}
        live += sum(self.bytes[name] for name in alive)
        peaks, at_backward = {}, None
        for op in self.items["op"]:
            phase = op.get("phase", "forward")
            if phase == "backward" and at_backward is None:
                at_backward = live
            for name in op.get("reads", []):
                assert name in alive, f"{op['id']} reads {name}"
            live += sum(self.bytes[name] for name in op.get("writes", []))
            assert alive.isdisjoint(op.get("writes", [])), op
            alive.update(op.get("writes", []))
            peaks[phase] = max(peaks.get(phase, 0), live + int(op.get("workspace", 0)))
            for name in op.get("frees", []):
                alive.remove(name)
                live -= self.bytes[name]
        return peaks, at_backward

    def peak(self, step=LATER):
        """Of forward and backward."""
        peaks, _ = self.replay(step)
        return max(peaks[phase] for phase in PHASES if phase in peaks)


def made(function, device="cpu"):
    options = argparse.Namespace(device=device, name="", function="test")
    return Model(model_of(function, options))


class CommandTest(TorchTest):
    def model(self, script, function, *options, status=0):
        done = self.plain([LIVESET, "model", "--torch", f"{script}:{function}", "--python", sys.executable, *options])
        self.assertEqual(done.status, status, done.stderr)
        return done

    @unittest.skipUnless(EXACT, f"the facts are torch 2.14.1's, this is {torch.__version__}")
    def test_gpt(self):
        """Every byte of samples/torch_gpt: the peaks of its steps, and what the graph holds."""
        script = self.folder / "gpt_step.py"
        script.write_text(f"import sys\nsys.path.insert(0, {str(SOURCE / 'samples/torch_gpt')!r})\n"
                          "import torch.nn.functional as F\nimport train\n\n\ndef step():\n"
                          "    model, optimizer, tokens, targets = train.build(sys.argv[1])\n"
                          "    print('this goes to standard error')\n"
                          "    return F.cross_entropy(model(tokens).view(-1, train.VOCABULARY), targets.view(-1)), optimizer\n")
        done = self.model(script, "step", "-o", self.folder / "m.textproto", "--", "none")
        self.assertEqual((done.stdout, done.stderr), ("", "this goes to standard error\n"))
        model = Model((self.folder / "m.textproto").read_text())
        facts = FACTS["modes"]["none"]
        start, peaks = facts["backward_start"], facts["peak_forward_and_backward"]
        self.assertEqual((model.peak(0), model.peak()), (peaks["step_0"], peaks["later_steps"]))
        self.assertEqual(model.statics("parameter"), start["parameter_bytes"])
        self.assertEqual(model.statics("optimizer_state"),
                         start["optimizer_state_bytes_from_step_1"] + start["optimizer_step_scalars_from_step_1"])
        self.assertEqual(model.saved() + model.statics("input"), start["activation_bytes"])
        self.assertEqual((model.replay(0)[1], model.replay()[1]), (start["live_step_0"], start["live_later_steps"]))
        self.assertEqual(model.unit, "GPT.bs.*")
        for policy, mode in (("save-all", "none"), ("full", "block")):
            self.assertEqual(self.predicted(self.folder / "m.textproto", policy),
                             FACTS["modes"][mode]["peak_forward_and_backward"]["later_steps"])
        done = self.model(script, "step", "-o", self.folder / "block.textproto", "--", "block", status=3)
        self.assertIn("the step recomputes: a model comes from a step without checkpointing", done.stderr)
        self.assertFalse((self.folder / "block.textproto").exists())

    def recorded(self, name):
        """-> the second step without checkpoints, its peak, the peak with every block checkpointed"""
        run = self.record(MODELS, name, "none", "block", name=name)
        self.assertEqual((run.status, run.stderr), (0, ""))
        none, block = self.assert_sound(run)["steps"][1::2]
        peaks = [max(step["phases"][phase]["peak_bytes"] for phase in PHASES if phase in step["phases"]) for step in (none, block)]
        return none, *peaks

    def predicted(self, file, policy):
        """Peak of forward and backward."""
        done = self.plain([LIVESET, "predict", file, "--policy", policy, "--format", "json"])
        self.assertEqual((done.status, done.stderr), (0, ""))
        phases = json.loads(done.stdout)["memory"]["phases"]
        return max(phases[phase]["peak_bytes"] for phase in PHASES if phase in phases)

    def check_beside_the_recorded(self, name, unit, full_within):
        step, recorded, block = self.recorded(name)
        file = self.folder / "m.textproto"
        self.model(MODELS, name, "-o", file)
        model = Model(file.read_text())
        self.assertEqual(self.predicted(file, "save-all"), model.peak())
        self.assertLess(abs(model.peak() / recorded - 1), 0.01, f"{name}: {model.peak()} predicted, {recorded} recorded")
        if EXACT and name != "resnet":  # how oneDNN copies depends on the processor
            self.assertEqual(model.peak(), recorded)
        full = self.predicted(file, "full")
        self.assertLessEqual(abs(full / block - 1), full_within, f"{name}: {full} predicted of the policy full, {block} recorded")
        held = step["backward_start"]["classes"]
        self.assertEqual(model.saved() + model.statics("input"), held["activation"] + held["input"])
        self.assertEqual(model.statics("buffer"), held["buffer"])
        self.assertEqual(model.unit, unit)

    def test_perceptron(self):
        self.check_beside_the_recorded("mlp", "Sequential.*", 0.0001)

    def test_residual_network(self):
        self.check_beside_the_recorded("resnet", "Net.layers.*", 0.005)

    def test_encoder_with_dropout(self):
        self.check_beside_the_recorded("encoder", "Encoder.blocks.layers.*", 0.012)

    def test_layers_are_those_of_a_recording(self):
        script = self.folder / "units.py"
        script.write_text("""import sys, torch, torch.nn as nn
class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x):
        return torch.tanh(self.two(torch.tanh(self.one(x))))
class Dicts(nn.Module):
    def __init__(self):
        super().__init__()
        self.bs = nn.ModuleList(nn.ModuleDict({"a": nn.Linear(8, 8)}) for _ in range(2))
    def forward(self, x):
        for block in self.bs:
            x = torch.tanh(block["a"](x))
        return x
def numbered():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
def distilled(x):
    with torch.no_grad():
        wanted = Teacher()(x)
    return numbered()(x) - wanted
def alone(x):
    for _ in range(3):
        x = Teacher()(x)
    return x
NETWORKS = {"children": lambda x: Teacher()(x), "distilled": distilled, "alone": alone, "dicts": lambda x: Dicts()(x)}
def step():
    return NETWORKS[sys.argv[1]](torch.ones(4, 8)).pow(2).mean()
if __name__ == "__main__":
    for network in NETWORKS.values():
        network(torch.ones(4, 8)).pow(2).mean().backward()
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1).step()
""")
        run = self.record(script, name="units")
        for number, (name, unit) in enumerate((("children", "Teacher.*"), ("distilled", "Sequential.*"), ("alone", "Teacher"), ("dicts", ""))):
            with self.subTest(name):
                self.assertEqual(run.read("whatif", "--step", str(number))["unit"], unit)
                done = self.plain([LIVESET, "model", "--torch", f"{script}:step", "--python", sys.executable, "--", name])
                self.assertEqual((done.status, done.stderr), (0, ""))
                self.assertEqual(Model(done.stdout).unit, unit)  # none: nobody calls "Dicts.bs", and every operator is a layer

    def test_costs_are_no_times_and_figures_are_estimates(self):
        file = self.folder / "m.textproto"
        self.model(MODELS, "mlp", "-o", file)
        plan = json.loads(self.plain([LIVESET, "plan", file, "--format", "json"]).stdout)
        self.assertIn("without running a kernel", plan["estimate"])
        rules = {rule["policy"]: rule for rule in plan["rules_of_thumb"]}
        self.assertEqual(rules["under:5ms"]["refused"], "the model's costs are no times")
        self.assertNotRegex(self.plain([LIVESET, "plan", file]).stdout, r"\d (ns|us|µs|ms|s)\b")
        predicted = json.loads(self.plain([LIVESET, "predict", file, "--format", "json"]).stdout)
        self.assertEqual(predicted["estimate"], plan["estimate"])

    def test_what_the_call_gets_wrong(self):
        for target, message in ((f"{MODELS}:absent", "has no function 'absent' (it has blocks_of, encoder, main, make_encoder"),
                                (str(MODELS), "names no function (name a script and a function in it"),
                                ("absent.py:step", "absent.py: no such script")):
            done = self.plain([LIVESET, "model", "--torch", target, "--python", sys.executable])
            self.assertEqual((done.status, done.stdout), (2, ""))
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertIn(message, done.stderr)
        script = self.folder / "no_script.py"
        script.write_text("import torch\nprint('loud')\nraise ValueError('this\\nthat')\n")
        done = self.model(script, "step", "-o", self.folder / "m.textproto", status=3)
        self.assertEqual(done.stdout, "")
        self.assertIn("cannot be imported: ValueError: this (no_script.py:3)", done.stderr)
        self.assertFalse((self.folder / "m.textproto").exists())
        done = self.plain([LIVESET, "model", "--torch", f"{MODELS}:mlp", "--python", "no-such-python"])
        self.assertEqual((done.status, done.stdout), (2, ""))


@unittest.skipUnless(EXACT and torch.version.cuda, f"the facts are those of torch 2.14.1 for CUDA, this is {torch.__version__}")
class DeviceTest(DryRunTest):
    def test_gpt_on_a_device_that_is_not_there(self):
        """The same model as samples/torch_gpt trains: what its allocator counted in the third step, with rounding, within 1 %."""
        script = self.folder / "gpt_step.py"
        script.write_text(f"import sys\nsys.path.insert(0, {str(SOURCE / 'samples/torch_gpt')!r})\n"
                          "import attention\nimport saving\nimport torch\nimport torch.nn.functional as F\n"
                          "from torch.nn.attention import sdpa_kernel\n\n\ndef step():\n"
                          "    with sdpa_kernel([attention.BACKENDS[sys.argv[2]]]):\n"
                          "        model = attention.GPT('none', 0.0).to('cuda', getattr(torch, sys.argv[1]))\n"
                          "        tokens, targets = (torch.randint(0, 8192, (8, 256), device='cuda') for _ in range(2))\n"
                          "        loss = F.cross_entropy(model(tokens).view(-1, 8192).float(), targets.view(-1))\n"
                          "        return loss, saving.make_optimizer('adamw', model.parameters())\n")
        table = json.loads((ACCEPTANCE / "torch_cuda_standin.json").read_text())["runs"]
        for dtype, attention in (("float32", "math"), ("bfloat16", "flash")):
            done = self.plain([LIVESET, "model", "--torch", f"{script}:step", "--python", sys.executable, "--device", "cuda",
                               "--gpu", "h200", "--", dtype, attention])
            self.assertEqual((done.status, done.stderr), (0, ""))
            wanted = {"dtype": dtype, "attention": attention, "checkpoint": "none", "expandable_segments": False}
            recorded, = (run["steps"][2]["peak_allocated"] for run in table if all(run[key] == value for key, value in wanted.items()))
            with self.subTest(dtype=dtype, attention=attention):
                self.assertLess(abs(Model(done.stdout).peak() / recorded - 1), 0.01)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x, scale=1):
        return {"loss": self.layer(x).sum() * scale, "logits": x}


class FunctionTest(unittest.TestCase):
    """What a function may give, and what it may not."""

    def setUp(self):
        warnings.simplefilter("error")  # nothing of the machinery's own reaches the user
        self.addCleanup(warnings.resetwarnings)

    def test_forms(self):
        def loss():
            return nn.Linear(8, 8)(torch.ones(4, 8)).sum()

        def with_optimizer():
            layer = nn.Linear(8, 8)
            return layer(torch.ones(4, 8)).sum(), torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)

        def module():
            return nn.Linear(8, 8), torch.ones(4, 8)

        def keywords():
            layer = Twice()
            return layer, (torch.ones(4, 8),), {"scale": 2}, torch.optim.Adam(layer.parameters())

        def whole_step():
            layer = nn.Linear(8, 8)
            optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
            layer(torch.ones(4, 8)).sum().backward()
            optimizer.step()

        parameters, batch = 4 * (64 + 8), 4 * 32
        for function, states in ((loss, 0), (with_optimizer, parameters), (module, 0), (keywords, 2 * parameters + 8), (whole_step, 0)):
            with self.subTest(function.__name__):
                model = made(function)
                self.assertEqual(model.statics("parameter"), parameters)
                given = sum(model.bytes[tensor["id"]] for tensor in model.items["tensor"] if "given" in tensor)
                # Nobody holds the batch of a whole step: it goes with its last use.
                self.assertEqual((model.statics("input"), given), (0, batch) if function is whole_step else (batch, 0))
                self.assertEqual(model.statics("optimizer_state"), states)
                gradients = [tensor for tensor in model.items["tensor"] if tensor.get("memory_class") == "gradient"]
                self.assertEqual(sum(int(tensor["bytes"]) for tensor in gradients), parameters)
                self.assertTrue(all(tensor["accumulates"] == "true" for tensor in gradients))
                model.replay()

    def test_what_a_model_is_made_of(self):
        """Moved, tied, copied and converted modules; in-place operators; a number that autograd saves; views."""
        import copy

        def function():
            first = nn.Linear(8, 8, bias=False).to(torch.bfloat16).float()
            second = copy.deepcopy(first)
            second.weight = first.weight
            third = copy.deepcopy(first).double().to("cpu")
            x = torch.ones(4, 8)
            h = second(first(x)).relu_().view(8, 4).t() / 3.0
            return third(h.double().reshape(4, 8)).sum()

        model = made(function)
        self.assertEqual(model.statics("parameter"), 4 * 64 + 8 * 64)
        numbers = [tensor for tensor in model.items["tensor"] if tensor.get("wrapped_number") == "true"]
        self.assertEqual([(tensor["id"], tensor["bytes"]) for tensor in numbers], [("DivBackward0.other", "8")])
        model.replay()

    def test_gradients_that_go_from_node_to_node_have_their_class(self):
        model = made(lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))(torch.ones(4, 8)).mean())
        found = sorted(int(tensor["bytes"]) for tensor in model.items["tensor"] if tensor.get("memory_class") == "activation_gradient")
        # Of the loss, of mean's input (an expanded number, divided), of tanh's result, of its input.
        self.assertEqual(found, [4, 4 * 4 * 8, 4 * 4 * 16, 4 * 4 * 16])
        model.replay()

    def test_autograd_functions(self):
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(context, x):
                y = x * x
                context.save_for_backward(x, y)
                return y.clone()

            @staticmethod
            def backward(context, gradient):
                x, _ = context.saved_tensors
                return 2 * x * gradient

        model = made(lambda: Square.apply(nn.Linear(8, 8)(torch.ones(4, 8))).sum())
        held = [op for op in model.items["op"] if len(op.get("saves", [])) == 2]
        self.assertEqual(len(held), 1)
        self.assertEqual(model.bytes[held[0]["saves"][0]], 128)
        self.assertTrue(any(op.get("backward_of") == held[0]["id"] for op in model.items["op"]))
        model.replay()

    def test_refused(self):
        layer = lambda: nn.Linear(4, 4)(torch.ones(2, 4))  # noqa: E731

        def reads():
            return layer() if layer().sum().item() > 0 else None

        def branches():
            return layer().sum() if layer().sum() > 0 else None

        def by_values():
            y = layer()
            return y[y > 0].sum()

        def twice():
            layer().sum().backward()
            layer().sum().backward()

        def too_much():
            loss = layer().sum()
            loss.backward()
            return loss, torch.optim.SGD([nn.Parameter(torch.ones(1))])

        def own_operator():
            return torch.ops.liveset_test.no_fake(layer()).sum()

        library = torch.library.Library("liveset_test", "DEF")
        library.define("no_fake(Tensor x) -> Tensor")
        library.impl("no_fake", lambda x: x.clone(), "CPU")
        for function, status, message in (
                (reads, 3, "reads a value from a tensor (aten._local_scalar_dense.default)"), (branches, 3, "reads a value from a tensor"),
                (by_values, 3, "makes a tensor whose shape depends on values (aten.nonzero.default)"),
                (own_operator, 3, "calls an operator without a fake kernel (liveset_test.no_fake.default)"),
                (lambda: int("x"), 3, "ValueError: invalid literal"), (sys.exit, 3, "SystemExit"),
                (twice, 2, "calls backward more than once"),
                (too_much, 2, "called backward itself and gave a loss too, whose backward would be a second one (give a loss and"), (lambda: None, 2, "gave nothing and called no backward"),
                (lambda: 3.0, 2, "gave a float"), (lambda: layer(), 2, "gave a tensor of shape [2, 4], which is no loss"),
                (lambda: torch.ones(1), 2, "needs no gradient"), (lambda: (1, 2), 2, "gave 2 values"),
                (lambda: (nn.Linear(4, 4), torch.ones(2, 4), {}, 1), 2, "a module and more than"),
                (lambda: (nn.Identity(), 1), 2, "the module gave an int")):
            with self.subTest(message), contextlib.redirect_stdout(io.StringIO()) as out:
                with self.assertRaises(Failure) as caught:
                    made(function)
                self.assertEqual(caught.exception.status, status)
                self.assertIn(message, caught.exception.text())
                self.assertNotIn("\n", caught.exception.text())
                self.assertEqual(out.getvalue(), "")
        del library
        self.assertEqual(torch.autograd.backward.__name__, "backward")  # all is as it was

    def test_steps_that_recompute(self):
        """Whoever makes a piece of forward again inside of backward: both ways of torch's, and one of a job's own."""
        class Again(torch.autograd.Function):
            @staticmethod
            def forward(context, function, x):
                context.function = function
                context.save_for_backward(x)
                with torch.no_grad():
                    return function(x)

            @staticmethod
            def backward(context, gradient):
                x = context.saved_tensors[0].detach().requires_grad_()
                with torch.enable_grad():
                    y = context.function(x)
                torch.autograd.backward(y, gradient)
                return None, x.grad

        def step(region, backward=False):
            def function():
                first, second = nn.Linear(8, 8), nn.Linear(8, 8)
                loss = region(second, first(torch.ones(4, 8))).sum()
                return loss.backward() if backward else loss
            return function

        def fails_when_run_again(_, x):
            calls = []

            def function(x):
                calls.append(x.tanh())
                if len(calls) > 1:
                    raise ValueError("once only")
                return calls[0]

            return checkpoint(function, x, use_reentrant=False)

        for region in (functools.partial(checkpoint, use_reentrant=False), functools.partial(checkpoint, use_reentrant=True), Again.apply,
                       lambda _, x: checkpoint(lambda x: x.tanh() * 2, x, use_reentrant=False), fails_when_run_again):
            for backward in (False, True):
                with self.subTest(region, backward=backward), self.assertRaises(Failure) as caught:
                    made(step(region, backward))
                self.assertEqual(caught.exception.status, 3)
                self.assertIn("the step recomputes", caught.exception.text())

        def offloads(module, x):
            with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda tensor: tensor * 1):
                return module(x)

        for function in (step(lambda module, x: module(x)), step(offloads)):
            made(function).replay()

    def test_tensors_from_before_the_function_are_fake_ones_in_it(self):
        """A weight that two calls transpose is one storage, wherever the module was made."""
        layer, x = nn.Linear(8, 8), torch.ones(4, 8)
        with self.subTest("here"):
            here = made(lambda: layer(layer(x)).sum())
        there = made(lambda: (lambda layer, x: layer(layer(x)).sum())(nn.Linear(8, 8), torch.ones(4, 8)))
        self.assertEqual((here.saved(), here.peak(), here.statics("parameter")), (there.saved(), there.peak(), 4 * (64 + 8)))

    def test_a_whole_step_says_what_a_later_one_begins_with(self):
        def step(ends):
            layer = nn.Linear(8, 8)
            optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)

            def function():
                optimizer.zero_grad()
                layer(torch.ones(4, 8)).sum().backward()
                optimizer.step()
                if ends:
                    optimizer.zero_grad()
            return function

        for ends in (False, True):
            model = made(step(ends))
            self.assertEqual(model.statics("optimizer_state"), 4 * (64 + 8))
            self.assertEqual(model.statics("optimizer_state", 0), 0)
            self.assertEqual("gradients live when the function ends" in model.text, not ends)
            model.replay()

    def test_layers_are_calls_that_record_a_graph(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2))

            def forward(self, x):
                for layer in self.layers:
                    x = layer(layer(x))
                return x

        def evaluated():
            net, x = Net(), torch.ones(4, 8)
            with torch.no_grad():
                net(x)
            return net(x).sum()

        model = made(evaluated)
        forward = [op for op in model.items["op"] if op.get("phase", "forward") == "forward" and op.get("module")]
        without = [op for op in forward if op.get("no_graph") == "true"]
        self.assertEqual(forward[:len(without)], without)
        again = ["Net.layers.0", "Net.layers.1"]
        self.assertEqual([[op["enters"] for op in ops if "enters" in op] for ops in (without, forward[len(without):])], [again, ["Net"] + again])
        self.assertEqual(model.unit, "Net.layers.*")
        self.assertIn('  container: "Net.layers"\n', model.text)

        def one_by_one():
            x = torch.ones(4, 8)
            for _ in range(3):
                x = Twice()(x)["loss"] * torch.ones(4, 8)
            return x.sum()

        self.assertEqual(made(one_by_one).unit, "Twice")

    def test_steps_that_differentiate_their_backward(self):
        """As of a recorded step, a backward that saves for a further one is not modelled; with a region in it, it is no recompute either."""
        def backward():
            nn.Linear(8, 8)(torch.ones(4, 8)).square().sum().backward(create_graph=True)

        def backward_of_a_region():
            checkpoint(nn.Linear(8, 8), torch.ones(4, 8), use_reentrant=False).square().sum().backward(create_graph=True)

        def gradient(create_graph=True):
            module = nn.Linear(8, 8)
            given, = torch.autograd.grad(module(torch.ones(4, 8)).square().sum(), module.weight, create_graph=create_graph)
            return (module(torch.ones(4, 8)) * given.sum()).sum()

        for function in (backward, backward_of_a_region, gradient):
            with self.subTest(function.__name__), self.assertRaises(Failure) as caught:
                made(function)
            self.assertEqual(caught.exception.status, 3)
            self.assertIn("differentiates its own backward (create_graph=True), which is not modelled", caught.exception.text())
        made(lambda: gradient(create_graph=False)).replay()

    def test_modules_that_only_follow_one_another(self):
        """Two models in a row are one forward: what stands between is no loss."""
        def function():
            first, second = nn.Linear(8, 8), nn.Linear(8, 8)
            return second(first(torch.ones(4, 8)).relu()).mean()

        phases = [op.get("phase", "forward") for op in made(function).items["op"]]
        self.assertEqual(phases, sorted(phases, key=["forward", "loss", "backward", "optimizer"].index))
        self.assertEqual(phases.count("forward"), 3)
        self.assertEqual(phases.count("loss"), 1)


if __name__ == "__main__":
    unittest.main()
