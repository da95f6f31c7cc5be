"""Non-reentrant checkpoint regions (torch.utils.checkpoint): what they give up, what they make again, and what their frames hold.

The graph's nodes hold only placeholders (_Holder) for what a region saves; the region's _CheckpointFrame has them in order, as
weak references. A slot is known by its position there: it is the same in forward, in the graph and in each recompute. The inputs
and random states hang on the frame too. Since torch 2.14 a frame keeps tensor arguments as SavedTensor objects in `saved_args`;
before that they were saved on an autograd node, that of `input_saver`. Keyword arguments and random states are in recompute_fn's closure.
"""
import sys
import weakref

from .around import original_of
from .context import ACTIVATION, CHECKPOINT_INPUT, INDEX_SHIFT, PARAMETER, RECOMPUTED_ACTIVATION, RNG_STATE
from .regions import Regions, autocast_of

MODULE = "torch.utils.checkpoint"
UNSTATED = 0  # what is given up has the class that its other holders give it


class Checkpoints:
    def __init__(self, context, modules):
        self.context = context
        self.regions = Regions(context, modules)
        self.frames = {}  # {weak reference: None} of those that are not stated yet
        self.graph = None  # of the engine's hooks, when they are there
        self.reentrant = None  # the reentrant regions' hooks
        self.met = set()  # selective regions that the graph which is walked now waits for
        self.patched = None
        self.module = None

    def install(self):
        if self.reentrant is not None:
            self.reentrant.install()
        module = sys.modules.get(MODULE)
        if self.patched is not None or not hasattr(module, "_CheckpointFrame") or not hasattr(module, "_checkpoint_hook"):
            return
        self.module = module
        frame, hook = module._CheckpointFrame, module._checkpoint_hook
        # Attributes of the classes themselves; None where they inherit.
        self.patched = [(owner, name, owner.__dict__.get(name))
                        for owner, name in ((frame, "__init__"), (hook, "__init__"), (hook, "__enter__"), (hook, "__exit__"))]
        frame.__init__ = self._frame_init(frame.__init__)
        hook.__init__ = self._hook_init(hook.__init__)
        hook.__enter__ = self._hook_enter(hook.__enter__)
        hook.__exit__ = self._hook_exit(hook.__exit__)

    def uninstall(self):
        for owner, name, original in self.patched or ():
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self.patched = None

    def _frame_init(self, original):
        regions = self.regions

        def __init__(frame, recompute_fn, *arguments, **keywords):
            region = None
            try:
                if regions.untraced():
                    if self.context.torch.is_grad_enabled():
                        region = regions.new()
                    elif regions.local.given_up:
                        regions.count()  # it will be a region when the reentrant one around it is made again
            except Exception as error:
                self.context.failed(error)
            if region is None:
                original(frame, recompute_fn, *arguments, **keywords)
                return
            original(frame, self._marked(recompute_fn, region, weakref.ref(frame)), *arguments, **keywords)
            try:
                frame._liveset_region = region
                # What it calls is no function of Python's, in which an exception of the job's signal handler would be lost.
                self.frames[weakref.ref(frame, self.frames.pop)] = None
                if self._kept_outputs(closure_of(recompute_fn)) is not None:
                    region.frame = weakref.ref(frame)
                if frame.metadata_fn is not None:
                    frame.metadata_fn = self._slots_said(frame, region)
            except Exception as error:
                self.context.failed(error)
        return __init__

    def _hook_init(self, original):
        def __init__(hook, frame, *arguments, **keywords):
            original(hook, frame, *arguments, **keywords)
            region = getattr(frame, "_liveset_region", None)
            hook._liveset_region = region
            if region is not None:
                hook._liveset_frame = weakref.ref(frame)
        return __init__

    def _hook_enter(self, original):
        context = self.context

        # What a signal handler raises in ours comes before torch's hooks are pushed, or after they are popped.
        def before(hook):
            if hook._liveset_region is not None:
                self.regions.enter(hook._liveset_region, lambda: self._facts(hook._liveset_frame()))
                if context.region_entered is not None:
                    context.region_entered(hook)

        return context.around(before, original, None, False, True)

    def _hook_exit(self, original):
        context = self.context

        def after(arguments, raised, result):
            hook = arguments[0]
            if hook._liveset_region is not None:
                if context.region_leaves is not None:
                    context.region_leaves(hook)
                self.regions.leave(hook._liveset_region)

        return context.around(None, original, after, False, True)

    def _facts(self, frame):
        """What Regions.describe() wants to know of a region that begins."""
        held = closure_of(original_of(frame.recompute_fn))
        tensors = self._arguments(frame)
        if tensors is not None:
            for_each_tensor(self.context.Tensor, held.get("kwargs"), tensors.append)
        kind = "selective" if self._kept_outputs(held) is not None else "non_reentrant"
        autocast = autocast_of(held.get("device_type"), held.get("device_autocast_kwargs"), held.get("cpu_autocast_kwargs"))
        return kind, tensors, autocast, bool(frame.early_stop), bool(held.get("preserve_rng_state"))

    def _arguments(self, frame):
        """Tensors among a frame's arguments; None where torch does not show them."""
        tensors = []
        saver = saver_of(frame)
        if saver is None:
            for argument in getattr(frame, "saved_args", ()):
                for_each_tensor(self.context.Tensor, getattr(argument, "data", argument), tensors.append)
            return tensors
        if self.graph is None or self.graph.packed is not None and saver in self.graph.packed:
            return None
        tensors += self.graph.read_node(saver)[1:]  # the first is torch's own, of no bytes
        for_each_tensor(self.context.Tensor, kept_by(saver), tensors.append)
        return tensors

    def _kept_outputs(self, held):
        """What a selective checkpoint keeps, {operator: {number: outputs}}, from the closure of its recompute_fn; None: it is none."""
        mode = getattr(self.module, "_CachedTorchDispatchMode", None)
        context = held.get("recompute_context")
        return getattr(context, "storage", None) if mode is not None and isinstance(context, mode) else None

    def _slots_said(self, frame, region):
        """The frame's metadata_fn, which torch calls once for each tensor that the region saves, and again when it compares. It holds
        the frame's lists and not the frame, which would live on by a cycle."""
        context = self.context
        metadata_of, holders, metadatas = frame.metadata_fn, frame.weak_holders, frame.x_metadatas
        exact_types, Parameter, drop, drop_tensor = context._exact_types, context.torch.nn.Parameter, context.drop, context.drop_tensor
        del frame

        def metadata(tensor):
            result = metadata_of(tensor)
            index = len(holders) - 1
            if len(metadatas) != index:  # it is compared
                return result
            try:
                kind = type(tensor)
                memory_class = PARAMETER if kind is Parameter else UNSTATED
                facts = index + 1 << INDEX_SHIFT
                holders[index]()._liveset_slot = region, facts, memory_class
                if kind not in exact_types or not drop_tensor(memory_class, tensor, 0, 0, facts):
                    with context.quiet():
                        context.say(drop, memory_class, tensor, 0, index)
            except Exception as error:
                context.failed(error)
            return result

        return metadata

    def slot_of(self, holder):
        """(scope of the region, facts: the index) of what a placeholder in the graph stands for; None: it is of no region that we saw."""
        slot = getattr(holder, "_liveset_slot", None)
        if slot is None:
            return None
        region, facts, _ = slot
        if region.frame is not None:
            self.met.add(region)
        return region.scope, facts

    def _marked(self, recompute_fn, region, frame):
        """recompute_fn inside its region's scope, phase recompute. It ends by an exception when it stops early."""
        regions = self.regions
        stop = getattr(self.module, "_StopRecomputationError", ())

        def before(*arguments, **keywords):
            return regions.begin_recompute(region)

        def after(state, raised, result):
            stopped = raised is not None and issubclass(raised, stop)
            regions.end_recompute(state, stopped, None if stopped else raised, lambda: self._say_remade(frame(), region))

        return self.context.around(before, recompute_fn, after)

    def _say_remade(self, frame, region):
        """What a recompute has made of its region's slots, those that the graph still waits for."""
        context = self.context
        if frame is None:
            return
        execution = self._execution(frame)
        remade = frame.recomputed.get(execution)
        if not remade:
            return
        with context.quiet():
            for index, reference in enumerate(frame.weak_holders):
                holder = reference()
                handle = None if holder is None else holder.handles.get(execution)
                tensor = None if handle is None else remade.get(handle)
                if tensor is None:
                    continue
                try:
                    slot = getattr(holder, "_liveset_slot", None)
                    memory_class = PARAMETER if slot is not None and slot[2] == PARAMETER else RECOMPUTED_ACTIVATION
                    context.say(context.remake, memory_class, tensor, 0, index, region.scope)
                except Exception as error:
                    context.failed(error)

    def _execution(self, frame):
        """Key of the recompute that has just run, as unpack_hook chooses it: a GraphExecGroup, a backward, or for an unpacking outside
        of both a number that is known to the frame only."""
        group = getattr(self.context.torch._C, "_get_graph_exec_group", lambda: None)()
        if group is not None:
            return group
        task = self.context.task_id()
        return task if task >= 0 else next(reversed(frame.recomp_counter), None)

    def state_frames(self, read_node):
        """Says what the frames that came up since the last call hold. `read_node(node)`: tensors that an autograd node saved."""
        if not self.frames and not self.met:
            return
        frames, self.frames = self.frames, {}
        for frame in [reference() for reference in list(frames)]:
            if frame is None:
                continue
            try:
                self._state_frame(frame, read_node)
                # A walk meets the regions that its graph waits for, where it can read slots.
                if frame._liveset_region.frame is not None and not self.context.saved_tensors_readable:
                    self.met.add(frame._liveset_region)
            except Exception as error:
                self.context.failed(error)
        met, self.met = self.met, set()
        for region in met:
            try:
                self._state_kept(region)
            except Exception as error:
                self.context.failed(error)

    def _state_kept(self, region):
        """The outputs that a selective region keeps, which the graph holds by way of the region's frame."""
        context, frame = self.context, region.frame()
        kept = None if frame is None else self._kept_outputs(closure_of(original_of(frame.recompute_fn)))
        if not kept:
            return
        context.graph_node(context.text("selective"), -1)  # they are no slots of the last node
        for operator, outputs in list(kept.items()):
            name = context.text(f"selective.{operator[0] if isinstance(operator, tuple) else operator}")
            for output in list(outputs.values() if isinstance(outputs, dict) else outputs):
                for wrapped in output if isinstance(output, (list, tuple)) else (output,):
                    for_each_tensor(context.Tensor, getattr(wrapped, "val", None),
                                    lambda tensor: context.say(context.retain, ACTIVATION, tensor, name, -1, region.scope))

    def _state_frame(self, frame, read_node):
        context, scope = self.context, frame._liveset_region.scope
        say_input = lambda tensor: context.say(context.storage, CHECKPOINT_INPUT, tensor, 0, -1, scope)
        say_state = lambda tensor: context.say(context.storage, RNG_STATE, tensor, 0, -1, scope)
        for argument in getattr(frame, "saved_args", ()):
            for_each_tensor(context.Tensor, getattr(argument, "data", argument), say_input)
        saver = saver_of(frame)
        if saver is not None:
            for tensor in read_node(saver)[1:]:
                say_input(tensor)
            for_each_tensor(context.Tensor, kept_by(saver), say_input)
        held = closure_of(original_of(frame.recompute_fn))
        for_each_tensor(context.Tensor, held.get("fwd_cpu_state"), say_state)
        for_each_tensor(context.Tensor, held.get("fwd_device_states"), say_state)
        for_each_tensor(context.Tensor, held.get("kwargs"), say_input)
        for_each_tensor(context.Tensor, held.get("args"), say_input)
        # A lambda's captured tensors live as long as the frame too.
        for_each_tensor(context.Tensor, list(closure_of(original_of(held.get("fn"))).values()), say_input)


def saver_of(frame):
    """The node that a frame's tensor arguments are saved on, torch before 2.14; else None."""
    return getattr(getattr(frame, "input_saver", None), "grad_fn", None)


def kept_by(saver):
    """The arguments that a saver (torch before 2.14) keeps as they are, keyword arguments among them."""
    return closure_of(getattr(saver, "get_args", None)).get("args")


def closure_of(function):
    """{name: content} of a function's closure; empty cells are left out."""
    held = {}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), cells or ()):
        try:
            held[name] = cell.cell_contents
        except ValueError:
            pass
    return held


def for_each_tensor(tensor_type, item, say, depth=0):
    """Calls `say` for the tensors in an item: itself, or in lists, tuples and dicts up to three deep."""
    if isinstance(item, tensor_type):
        say(item)
    elif depth < 3 and isinstance(item, (list, tuple, dict)):
        for inner in contents_of(item):
            for_each_tensor(tensor_type, inner, say, depth + 1)


def contents_of(item):
    """What is in a dict (its values), list or tuple, read as it lies there: a subclass of the job's may run code in its own methods."""
    if isinstance(item, dict):
        return list(dict.values(item))
    return list.__iter__(item) if isinstance(item, list) else tuple.__iter__(item)
