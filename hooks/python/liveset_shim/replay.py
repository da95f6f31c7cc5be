"""`--check-replay`: does the recompute of a checkpointed region do what its forward did? On only when LIVESET_CHECK_REPLAY is set.

Of each region that is sampled a Record is made in forward: plain numbers, no tensor and no module. The recompute is compared with it
when it ends, and what differs is said at once as an attribute "liveset.replay", so that an exception after it finds it said.
A dispatch mode watches the operators of these regions, which nothing else of ours does: it only forwards, and is left out where
the job compiles. Called points: torch.utils.checkpoint's frame, its hooks for forward and recompute, and CheckpointFunction.
"""
import importlib

from .checkpoints import for_each_tensor
from .replay_compare import compare
from .replay_findings import Findings
from .replay_frames import Frames
from .replay_functions import Functions
from .replay_record import Moment
from .replay_state import States
from .replay_watch import Watches
from .tensor_values import TensorValues, sampled

VARIABLE = "LIVESET_CHECK_REPLAY"


class Replay:
    def __init__(self, context, modules, rate):
        self.context = context
        self.modules = modules
        self.rate = rate
        self.torch = context.torch
        self.checkpoint = importlib.import_module("torch.utils.checkpoint")  # before the hooks of regions look for it
        self.values = TensorValues(context)
        self.states = States(context, self.values)
        self.findings = Findings(context, self.values, rate)
        self.regions = 0
        self.patched = []
        self.watches = self.frames = self.functions = None

    def install(self):
        self.findings.install()
        self.watches = Watches(self.context, self.values, self.states, self.findings)
        self.frames, self.functions = Frames(self), Functions(self)
        self.frames.install(self.checkpoint)
        self.functions.install(self.checkpoint)

    def patch(self, owner, name, make, kind=lambda function: function):
        original = getattr(owner, name, None)
        if original is None:
            self.findings.cannot_see(f"what {owner.__name__}.{name} would tell: this torch has none")
            return
        self.patched.append((owner, name, owner.__dict__.get(name)))
        setattr(owner, name, kind(make(original)))

    def uninstall(self):
        for owner, name, original in reversed(self.patched):
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self.patched = []
        self.context.region_entered = self.context.region_leaves = None
        self.findings.uninstall()

    def wanted(self):
        if self.modules.is_compiling() or self.context.tracing():
            return False
        if self.values.captures():
            self.findings.count("captured")
            self.findings.cannot_see("regions whose CUDA graph is captured")
            return False
        self.regions += 1
        if sampled(self.regions, self.rate):
            return True
        self.findings.count("not_sampled")
        return False

    def begin_forward(self, record):
        """Where the region's own scope is the innermost."""
        stack = self.context.thread.stack
        if stack:
            record.region, record.module = self.findings.names_of(stack[-1].scope)
        record.begin = Moment(self.states, record.function, True)
        record.buffers = frozenset(self.values.address(buffer) for _, module in self.states.modules_of(record.function)
                                   for buffer in module._buffers.values() if buffer is not None)
        self.findings.count("regions")

    def inputs(self, record_function, arguments, keywords):
        found = []
        named = [(f"argument {number}", item) for number, item in enumerate(arguments)] + list(keywords.items())
        named += self.states.captured_tensors(record_function)
        for name, item in named:
            for_each_tensor(self.context.Tensor, item, lambda tensor, name=name: found.append(
                (name, self.values.digest(tensor), tensor._version, self.values.address(tensor))))
        return found

    def finish(self, record, replay):
        self.findings.count("recomputes")
        self.findings.count("operators", len(replay.operators))
        compare(record, replay, self.findings)

    def described(self, tensor):
        """The first fields of its Slot; both of what is read are of one reading."""
        with self.values.read(tensor) as reading:
            digest, samples = reading.digest(), reading.samples()
        return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), str(tensor.device), digest, samples
