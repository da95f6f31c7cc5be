"""`--fingerprint`: what the first steps computed, so that two runs can be compared: losses, gradients as the optimizer finds them, and
the parameters that it leaves. Each tensor is read once where it lies: hash, norm, what is not finite, a few elements; whole in files
beside the trace with LIVESET_FINGERPRINT_VALUES. On only when LIVESET_FINGERPRINT is set.
"""
import importlib
import json
import math
import os
import struct
import sys

from .context import LOSS_VALUE
from .tensor_values import TensorValues, element
from .tree import modules_in, owned

VARIABLE, FOLDER = "LIVESET_FINGERPRINT", "LIVESET_FINGERPRINT_VALUES"
KEY, STEP_KEY = "liveset.fingerprint", "liveset.fingerprint.step"


class Fingerprint:
    def __init__(self, context, modules, steps):
        self.context = context
        self.modules = modules
        self.torch = context.torch
        self.values = TensorValues(context)
        self.steps = steps
        self.rows = {}      # {step: rows of the models' inputs}
        self.losses = {}    # {step: how many}
        self.said_rows = set()
        self.handles = []
        self.state = None
        self.folder = os.environ.get(FOLDER)
        if self.folder and os.environ.get("RANK"):
            self.folder = os.path.join(self.folder, "rank-" + os.environ["RANK"])
        self.index = []
        # The hooks of modules take this function when they are installed.
        self.enter_root = modules.enter_root
        modules.enter_root = self._root_entered

    def install(self):
        optimizer = importlib.import_module("torch.optim.optimizer")
        before, after = self._hooks()
        self.handles = [optimizer.register_optimizer_step_pre_hook(before), optimizer.register_optimizer_step_post_hook(after)]
        self.state = state = self.context.state

        def stated(memory_class, tensor, name=0):
            if memory_class == LOSS_VALUE:
                try:
                    self._loss(tensor)
                except Exception as error:
                    self.context.failed(error)
            return state(memory_class, tensor, name)
        self.context.state = stated
        self.context.attribute(self.context.text(STEP_KEY), self.context.text(json.dumps({"steps": self.steps})))

    def _hooks(self):
        is_compiling = self.modules.is_compiling

        def before(optimizer, arguments, keywords):
            if not is_compiling():  # a compiler that traces this function must find nothing in it
                self._before(optimizer)

        def after(optimizer, arguments, keywords):
            if not is_compiling():
                self._after(optimizer)

        return before, after

    def uninstall(self):
        for handle in self.handles:
            handle.remove()
        self.handles = []
        if self.state is not None:
            self.context.state = self.state
            self.state = None

    def _root_entered(self, module):
        """Counts the rows that go into a model: how many terms a gradient is the sum of."""
        arguments = sys._getframe(1).f_locals.get("arguments", ())  # of the hook that calls this
        result = self.enter_root(module)
        try:
            step = self.context.current_step()
            place = self.modules.roots.get(id(module))
            if 0 <= step < self.steps and place is not None and place.changes_phase and self.torch.is_grad_enabled():
                rows = 1
                for argument in arguments:
                    if isinstance(argument, self.context.Tensor) and argument.dim() > 0 and argument.numel() > 0:
                        wide = argument.is_floating_point() and argument.dim() > 1
                        rows = max(rows, argument.numel() // argument.shape[-1] if wide else argument.numel())
                self.rows[step] = self.rows.get(step, 0) + rows
        except Exception as error:
            self.context.failed(error)
        return result

    def _wanted(self):
        step = self.context.current_step()
        wanted = 0 <= step < self.steps and not self.context.tracing() and not self.values.captures()
        return step if wanted else None

    def _loss(self, tensor):
        step = self._wanted()
        if step is not None:
            number = self.losses[step] = self.losses.get(step, -1) + 1
            self._say(step, "loss", number, f"loss:{number}", tensor)

    def _before(self, optimizer):
        try:
            step = self._wanted()
            if step is None:
                return
            with self.context.quiet():
                if step not in self.said_rows:
                    self.said_rows.add(step)
                    said = json.dumps({"step": step, "rows": self.rows.get(step, 0)})
                    self.context.attribute(self.context.text(STEP_KEY), self.context.string(said))
                for number, name, parameter in self._named(optimizer):
                    if parameter.is_leaf and parameter.grad is not None:
                        self._say(step, "gradient", number, name, parameter.grad)
        except Exception as error:
            self.context.failed(error)

    def _after(self, optimizer):
        try:
            # The step is over when torch's hooks, which ran before this one, have said so; its number stands until the next begins.
            step = self._wanted()
            if step is None:
                return
            with self.context.quiet():
                for number, name, parameter in self._named(optimizer):
                    self._say(step, "parameter", number, name, parameter)
            self._write_index()
        except Exception as error:
            self.context.failed(error)

    def _named(self, optimizer):
        """(number, name, parameter) of an optimizer, in the order in which their modules were first called."""
        wanted = {id(parameter): parameter for group in optimizer.param_groups for parameter in group["params"]}
        owners, names = {}, {}
        for module in self.modules.models():
            for prefix, inner in modules_in(module):
                for own, parameter in owned(inner, "_parameters"):
                    if id(parameter) in wanted and id(parameter) not in names:
                        names[id(parameter)] = f"{prefix}.{own}" if prefix else own
                        owners[id(parameter)] = id(inner)
        called = {key: number for number, key in enumerate(self.modules.latest)}
        order = sorted(names, key=lambda key: called.get(owners[key], len(called)))  # stable: else as registered
        others = [key for key in wanted if key not in names]
        for number, key in enumerate((*order, *others)):
            yield number, names.get(key, f"parameter:{number}"), wanted[key]

    def _say(self, step, what, number, name, tensor):
        said = {"step": step, "what": what, "order": number, "name": name[:300], "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape)}
        with self.values.read(tensor) as reading:
            if reading:
                hashed, *figures = self.context.figures(self.context.dtypes.get(tensor.dtype, 0), *reading.place).split()
                said["hash"] = hashed
                if figures:
                    squares, largest, not_finite = figures
                    said["norm"] = _finite(math.sqrt(_double(squares)))
                    said["max_abs"] = _finite(_double(largest))
                    said["not_finite"] = int(not_finite, 16)
                samples = [[position, element(bits, tensor.dtype)] for position, bits in reading.samples()]
                said["samples"] = [[position, _finite(float(number))] for position, number in samples if number is not None]
            self.context.attribute(self.context.text(KEY), self.context.string(json.dumps(said)))
            if reading and self.folder:
                self._write(said, reading.place)

    def _write(self, said, place):
        os.makedirs(self.folder, exist_ok=True)
        file = f"{said['step']}-{said['what']}-{said['order']}.bin"
        with open(os.path.join(self.folder, file), "wb") as out:
            whole = self.context.write_elements(out.fileno(), *place)
        if not whole:
            raise OSError(f"{file} could not be written whole in {self.folder}")
        self.index.append({key: said[key] for key in ("step", "what", "name", "dtype", "shape")} | {"file": file})

    def _write_index(self):
        if self.folder and self.index:
            with open(os.path.join(self.folder, "index.json"), "w", encoding="utf-8") as out:
                json.dump({"schema": "liveset.values/1", "byte_order": "little", "tensors": self.index}, out, indent=1)


def _double(bits):
    return struct.unpack("<d", int(bits, 16).to_bytes(8, "little"))[0]


def _finite(number):
    return number if math.isfinite(number) else None  # JSON has no others
