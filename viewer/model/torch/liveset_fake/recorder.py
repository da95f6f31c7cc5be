"""Lists the operators of a step, what each reads, makes and lets go of, and what the graph holds for which.

A dispatch mode above FakeTensorMode sees every ATen operator before FakeTensorMode takes it apart, so the operators are those that a
real step runs. A storage is known by a weak reference whose callback comes when its last tensor goes: the order of frees is the
step's own. Nothing here holds a tensor or a storage of the step; `twins` holds a fake tensor as long as the program's own one lives.
"""
import sys
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

from liveset_fake import kernels

SILENT = ("prim", "profiler")
BATCH_NORMS = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_with_update")
LIFT = torch.ops.aten.lift_fresh.default
FORWARD, LOSS, BACKWARD, OPTIMIZER = "forward", "loss", "backward", "optimizer"


class Storage:
    __slots__ = ("bytes", "reference", "maker", "freed", "memory_class", "name", "slot", "module", "saved", "from_step", "number", "device")

    def __init__(self, size, device):
        self.bytes = size
        self.device = device.type  # "cpu", "cuda"
        self.reference = None     # weak, to the torch storage: its callback says when that is gone
        self.maker = None         # Op; None: it lived when the step began
        self.freed = False
        self.memory_class = ""
        self.name = ""            # of a parameter or the like
        self.slot = ""            # "AddmmBackward0.mat1": the first slot of the graph that holds it
        self.module = ""          # where it was made
        self.saved = False
        self.from_step = 0
        self.number = False       # a number of the program (x / 2.0) that became a tensor where autograd saved it


class Op:
    __slots__ = ("name", "module", "phase", "node", "node_name", "reads", "writes", "saves", "frees", "cost", "workspace", "random",
                 "side_effect", "enters", "no_graph", "saves_static")

    def __init__(self, name, module, phase, node, enters=""):
        self.name, self.module, self.enters, self.phase, self.node = name, module, enters, phase, node
        self.node_name = ""
        self.reads, self.writes, self.saves, self.frees = [], [], [], []
        self.cost = self.workspace = 0
        self.random = self.side_effect = self.no_graph = self.saves_static = False


def tensors_in(value, found):
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for each in value:
            tensors_in(each, found)
    elif isinstance(value, dict):
        for each in value.values():
            tensors_in(each, found)
    return found


class Recorder(TorchDispatchMode):
    def __init__(self, scopes):
        super().__init__()
        self.scopes = scopes
        self.mode = None     # the FakeTensorMode that is on
        self.twins = WeakTensorKeyDictionary()  # {tensor of the program that is real: its fake one}
        self.storages = {}   # {id of the Python object of a living torch storage: Storage}
        self.ops = [Op("", "", FORWARD, None)]  # the first is what happens before any operator
        self.phase = FORWARD
        self.started = False
        self.paused = False
        self.remakes = False   # backward runs a piece of forward again
        self.differentiates = False  # torch.autograd.grad in forward makes a graph of what it runs
        self.returned = False  # whether the script's function has
        self.caller = None     # code of the function of ours that calls it: what dies there dies with the returned function's frame
        self.held = []       # storages
        self.first_node = torch.autograd._get_sequence_nr()
        self.owners = {}     # {sequence number of a node: Op}
        self.notes = []

    # ---- storages

    def storage(self, tensor, maker=None):
        """`maker`: the Op that made it if it was not known yet."""
        if self.mode is not None and not isinstance(tensor, FakeTensor):
            # Made before the function was called: FakeTensorMode takes a fake twin for it, the same one as long as that lives.
            twin = self.twins.get(tensor)
            if twin is None:
                twin = self.twins[tensor] = self.mode.fake_tensor_converter.from_real_tensor(self.mode, tensor)
            tensor = twin
        try:
            torch_storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            self.note("sparse and other tensors without one storage are not followed")
            return None
        key = id(torch_storage)  # torch keeps the object as long as the storage lives
        known = self.storages.get(key)
        if known is not None:
            size = torch_storage.nbytes()
            if size > known.bytes:
                self.note("a storage that grew is counted with its last size all the time")
                known.bytes = size
            return known
        known = self.storages[key] = Storage(torch_storage.nbytes(), getattr(tensor, "fake_device", None) or tensor.device)
        known.reference = weakref.ref(torch_storage, lambda _: self._gone(key, known))
        if maker is not None:
            known.maker, known.module = maker, maker.module
            maker.writes.append(known)
        return known

    def _gone(self, key, storage):
        if self.storages.get(key) is storage:
            del self.storages[key]
        if storage.maker is None and (self.returned or sys._getframe(2).f_code is self.caller):
            # The script's function has returned, and its batch with it: in a job the loop holds it until the next one.
            self.held.append(storage)
            return
        storage.freed = True
        if storage.maker is not None or self.started:
            self.ops[-1].frees.append(storage)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    # ---- phases

    def start(self):
        """The step begins: what lives now was given to it."""
        if self.started:
            return
        self.started = True
        self.ops = [Op("", "", FORWARD, None)]
        self.owners = {}
        for storage in self.storages.values():
            storage.maker = None

    def enter(self, phase):
        self.phase = phase

    # ---- operators

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if self.paused or function.namespace in SILENT:
            return function(*arguments, **keywords)
        # The engine runs nodes without grad; whoever turns it on inside of one makes a piece of the forward's graph again.
        if torch.is_grad_enabled() and torch._C._current_autograd_node():
            self.remakes |= self.phase == BACKWARD
            self.differentiates |= self.phase in (FORWARD, LOSS)
        node = self._node()
        # torch.tensor(...) and the like: the data as Python had it, which becomes the result itself.
        given = tensors_in(arguments, []) if function is not LIFT else []
        tensors_in(keywords, given)
        reads = [self.storage(tensor) for tensor in given]
        result = function(*arguments, **keywords)
        name = function._schema.name.split("::")[-1]
        op = Op(f"{function.namespace}.{name}", self.scopes.path(), self.phase, node, self.scopes.take_entered())
        for storage in reads:
            if storage is not None and storage not in op.reads:
                op.reads.append(storage)
        made = tensors_in(result, [])
        for tensor in made:
            storage = self.storage(tensor, op)
            if storage is not None and storage.maker is op:
                storage.bytes = kernels.storage_bytes(name, given, result, storage.bytes)
        op.cost = 0 if not op.writes and not function._schema.is_mutable else self._cost(function, arguments, keywords, result, given, made)
        op.workspace = kernels.workspace(name, arguments, given, made)
        op.random = torch.Tag.nondeterministic_seeded in function.tags
        op.side_effect = self._changes_what_was_given(function, op, arguments)
        self.ops.append(op)
        if node is not None and self.phase in (FORWARD, LOSS):
            owner = self.owners.get(node)
            # In the forward of an autograd.Function, which records no graph of its own, the first operator stands for its node.
            if owner is None:
                self.owners[node] = op
        return result

    def _node(self):
        """The node of autograd that this operator belongs to: in forward the one that was numbered last, in backward the one that runs."""
        if self.phase == BACKWARD:
            node = torch._C._current_autograd_node()
            if node is None:
                return None
            number = node._sequence_nr()
            return number if number < 1 << 62 else None
        number = torch.autograd._get_sequence_nr() - 1
        if number < self.first_node:
            return None
        if not self.started and torch.is_grad_enabled():
            self.start()
        return number

    def _cost(self, function, arguments, keywords, result, given, made):
        formula = flop_registry.get(getattr(function, "_overloadpacket", None))
        if formula is not None:
            try:
                return int(formula(*arguments, **keywords, out_val=result))
            except Exception:
                pass
        return sum(tensor.numel() * tensor.element_size() for tensor in given + made)

    def _changes_what_was_given(self, function, op, arguments):
        schema = function._schema
        name = schema.name.split("::")[-1]
        if name in BATCH_NORMS:
            return True
        if not schema.is_mutable:
            return False
        for argument, value in zip(schema.arguments, arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in tensors_in(value, []):
                    storage = self.storage(tensor)
                    if storage is not None and storage.maker is None:
                        return True
        return False
