"""Reads from an autograd graph what it retains, without running a hook and without touching the graph.

From torch 2.14 on `SavedTensor.data` gives the saved tensor, or what a pack hook made of it, as it is. Before, a slot can
only be read by unpacking it, which under a checkpoint re-runs the region: there, nodes that were made while saved-tensor
hooks were on are left alone (PackedRanges knows them by their sequence numbers).
"""
import bisect
import itertools
import weakref

from .context import ACTIVATION, CHECKPOINT_INPUT, PARAMETER, RNG_STATE
from .checkpoints import for_each_tensor

RANDOM_STATES = ("fwd_cpu_state", "fwd_gpu_states", "fwd_device_states")


class Graph:
    def __init__(self, context, packed=None):
        self.context = context
        self.packed = packed  # PackedRanges where saved tensors cannot be read as they are
        self.python_node = context.torch._C._FunctionBase
        self.slots = {}       # {type of C++ node: (((attribute, name id), ...), has a variable)}

    def walk(self, roots):
        """States everything that the graph under these nodes retains. -> (nodes, leaf variables)"""
        context, slots_of = self.context, self.slots
        Tensor, Parameter = context.Tensor, context.torch.nn.Parameter
        heap_of, retain, exact_types = context.heap_of, context.retain, context._exact_types
        strided, dtypes = context.torch.strided, context.dtypes
        variable_name = context.text("AccumulateGrad.variable")
        readable = self.packed is None
        leaves = []
        nodes = list(roots)
        seen = set(nodes)
        while nodes:
            node = nodes.pop()
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    nodes.append(following)
            kind = type(node)
            known = slots_of.get(kind)
            if known is None:
                if isinstance(node, self.python_node):
                    self._python_node(node)
                    continue
                known = slots_of[kind] = self._slots(kind)
            if not readable:
                self._unpack(node, known, leaves)
                continue
            slots, has_variable = known
            for read, name in slots:
                saved = read(node)
                if type(saved) is tuple:
                    for one in saved:
                        self._slot(one.data, name)
                    continue
                tensor = saved.data
                if tensor is None:
                    continue
                # The common case by hand: this is the innermost loop of the walk.
                if type(tensor) in exact_types and tensor.layout is strided:
                    try:
                        storage = tensor.untyped_storage()
                        memory_class = PARAMETER if type(tensor) is Parameter else ACTIVATION
                        retain(memory_class, heap_of(tensor.device), storage.data_ptr(), storage.nbytes(), name, dtypes.get(tensor.dtype, 0))
                        continue
                    except (RuntimeError, NotImplementedError):
                        pass  # a wrapper in a plain tensor's clothes (torch.func)
                self._slot(tensor, name)
            if has_variable:
                self._leaf(node.variable, variable_name, leaves)
        return len(seen), leaves

    def _slots(self, kind):
        prefix = "_raw_saved_" if self.packed is None else "_saved_"
        label = kind.__name__
        slots = []
        for attribute in dir(kind):
            if attribute.startswith(prefix):
                name = self.context.text(f"{label}.{attribute[len(prefix):]}")
                slots.append((getattr(kind, attribute).__get__, name))
        return tuple(slots), hasattr(kind, "variable")

    def _slot(self, data, name):
        """A slot's content: a tensor, or whatever the job's own pack hook made of it (placeholders hold no tensor)."""
        try:
            for_each_tensor(self.context.Tensor, data, lambda tensor: self._retained(tensor, name))
        except Exception as error:
            self.context.failed(error)

    def _retained(self, tensor, name):
        memory_class = PARAMETER if isinstance(tensor, self.context.torch.nn.Parameter) else ACTIVATION
        self.context.state_retained(memory_class, tensor, name)

    def _leaf(self, variable, name, leaves):
        """A parameter is held anyway, and counts as retained only where a slot has saved it. A leaf that is no nn.Parameter may be an
        input that wants a gradient: that one the graph holds; an optimizer that has it as a parameter says so at its step."""
        try:
            leaves.append(variable)
            if isinstance(variable, self.context.torch.nn.Parameter):
                self.context.state(PARAMETER, variable, name)
            else:
                self._retained(variable, name)
        except Exception as error:
            self.context.failed(error)

    def _python_node(self, node):
        """A torch.autograd.Function: its saved tensors, and the tensors that its forward put on ctx."""
        try:
            label = type(node).__name__
            reentrant = label == "CheckpointFunctionBackward"
            tensors = self.read_node(node)
            for tensor in tensors:
                if reentrant:
                    self.context.state(CHECKPOINT_INPUT, tensor)
                else:
                    self._retained(tensor, self.context.text(f"{label}.saved_tensors"))
            for attribute, item in getattr(node, "__dict__", {}).items():
                if attribute in RANDOM_STATES:
                    say = lambda tensor: self.context.state(RNG_STATE, tensor)
                else:
                    name = f"{label}.{attribute}"
                    say = lambda tensor, name=name: self._retained(tensor, self.context.text(name))
                for_each_tensor(self.context.Tensor, item, say)
        except Exception as error:
            self.context.failed(error)

    def read_node(self, node):
        """Tensors that a Python node saved, as far as they can be read without running anything."""
        if self.packed is None:
            contents = [saved.data for saved in node._raw_saved_tensors or ()]
        elif node in self.packed:
            contents = []
        else:
            contents = node.saved_tensors
        return [item for item in contents if isinstance(item, self.context.Tensor)]

    def _unpack(self, node, known, leaves):
        slots, has_variable = known
        try:
            if has_variable:
                self._leaf(node.variable, self.context.text("AccumulateGrad.variable"), leaves)
            if node in self.packed:
                return
            for read, name in slots:
                try:
                    item = read(node)
                except RuntimeError:  # freed already, or edited in place since: torch raises the same when backward gets there
                    continue
                self._slot(item, name)
        except Exception as error:
            self.context.failed(error)


class PackedRanges:
    """Which nodes were made while saved-tensor hooks were on: ranges of autograd's sequence numbers. Numbers are per thread, and
    a node does not know its thread, so a range counts for all of them: rather a slot unread than a hook run.

    A slot that a hook packed keeps that hook's unpack function, so a range is over when that function is gone."""

    MOST = 4096  # ranges of functions that live on; then the older half becomes one range

    def __init__(self, context):
        self.ranges = {}    # {ordinal: (first number, number after the last, weak reference to the unpack function)}
        self.open = {}      # {id(hook): [first number]}: hooks that are on
        self.changed = object()  # another one at every change of the ranges
        self.merged = None, []   # what `changed` was, and their bounds then, ascending and disjoint: first, end, first, end ...
        self.ordinals = itertools.count()
        self.next_number = context.torch._C._autograd._get_sequence_nr
        self.hooks = context.torch.autograd.graph.saved_tensors_hooks
        self.original = (self.hooks.__enter__, self.hooks.__exit__)

    def install(self):
        enter, leave = self.original

        def __enter__(hook):
            self.open.setdefault(id(hook), []).append(self.next_number())
            return enter(hook)

        def __exit__(hook, *arguments):
            result = leave(hook, *arguments)
            starts = self.open.get(id(hook))
            if starts:
                self.add(starts[-1], self.next_number(), hook.unpack_hook)
                starts.pop()  # only now: in between, another thread shall find the one or the other
                if not starts:
                    self.open.pop(id(hook), None)
            return result

        self.hooks.__enter__, self.hooks.__exit__ = __enter__, __exit__

    def uninstall(self):
        self.hooks.__enter__, self.hooks.__exit__ = self.original

    def add(self, first, end, unpack):
        if first >= end:
            return
        ordinal = next(self.ordinals)

        def over(_):
            self.ranges.pop(ordinal, None)
            self.changed = object()
        try:
            alive = weakref.ref(unpack, over)
        except TypeError:  # it cannot be watched, so it counts as alive for ever
            alive = None
        self.ranges[ordinal] = first, end, alive
        self.changed = object()
        if len(self.ranges) > self.MOST:
            self._fold()

    def _fold(self):
        older = sorted(self.ranges)[:self.MOST // 2]
        folded = [found for found in map(self.ranges.get, older) if found is not None]
        if folded:
            self.ranges[next(self.ordinals)] = min(first for first, _, _ in folded), max(end for _, end, _ in folded), None
        for ordinal in older:
            self.ranges.pop(ordinal, None)
        self.changed = object()

    def _bounds(self):
        bounds = []
        for first, end in sorted(found[:2] for found in list(self.ranges.values())):
            if bounds and first <= bounds[-1]:
                bounds[-1] = max(bounds[-1], end)
            else:
                bounds += first, end
        return bounds

    def __contains__(self, node):
        number = node._sequence_nr()
        if any(number >= starts[0] for starts in list(self.open.values()) if starts):
            return True
        changed = self.changed
        if self.merged[0] is not changed:
            self.merged = changed, self._bounds()
        return bisect.bisect_right(self.merged[1], number) % 2 == 1
