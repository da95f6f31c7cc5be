"""`--check-replay`: does the recompute of a checkpointed region do what its forward did? On only when LIVESET_CHECK_REPLAY is set.

Of each region that is sampled a Record is made in forward: plain numbers, no tensor and no module. The recompute is compared with it
when it ends, and what differs is said at once as an attribute "liveset.replay", so that an exception after it finds it said.
A dispatch mode watches the operators of these regions, which nothing else of ours does: it only forwards, and is left out where
the job compiles. Called points: torch.utils.checkpoint's frame, its hooks for forward and recompute, and CheckpointFunction.
"""
import importlib
import sys
import typing

from .checkpoints import closure_of, for_each_tensor
from .replay_compare import compare
from .replay_findings import Findings
from .replay_state import PYTHON, States
from .tensor_values import TensorValues, sampled

MOST_OPERATORS = 20000  # of a region
VARIABLE = "LIVESET_CHECK_REPLAY"


class Record:
    """A region's forward."""

    def __init__(self, region, module, function, preserves, reentrant):
        self.region, self.module = region, module  # names
        self.preserves, self.reentrant = preserves, reentrant
        self.begin = self.end = None  # Moments
        self.devices = ()             # of tensor arguments
        self.inputs = []              # [(name, hash, version, address)]
        self.slots = []               # [Slot]
        self.operators = []           # [(operator, grad is on, hash of what it made or None, scope)]
        self.generators = []          # [state of a generator of the job before each operator that used one]
        self.outputs = []             # of a reentrant region
        self.function = function
        self.made = {}                # {address: number of the operator that wrote there last}
        self.used = set()             # ids of the parameters that its operators read; None: nobody watched
        self.buffers = frozenset()    # addresses
        self.custom_contexts = False  # of a context_fn that we do not know: it may set what it likes
        self.watched = False          # its operators were
        self.differs = False          # something was said
        self.replay = None            # the recompute that runs


class Slot(typing.NamedTuple):
    """A tensor that a region saved, or returned."""
    shape: tuple
    dtype: str
    device: str
    digest: object  # None: it cannot be read
    samples: tuple
    operator: object = None  # number of the one that made it
    module: str = ""
    is_parameter: bool = False
    is_buffer: bool = False  # of a module: these are compared as buffers
    position: int = 0        # operators so far


class Moment:
    """What a region depends on besides its arguments, at one time."""

    def __init__(self, states, function, in_forward=False):
        modules = states.modules_of(function)
        self.random = states.random()
        self.autocast = states.autocast()
        self.inference = states.torch.is_inference_mode_enabled()
        self.parameters = states.parameters(modules)
        self.training = states.training(modules)
        # Only what the recompute itself changes is compared: other regions may have changed them since the forward, rightly.
        self.buffers = {} if in_forward else states.buffers(modules)
        self.attributes = {} if in_forward else states.attributes(modules, function)


class Recompute:
    def __init__(self):
        self.before = self.after = None  # random states around it, as the training sees them
        self.begin = self.end = None     # Moments inside, where the random states are the restored ones
        self.inputs, self.operators, self.generators, self.outputs, self.slots, self.made = [], [], [], [], {}, {}
        self.used = set()
        self.count = 0                   # of values that it saved
        self.watched = False
        self.whole = False               # it ran to its end
        self.stopped = False             # torch stopped it because all was made


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
        self.mode_type = None
        self.profiled = getattr(self.torch._C._autograd, "_profiler_enabled", lambda: False)
        self.ignored = {self.torch.ops.aten.detach.default, self.torch.ops.prim.device.default}

    # --- installing

    def install(self):
        self.findings.install()
        self.mode_type = _mode_type(self)
        module = self.checkpoint
        frame, forward, recompute = (getattr(module, name, None) for name in ("_CheckpointFrame", "_checkpoint_hook", "_recomputation_hook"))
        if frame is not None and forward is not None and recompute is not None:
            self._patch(frame, "__init__", self._frame_init)
            self._patch(frame, "save_inputs", self._save_inputs)
            self._patch(frame, "get_inputs", self._get_inputs)
            self._patch(forward, "__init__", self._forward_init)
            self._patch(forward, "__enter__", self._forward_enter)
            self._patch(forward, "__exit__", self._forward_exit)
            self._patch(recompute, "__init__", self._recompute_init)
            self._patch(recompute, "__enter__", self._recompute_enter)
            self._patch(recompute, "__exit__", self._recompute_exit)
        else:
            self.findings.cannot_see("non-reentrant regions: this torch has other ones")
        function = getattr(module, "CheckpointFunction", None)
        if function is not None:
            self._patch(function, "apply", lambda _: self._reentrant_apply(function), classmethod)
            self._patch(function, "forward", self._reentrant_forward, staticmethod)
            self._patch(function, "backward", self._reentrant_backward, staticmethod)

    def _patch(self, owner, name, make, kind=lambda function: function):
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
        self.findings.uninstall()

    # --- both kinds of regions

    def _wanted(self):
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

    def _begin_forward(self, record):
        """Where the region's own scope is the innermost."""
        stack = self.context.thread.stack
        if stack:
            record.region, record.module = self.findings.names_of(stack[-1].scope)
        record.begin = Moment(self.states, record.function, True)
        record.buffers = frozenset(self.values.address(buffer) for _, module in self.states.modules_of(record.function)
                                   for buffer in module._buffers.values() if buffer is not None)
        self.findings.count("regions")

    def _inputs(self, record_function, arguments, keywords):
        found = []
        named = [(f"argument {number}", item) for number, item in enumerate(arguments)] + list(keywords.items())
        named += self.states.captured_tensors(record_function)
        for name, item in named:
            for_each_tensor(self.context.Tensor, item, lambda tensor, name=name: found.append(
                (name, self.values.digest(tensor), tensor._version, self.values.address(tensor))))
        return found

    def _mode(self, of, hashing):
        """A watch over the operators, already entered; None where the job compiles, or has operators counted (each would be counted twice)."""
        dynamo = sys.modules.get("torch._dynamo.eval_frame")
        backends = getattr(dynamo, "cached_backends", None) or {}
        if any(callable(backend) for backend in backends.values()):  # torch's own use, to keep the compiler out, has none
            self.findings.cannot_see("operators of regions, in jobs that use torch.compile")
            of.used = None
            return None
        if self.profiled():
            self.findings.cannot_see("operators of regions, while a profiler of torch is on")
            of.used = None
            return None
        of.watched = True
        self._leave_left()
        mode = self.mode_type(of, hashing)
        mode.__enter__()
        return mode

    def _leave_mode(self, mode):
        if mode is not None:
            mode.off = True
            self.context.thread.watches.append(mode)
        self._leave_left()

    def _leave_left(self):
        """Takes the watches that are over from the thread's stack of modes. One below a mode of the job that is still there has to wait:
        to take the innermost would take that one."""
        watches = self.context.thread.watches
        while watches:
            over = next((watch for watch in watches if watch.is_innermost()), None)
            if over is None:
                return
            watches.remove(over)
            over.__exit__(None, None, None)

    def _finish(self, record, replay):
        self.findings.count("recomputes")
        self.findings.count("operators", len(replay.operators))
        compare(record, replay, self.findings)

    # --- non-reentrant: forward

    def _frame_init(self, original):
        def __init__(frame, recompute_fn, *arguments, **keywords):
            original(frame, recompute_fn, *arguments, **keywords)
            try:
                if self.torch.is_grad_enabled() and self._wanted():
                    self._watch_frame(frame, recompute_fn)
            except Exception as error:
                self.context.failed(error)
        return __init__

    def _watch_frame(self, frame, recompute_fn):
        cells = dict(zip(recompute_fn.__code__.co_freevars, recompute_fn.__closure__ or ()))
        function = cells["fn"].cell_contents
        held = closure_of(recompute_fn)
        record = Record("", "", function, bool(held.get("preserve_rng_state")), False)
        context = held.get("recompute_context")
        record.custom_contexts = type(context).__name__ not in ("NoneType", "nullcontext", "_CachedTorchDispatchMode")
        # Nobody reads this cell between here and the recompute; it is torch's own way to the region's function.
        cells["fn"].cell_contents = self._watched(function, record)
        if frame.metadata_fn is not None:
            frame.metadata_fn = self._saved(frame.metadata_fn, frame.weak_holders, frame.x_metadatas, record)
        frame._liveset_replay = record
        frame._liveset_keywords = held.get("kwargs") or {}

    def _save_inputs(self, original):
        def save_inputs(frame, *arguments):
            record = getattr(frame, "_liveset_replay", None)
            if record is not None:
                try:
                    with self.context.quiet():
                        keywords = frame.__dict__.pop("_liveset_keywords", {})
                        record.inputs = self._inputs(record.function, arguments, keywords)
                        record.devices = {str(item.device) for item in arguments if isinstance(item, self.context.Tensor)}
                except Exception as error:
                    self.context.failed(error)
            return original(frame, *arguments)
        return save_inputs

    def _get_inputs(self, original):
        def get_inputs(frame):
            try:
                return original(frame)
            except RuntimeError as error:
                record = getattr(frame, "_liveset_replay", None)
                if record is not None and "inplace operation" in str(error):
                    try:
                        self.findings.say(record, "input_changed", "", "", "torch found: " + str(error).split(". ")[0])
                    except Exception as ours:
                        self.context.failed(ours)
                raise
        return get_inputs

    def _forward_init(self, original):
        def __init__(hook, frame, *arguments, **keywords):
            original(hook, frame, *arguments, **keywords)
            hook._liveset_mode = None
            hook._liveset_replay = record = getattr(frame, "_liveset_replay", None)
            if record is not None:
                hook.unpack_hook = self._unpacking(hook.unpack_hook, record)
        return __init__

    def _unpacking(self, original, record):
        def unpack_hook(holder):
            try:
                return original(holder)
            except RuntimeError as error:
                if type(error).__name__ == "CheckpointError":
                    try:
                        self._say_refused(record, str(error))
                    except Exception as ours:
                        self.context.failed(ours)
                raise
        return unpack_hook

    def _say_refused(self, record, text):
        """What torch itself found; where the comparison had said nothing before, by torch's words."""
        if "already unpacked once" in text:
            self.findings.say(record, "unpacked_twice", record.module, "",
                              "backward asked for the same saved value twice in one pass, and a recomputed one is given away once: read "
                              "ctx.saved_tensors once, or keep it in a variable")
        elif not record.differs:
            self.findings.say(record, "operators", record.module, "", "torch found: " + text.strip().splitlines()[0])

    def _forward_enter(self, original):
        def __enter__(hook):
            result = original(hook)
            record = hook._liveset_replay
            if record is not None:
                try:
                    with self.context.quiet():
                        self._begin_forward(record)
                    hook._liveset_mode = self._mode(record, False)
                except Exception as error:
                    self.context.failed(error)
            return result
        return __enter__

    def _forward_exit(self, original):
        def __exit__(hook, *arguments):
            record = hook._liveset_replay
            if record is not None:
                try:
                    self._leave_mode(hook._liveset_mode)
                    with self.context.quiet():
                        record.end = self.states.random()
                except Exception as error:
                    self.context.failed(error)
            return original(hook, *arguments)
        return __exit__

    def _saved(self, original, holders, metadatas, record):
        """The frame's metadata_fn: torch calls it for each tensor that the region saves, and again where it compares."""
        def metadata(tensor):
            try:
                if len(metadatas) == len(holders) - 1 and record.begin is not None:
                    with self.context.quiet():
                        record.slots.append(self._slot(tensor, record))
            except Exception as error:
                self.context.failed(error)
            return original(tensor)
        return metadata

    def _slot(self, tensor, record):
        described = self._described(tensor)
        digest = described[3]
        self.findings.count("values" if digest is not None else "values_not_compared")
        if digest is not None:
            self.findings.count("value_bytes", tensor.numel() * tensor.element_size())
        stack = self.context.thread.stack
        module = self.findings.names_of(stack[-1].scope)[1] if stack else ""
        return Slot(*described, record.made.get(self.values.address(tensor)), module, type(tensor) is self.torch.nn.Parameter,
                    self.values.address(tensor) in record.buffers, len(record.operators))

    def _described(self, tensor):
        """The first fields of its Slot; both of what is read are of one reading."""
        with self.values.read(tensor) as reading:
            digest, samples = reading.digest(), reading.samples()
        return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), str(tensor.device), digest, samples

    # --- non-reentrant: recompute

    def _watched(self, function, record):
        def before(*arguments, **keywords):
            replay, mode = record.replay, None
            if replay is not None and replay.begin is None:
                try:
                    with self.context.quiet():
                        replay.inputs = self._inputs(function, arguments, keywords)
                        replay.begin = Moment(self.states, function)
                    mode = self._mode(replay, False)
                except Exception as error:
                    self.context.failed(error)
            return replay, mode

        def after(token, raised, result):
            replay, mode = token
            if replay is None:
                return
            try:
                replay.whole = replay.whole or raised is None
                self._leave_mode(mode)
                with self.context.quiet():
                    replay.end = Moment(self.states, function)
            except Exception as error:
                self.context.failed(error)

        return self.context.around(before, function, after)

    def _recompute_init(self, original):
        def __init__(hook, frame_reference, gid, *arguments, **keywords):
            original(hook, frame_reference, gid, *arguments, **keywords)
            hook._liveset_replay = frame_reference, gid
        return __init__

    def _recompute_enter(self, original):
        def __enter__(hook):
            result = original(hook)
            frame = hook._liveset_replay[0]()
            record = getattr(frame, "_liveset_replay", None)
            if record is not None and record.begin is not None:
                try:
                    with self.context.quiet():
                        record.replay = Recompute()
                        record.replay.before = self.states.random()
                except Exception as error:
                    self.context.failed(error)
            return result
        return __enter__

    def _recompute_exit(self, original):
        def __exit__(hook, kind=None, *arguments):
            frame, gid = hook._liveset_replay[0](), hook._liveset_replay[1]
            record = getattr(frame, "_liveset_replay", None)
            replay = record.replay if record is not None else None
            if replay is not None:
                try:
                    record.replay = None
                    with self.context.quiet():
                        replay.after = self.states.random()
                        replay.stopped = kind is not None and kind.__name__ == "_StopRecomputationError"
                        replay.slots = self._remade(frame, gid, record)
                        replay.count = frame.recomp_counter[gid] if gid in frame.recomp_counter else 0
                        self._finish(record, replay)
                except Exception as error:
                    self.context.failed(error)
            return original(hook, kind, *arguments)
        return __exit__

    def _remade(self, frame, gid, record):
        """{index: what _slot() says} of the tensors that a recompute made for holders that live."""
        made = {}
        tensors = frame.recomputed[gid] if gid in frame.recomputed else {}
        for index, reference in enumerate(frame.weak_holders):
            holder = reference()
            handle = holder.handles.get(gid) if holder is not None else None
            tensor = tensors.get(handle) if handle is not None else None
            if tensor is not None and index < len(record.slots):
                made[index] = Slot(*self._described(tensor))
        return made

    # --- reentrant

    def _reentrant_apply(self, function):
        """What is called with the class first, so that a job's own subclass stays that."""
        inherited = next(owner.__dict__["apply"] for owner in function.__mro__ if "apply" in owner.__dict__)
        original = inherited.__func__ if isinstance(inherited, classmethod) else inherited  # a method of C
        thread, is_grad_enabled = self.context.thread, self.torch.is_grad_enabled

        def before(*_, **__):
            wanted, thread.grad_wanted = thread.grad_wanted, is_grad_enabled()  # inside of the Function it is always off
            return wanted

        def after(wanted, *_):
            thread.grad_wanted = wanted
        return self.context.around(before, original, after)

    def _say_untrained(self, record, arguments):
        """A reentrant region's graph begins at its tensor arguments: when none of them requires grad, there is none."""
        if not self.context.thread.grad_wanted or any(item.requires_grad for item in arguments if isinstance(item, self.context.Tensor)):
            return
        names = [f"{name}.{own}" for name, module in self.states.modules_of(record.function)
                 for own, parameter in module._parameters.items() if parameter is not None and parameter.requires_grad]
        if names:
            self.findings.say(record, "no_gradient", record.module, names[0],
                              f"no argument of this reentrant region requires grad, so its {len(names)} parameters get no gradient and its "
                              "memory is no saving: use_reentrant=False, or an input that requires grad")

    def _reentrant_forward(self, original):
        def before(*given):
            try:
                ctx, run_function, preserve_rng_state, *arguments = given
                if self._wanted():
                    record = Record("", "", run_function, bool(preserve_rng_state), True)
                    record.devices = {str(item.device) for item in arguments if isinstance(item, self.context.Tensor)}
                    ctx._liveset_replay = record
                    given = (ctx, self._watched_reentrant(run_function, record), *given[2:])
            except Exception as error:
                self.context.failed(error)
            return None, given
        return self.context.around(before, original, lambda *_: None, True)

    def _watched_reentrant(self, function, record):
        """Called in forward and, by the same name in the context, in the recompute."""
        def before(*arguments):
            replay, mode = record.replay, None
            if record.begin is not None and replay is None:
                return None
            try:
                with self.context.quiet():
                    inputs = self._inputs(function, arguments, {})
                    if replay is None:
                        record.inputs = inputs
                        self._begin_forward(record)
                        self._say_untrained(record, arguments)
                    else:
                        replay.inputs = inputs
                        replay.begin = Moment(self.states, function)
                mode = self._mode(record if replay is None else replay, True)
            except Exception as error:
                self.context.failed(error)
            return replay, mode

        def after(token, raised, result):
            if token is None:
                return
            replay, mode = token
            try:
                self._leave_mode(mode)
                with self.context.quiet():
                    if raised is None:
                        self._outputs(record, replay, result)
                    if replay is None:
                        record.end = self.states.random()
                    else:
                        record.replay = None
                        replay.end = Moment(self.states, function)
                        replay.after = None
                        self._finish(record, replay)
            except Exception as error:
                self.context.failed(error)

        return self.context.around(before, function, after)

    def _outputs(self, record, replay, result):
        made = []
        for_each_tensor(self.context.Tensor, result, made.append)
        (replay or record).outputs += [Slot(*self._described(tensor)) for tensor in made]
        if replay is not None:
            replay.whole = True
            return
        self.findings.count("values", len(made))
        self.findings.count("value_bytes", sum(tensor.numel() * tensor.element_size() for tensor in made))

    def _reentrant_backward(self, original):
        def before(*given):
            try:
                record = getattr(given[0], "_liveset_replay", None)
                if record is None or record.begin is None:
                    return None
                with self.context.quiet():
                    record.replay = Recompute()
                    return record, self.states.random()
            except Exception as error:
                self.context.failed(error)

        def after(token, raised, _):
            if token is None or raised is not None:
                return
            try:
                with self.context.quiet():
                    self.findings.compare_training(*token, self.states.random())
            except Exception as error:
                self.context.failed(error)
        return self.context.around(before, original, after)


def _mode_type(replay):
    """The dispatch mode that writes down what runs and forwards it."""
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
    Tensor, Generator = replay.context.Tensor, replay.torch._C.Generator
    context, values, ignored = replay.context, replay.values, replay.ignored
    is_grad_enabled, default_generator = replay.torch.is_grad_enabled, replay.torch.default_generator
    generator_state = replay.states.generator
    thread, Parameter = context.thread, replay.torch.nn.Parameter

    class Watch(TorchDispatchMode):
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls):
            return True

        def __init__(self, of, hashing):
            super().__init__()
            self.operators, self.generators, self.made, self.hashing = of.operators, of.generators, of.made, hashing
            self.used = of.used
            self.off = False

        def is_innermost(self):
            return _get_current_dispatch_mode() is self

        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            keywords = keywords or {}
            if self.off or function in ignored or len(self.operators) >= MOST_OPERATORS:
                return function(*arguments, **keywords)
            try:
                for argument in arguments:
                    if type(argument) is Parameter:
                        self.used.add(id(argument))
                generator = keywords.get("generator")
                if isinstance(generator, Generator) and generator is not default_generator:
                    self.generators.append((str(generator.device), generator_state(generator)))
            except Exception as error:
                context.failed(error)
            result = function(*arguments, **keywords)
            try:
                made = result[0] if isinstance(result, (tuple, list)) and result else result
                digest = None
                if isinstance(made, Tensor) and not getattr(function, "is_view", False):
                    with context.quiet():
                        self.made[values.address(made)] = len(self.operators)
                        if self.hashing and "empty" not in str(function):  # what is not written yet is any number
                            digest = values.digest(made)
                scope = thread.stack[-1].scope if thread.stack else 0
                self.operators.append((function, is_grad_enabled(), digest, scope))
            except Exception as error:
                context.failed(error)
            return result

    return Watch
