"""Reads from an autograd graph what it retains, without running a hook and without touching the graph.

From torch 2.14 on `SavedTensor.data` gives the saved tensor, or what a pack hook made of it, as it is. Before, a slot can
only be read by unpacking it, which under a checkpoint re-runs the region: there, nodes that were made while saved-tensor
hooks were on are left alone (packed.py).

A node's slots are said after the node. What a hook of the job packed is where that hook put it: in a tensor on another device (or
beside the device that it was on, as save_on_cpu does), which is offloaded; in a tensor like others, which the graph holds; or in
something without a tensor (a path, a key), which is out of memory. A placeholder of a checkpoint region waits for that region.
"""
import os
import sys

from .addresses import storage_address
from .checkpoints import contents_of, for_each_tensor
from .context import ACTIVATION, CHECKPOINT_INPUT, DEVICE_TYPES, OFFLOADED, PARAMETER, RNG_STATE

RANDOM_STATES = ("fwd_cpu_state", "fwd_gpu_states", "fwd_device_states")
CHECKPOINT_NODE = "CheckpointFunctionBackward"
COMPILED_NODES = "CompiledFunction"  # what AOT autograd names its functions
OUT_OF_MEMORY = (str, bytes, int, os.PathLike)


class Graph:
    def __init__(self, context, packed=None, slot_of=lambda holder: None):
        """`packed`: PackedRanges where saved tensors cannot be read as they are. `slot_of(holder)`: (scope, facts) of a checkpoint
        region's placeholder, or None."""
        self.context = context
        self.packed = packed
        self.slot_of = slot_of
        self.python_node = context.torch._C._FunctionBase
        self.slots = {}  # {type of C++ node: (((attribute, name id), ...), has a variable, name id of the type)}
        self.saved_tensor = getattr(context.torch._C._autograd, "SavedTensor", None)
        self.learning_slots = packed is None  # whether the recorder still looks for the tensor in the object of a slot
        self.learning = True  # whether the engine's hook still looks for the place of the sequence numbers
        # Of the recorder's own walk, which states nodes of the classes that it knows. Before 2.14 a slot cannot be told from a packed one.
        native = packed is None
        self.walk_graph, self.learn_edges, self.learn_class = (getattr(context, name, None) if native else None
                                                               for name in ("walk_graph", "learn_edges", "learn_class"))
        self.learns_edges = self.walk_graph is not None  # whether it still looks for the place of the edges

    def walk(self, roots, device=None):
        """States everything that the graph under these nodes retains. `device`: where its results are; what a hook packed is
        elsewhere. -> (nodes, leaf variables)"""
        context, slots_of = self.context, self.slots
        Tensor, Parameter = context.Tensor, context.torch.nn.Parameter
        retain, exact_types, graph_node = context.retain_tensor, context._exact_types, context.graph_node
        # Where all is on the CPU, what a hook moves it moves out of torch.
        one_device = device is None or device.type == "cpu"
        readable = self.packed is None
        holder_type, slot_of, use_slot = getattr(sys.modules.get("torch.utils.checkpoint"), "_Holder", None), self.slot_of, context.use_slot
        learning, walked = self.learning, context.walked
        saved_tensor, retain_slot = self.saved_tensor, context.retain_slot
        learn_class = None if self.learns_edges else self.learn_class
        variable_name, storage_tensor = context.text("AccumulateGrad.variable"), context.storage_tensor
        leaves = []
        nodes, count = self._reach(roots)
        for node in nodes:
            kind = type(node)
            known = slots_of.get(kind)
            if known is None:
                if isinstance(node, self.python_node):
                    self._python_node(node, device)
                    continue
                known = slots_of[kind] = self._slots(kind)
            if learning:
                learning = walked(id(node), node._sequence_nr(), 0, 0)
            slots, has_variable, label = known
            if has_variable:
                try:
                    variable = node.variable
                    leaves.append(variable)
                    if type(variable) is not Parameter or not storage_tensor(PARAMETER, variable, variable_name):
                        self._leaf(variable, label, variable_name)
                except Exception as error:
                    context.failed(error)
            if not slots:
                if learn_class is not None and not has_variable:
                    learn_class(node, label)
                continue
            if not readable:
                self._unpack(node, known)
                continue
            graph_node(label, node._sequence_nr())
            plain = []
            try:
                for read, name in slots:
                    saved = read(node)
                    if type(saved) is tuple:
                        for one in saved:
                            if not retain_slot(one, name):
                                self._slot(one.data, name, one, device)
                        continue
                    if type(saved) is saved_tensor and retain_slot(saved, name):
                        plain += saved, name
                        continue
                    tensor = saved.data
                    if tensor is None:
                        continue
                    kind = type(tensor)
                    # The common cases by hand: this is the innermost loop of the walk.
                    if kind in exact_types:
                        if (one_device or tensor.device == device) and retain(PARAMETER if kind is Parameter else ACTIVATION, tensor, name):
                            if self.learning_slots:
                                self._learn_slot(saved, tensor)
                            continue
                    elif kind is holder_type:
                        slot = slot_of(tensor)
                        if slot is not None:
                            use_slot(name, slot[1], slot[0])
                        continue
                    self._slot(tensor, name, saved, device)
                if learn_class is not None and len(plain) == 2 * len(slots):
                    learn_class(node, label, *plain)
            except Exception as error:
                # An earlier backward may have freed this node, and no other: torch itself says so when its slots are read.
                if not isinstance(error, RuntimeError) or error.__traceback__.tb_next is not None:
                    context.failed(error)
        self.learning = learning
        return count, leaves

    def _reach(self, roots):
        """-> (the nodes under these that are still to be stated, number of all)"""
        roots, written_here = list(roots), []
        if self.walk_graph is not None and not self.learns_edges:
            # It begins at nodes written in C++, of types that were met: a root may be anything that the job passes to backward.
            seen, written_in_c = set(roots), []
            while roots:
                node = roots.pop()
                if not isinstance(node, self.python_node):
                    written_in_c.append(node)
                    continue
                written_here.append(node)
                for following, _ in node.next_functions:
                    if following is not None and following not in seen:
                        seen.add(following)
                        roots.append(following)
            nodes = []
            count = all(type(node) in self.slots for node in written_in_c) and self.walk_graph(nodes, *written_in_c)
            if count:
                met = set(nodes)
                more = [node for node in written_here if node not in met]
                return nodes + more, count + len(more)
            roots = written_in_c + written_here
        nodes, seen = roots, set(roots)
        for node in nodes:
            edges = node.next_functions
            for following, _ in edges:
                if following is not None and following not in seen:
                    seen.add(following)
                    nodes.append(following)
            if self.learns_edges:
                ends = [node, *(following for following, _ in edges)]
                if not any(end is None or isinstance(end, self.python_node) for end in ends):
                    answer = self.learn_edges(*ends)
                    self.learns_edges = answer > 0
                    if answer < 0:
                        self.walk_graph = self.learn_class = None
        return nodes, len(nodes)

    def _slots(self, kind):
        prefix = "_raw_saved_" if self.packed is None else "_saved_"
        label = kind.__name__
        slots = []
        for attribute in dir(kind):
            if attribute.startswith(prefix):
                name = self.context.text(f"{label}.{attribute[len(prefix):]}")
                slots.append((getattr(kind, attribute).__get__, name))
        return tuple(slots), hasattr(kind, "variable"), self.context.text(label)

    def _slot(self, data, name, saved=None, device=None):
        """A slot's content: a tensor, or whatever the job's own pack hook made of it. `saved`: the slot, where it can be read."""
        context = self.context
        try:
            if data is None:
                return
            packed = getattr(saved, "unpack_hook", None) is not None
            if packed and not isinstance(data, context.Tensor) and type(data).__name__ == "_Holder":
                slot = self.slot_of(data)
                if slot is not None:
                    context.use_slot(name, slot[1], slot[0])
                return
            tensors = []
            for_each_tensor(context.Tensor, data, tensors.append)
            if not tensors:
                for_each_tensor(context.Tensor, getattr(data, "__dict__", None), tensors.append)
            if not tensors and packed and without_tensor(data):
                context.offload_slot(name, 0)
            # As save_on_cpu packs: where the tensor was, and its copy.
            moved = isinstance(data, tuple) and tuple.__len__(data) == 2 and isinstance(tuple.__getitem__(data, 0), context.torch.device)
            for tensor in tensors:
                if packed and (moved or device is not None and tensor.device != device):
                    context.say(context.offload, OFFLOADED, tensor, name)
                else:
                    self._retained(tensor, name)
        except Exception as error:
            context.failed(error)

    def _learn_slot(self, saved, tensor):
        context = self.context
        dtype, device = context.dtypes.get(tensor.dtype, 0), tensor.device
        if dtype and tensor.numel() and device.type in DEVICE_TYPES and saved.unpack_hook is None:
            storage = tensor.untyped_storage()
            self.learning_slots = context.learn_slot(saved, storage_address(tensor, storage), storage.nbytes(), dtype, DEVICE_TYPES[device.type],
                                                     device.index or 0)

    def _retained(self, tensor, name):
        memory_class = PARAMETER if isinstance(tensor, self.context.torch.nn.Parameter) else ACTIVATION
        self.context.state_retained(memory_class, tensor, name)

    def _leaf(self, variable, label, name):
        """A parameter is held anyway, and counts as retained only where a slot has saved it. A leaf that is no nn.Parameter may be an
        input that wants a gradient: that one the graph holds; an optimizer that has it as a parameter says so at its step."""
        context = self.context
        try:
            if isinstance(variable, context.torch.nn.Parameter):
                context.state(PARAMETER, variable, name)
            else:
                context.graph_node(label, -1)
                self._retained(variable, name)
        except Exception as error:
            context.failed(error)

    def _python_node(self, node, device=None):
        """A torch.autograd.Function: its saved tensors, and the tensors that its forward put on ctx."""
        context = self.context
        try:
            label = type(node).__name__
            number = node._sequence_nr() if hasattr(node, "_sequence_nr") else -1
            context.walked(id(node), number, context.text(label), 1)
            context.graph_node(context.text(label), number)
            name = context.text(f"compiled region: {label}.saved_tensors" if label.startswith(COMPILED_NODES) else f"{label}.saved_tensors")
            region = getattr(getattr(node, "_liveset_region", None), "scope", 0)
            if label == CHECKPOINT_NODE:
                for tensor in self.read_node(node):
                    context.say(context.storage, CHECKPOINT_INPUT, tensor, 0, -1, region)
            elif self.packed is not None:
                for tensor in self.read_node(node):
                    self._retained(tensor, name)
            else:
                for saved in node._raw_saved_tensors or ():
                    self._slot(saved.data, name, saved, device)
            for attribute, item in dict.items(getattr(node, "__dict__", {})):
                if attribute in RANDOM_STATES:
                    say = lambda tensor: context.say(context.storage, RNG_STATE, tensor, 0, -1, region)
                else:
                    name = f"{label}.{attribute}"
                    say = lambda tensor, name=name: self._retained(tensor, context.text(name))
                for_each_tensor(context.Tensor, item, say)
        except Exception as error:
            context.failed(error)

    def read_node(self, node):
        """Tensors that a Python node saved, as far as they can be read without running anything."""
        if self.packed is None:
            contents = [saved.data for saved in node._raw_saved_tensors or ()]
        elif node in self.packed:
            contents = []
        else:
            contents = node.saved_tensors
        return [item for item in contents if isinstance(item, self.context.Tensor)]

    def known_of(self, node):
        """What is known of a node's type: its slots, whether it has a variable, its name's id; None of a node written in Python."""
        kind = type(node)
        known = self.slots.get(kind)
        if known is None and not isinstance(node, self.python_node):
            known = self.slots[kind] = self._slots(kind)
        return known

    def contents(self, node, known):
        """(name id, what it holds) of the slots of a node written in C++, as far as they can be read without running anything."""
        unpacks = self.packed is not None
        if unpacks and node in self.packed:
            return
        for read, name in known[0]:
            try:
                saved = read(node)
            except RuntimeError:  # freed already, or edited in place since: torch raises the same when backward gets there
                continue
            for one in saved if type(saved) is tuple else (saved,):
                yield name, one if unpacks else one.data

    def _unpack(self, node, known):
        try:
            if node in self.packed:
                return
            self.context.graph_node(known[2], node._sequence_nr())
            for name, item in self.contents(node, known):
                self._slot(item, name)
        except Exception as error:
            self.context.failed(error)


def without_tensor(data):
    """Whether what a hook packed is surely no memory of torch: a path, a key, a few of them, or an object that has only such (the
    file of PyTorch's own tutorial)."""
    if isinstance(data, (list, tuple)):
        return all(without_tensor(inner) for inner in contents_of(data))
    if isinstance(data, OUT_OF_MEMORY):
        return True
    try:
        fields = object.__getattribute__(data, "__dict__")  # runs nothing of the job's
    except AttributeError:
        return False
    return type(fields) is dict and bool(fields) and all(isinstance(inner, OUT_OF_MEMORY) for inner in fields.values())
