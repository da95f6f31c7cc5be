"""Runs the user's function on fake tensors: forward, backward, optimizer. Gives the model's text."""
import sys

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from liveset_fake import text
from liveset_fake.failure import Failure
from liveset_fake.recorder import BACKWARD, FORWARD, LOSS, OPTIMIZER, Recorder
from liveset_fake.saves import HookRanges, Walk
from liveset_fake.scopes import Scopes
from liveset_fake.script import article, place_of, told

RETURNS = "it gives a loss, or (module, arguments) or (module, arguments, keywords), and an optimizer behind these where there is one"

CHECKPOINTS = ("the step recomputes: a model comes from a step without checkpointing",
               "turn checkpointing off in it; liveset predict MODEL --policy full says what it would take with it")

DIFFERENTIATES = ("the step differentiates its own backward (create_graph=True), which is not modelled",
                  "a model comes from a step whose backward saves nothing")


def apply_to_module(module, function, recurse=True):
    """nn.Module._apply for fake parameters: torch swaps them, which FakeTensorMode's weak references forbid. A parameter stays the same
    object, so ties between parameters and an optimizer's references hold."""
    if recurse:
        for child in module.children():
            child._apply(function)
    for parameter in module._parameters.values():
        if parameter is None:
            continue
        with torch.no_grad():
            applied = function(parameter)
        if applied is parameter:
            continue
        parameter.data = applied
        if isinstance(applied, FakeTensor):
            parameter.fake_device = applied.fake_device
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module


def copy_fake(tensor, memo):
    """copy.deepcopy of a fake tensor: torch's own copies the mode with it, and two modes do not mix."""
    known = memo.get(id(tensor))
    if known is not None:
        return known
    with torch.no_grad():
        copied = tensor.detach().clone()
    if isinstance(tensor, torch.nn.Parameter):
        copied = torch.nn.Parameter(copied, tensor.requires_grad)
    else:
        copied.requires_grad_(tensor.requires_grad)
    memo[id(tensor)] = copied
    return copied


def number_steps():
    """Optimizers read the number of a step from a tensor. Fake ones have lost it by then; what it is changes no size."""
    for name, module in list(sys.modules.items()):
        read = getattr(module, "_get_value", None) if name.startswith("torch.optim.") else None
        if read is not None:
            module._get_value = lambda value, read=read: 1.0 if isinstance(value, FakeTensor) else read(value)


class Step:
    def __init__(self, function):
        self.function = function
        self.scopes = Scopes(self._root_begins, self._root_ends)
        self.recorder = Recorder(self.scopes)
        self.hooks = HookRanges()
        self.leaves = []          # variables of the graph
        self.backwards = 0
        self.root_began = 0, 0    # operators and number of the next node when the module that runs was called
        self.depth = 0            # of calls of torch.autograd.backward
        self.original_backward = torch.autograd.backward
        self.optimizer = None

    # ---- phases

    def _root_begins(self, module):
        if self.recorder.phase in (FORWARD, LOSS):
            self.recorder.start()
            self.recorder.enter(FORWARD)
            self.root_began = len(self.recorder.ops), torch.autograd._get_sequence_nr()
            for op in self.recorder.ops:  # what seemed to be the loss led to a further module
                if op.phase == LOSS:
                    op.phase = FORWARD

    def _root_ends(self, module):
        first, number = self.root_began
        if torch.autograd._get_sequence_nr() == number:  # it has made no node (torch.no_grad(), a frozen teacher)
            for op in self.recorder.ops[first:]:
                op.no_graph = True
        if self.recorder.phase == FORWARD and any(True for _ in module.parameters()):
            self.recorder.enter(LOSS)

    def _backward(self, tensors, *arguments, **keywords):
        """Stands for torch.autograd.backward."""
        if self.depth == 0:
            if self.backwards:
                raise Failure(2, "the function calls backward more than once",
                              "give the step of one microbatch; `schedule { microbatches: N }` in the model file repeats it")
            self.backwards += 1
            if keywords.get("create_graph", arguments[2] if len(arguments) > 2 else False):
                raise Failure(3, *DIFFERENTIATES)
            self._walk(tensors)
            self.recorder.enter(BACKWARD)
        self.depth += 1
        try:
            return self.original_backward(tensors, *arguments, **keywords)
        finally:
            self.depth -= 1
            if self.depth == 0:
                self.recorder.enter(OPTIMIZER)

    def _walk(self, tensors):
        recorder = self.recorder
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        recorder.paused = True
        try:
            walk = Walk([root.grad_fn for root in roots], self.hooks)
            for op in recorder.ops:
                op.node_name = walk.names.get(op.node, "")
            for root in roots:
                storage = recorder.storage(root)
                if storage is not None:
                    storage.memory_class = "loss"
            for number, kind, slot, tensor in walk.slots:
                owner = recorder.owners.get(number)
                known = len(owner.writes) if owner is not None else 0
                storage = recorder.storage(tensor, owner)
                if storage is None:
                    continue
                if owner is not None and len(owner.writes) > known:  # no operator has shown it
                    storage.number = tensor.dim() == 0
                if owner is not None and storage.maker is None:
                    owner.saves_static = True
                if owner is not None and storage.maker is not None:
                    if not storage.slot:
                        storage.slot = slot
                    if storage not in owner.saves:
                        owner.saves.append(storage)
            self.leaves = walk.leaves
            if walk.unread:
                recorder.note(f"the script keeps what {walk.unread} nodes of autograd save in a way of its own (an offload): the model is of that "
                              "step as it is")
        finally:
            recorder.paused = False

    # ---- the run

    def run(self):
        module_apply = torch.nn.Module._apply
        torch.nn.Module._apply, FakeTensor.__deepcopy__ = apply_to_module, copy_fake
        torch.autograd.backward = self._backward
        try:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode, self.hooks, self.scopes, self.recorder:
                self.recorder.mode = mode
                self._run()
        finally:
            torch.nn.Module._apply = module_apply
            torch.autograd.backward = self.original_backward

    def _run(self):
        loss, self.optimizer = self._forward(self._call_function())
        if self.recorder.differentiates:
            raise Failure(3, *DIFFERENTIATES)
        if loss is not None:
            loss.backward()
        elif not self.backwards:
            raise Failure(2, "the function gave nothing and called no backward", RETURNS)
        if self.recorder.remakes:
            raise Failure(3, *CHECKPOINTS)
        self._state_classes()
        if loss is None:
            self._first_states()
        if loss is not None and self.optimizer is not None:
            self._optimize()
        self.recorder.paused = True  # what goes from here on goes behind the step

    def _call_function(self):
        self.recorder.caller = sys._getframe().f_code
        result = self.function()
        self.recorder.returned = True
        return result

    def _forward(self, result):
        """-> loss, optimizer"""
        parts = list(result) if isinstance(result, (tuple, list)) else [result]
        result = None
        optimizer = None
        if parts and isinstance(parts[-1], torch.optim.Optimizer):
            optimizer = parts.pop()
        if self.backwards and parts and parts[0] is not None:
            given = "a loss" if isinstance(parts[0], torch.Tensor) else article(parts[0])
            raise Failure(2, f"the function called backward itself and gave {given} too, whose backward would be a second one",
                          "give a loss and call no backward, or call it and give nothing")
        if parts and isinstance(parts[0], torch.nn.Module):
            return self._call(*parts), optimizer
        if len(parts) != 1:
            raise Failure(2, f"the function gave {len(parts)} values", RETURNS)
        if parts[0] is None:
            return None, optimizer
        return self._loss_of(parts[0], "the function gave", False), optimizer

    def _call(self, module, arguments=(), keywords=None, *more):
        if more or not isinstance(keywords, (dict, type(None))):
            raise Failure(2, "the function gave a module and more than its arguments and keywords", RETURNS)
        if isinstance(arguments, dict) and keywords is None:
            arguments, keywords = (), arguments
        if not isinstance(arguments, (tuple, list)):
            arguments = (arguments,)
        return self._loss_of(module(*arguments, **(keywords or {})), "the module gave", True)

    def _loss_of(self, value, who, sums):
        if sums and not isinstance(value, torch.Tensor):
            loss = value.get("loss") if isinstance(value, dict) else getattr(value, "loss", None)
            if isinstance(loss, torch.Tensor):
                value = loss
            elif isinstance(value, (tuple, list)):
                value = next((each for each in value if isinstance(each, torch.Tensor) and each.requires_grad), value)
        if not isinstance(value, torch.Tensor):
            raise Failure(2, f"{who} {article(value)}, from which no loss can be taken", RETURNS)
        if not value.requires_grad:
            raise Failure(2, f"{who} a tensor that needs no gradient: nothing would be kept for backward", RETURNS)
        if value.numel() == 1:
            return value
        if not sums:
            raise Failure(2, f"{who} a tensor of shape {list(value.shape)}, which is no loss", RETURNS)
        return value.sum()

    def _state_classes(self):
        recorder = self.recorder
        recorder.paused = True
        try:
            for module in self.scopes.modules:
                for name, parameter in module.named_parameters():
                    self._state(parameter, "parameter", name)
                for name, buffer in module.named_buffers():
                    self._state(buffer, "buffer", name)
            for leaf in self.leaves:
                self._state(leaf, "parameter", "")
                if leaf.grad is not None:
                    self._state(leaf.grad, "gradient", "")
        finally:
            recorder.paused = False

    def _state(self, tensor, memory_class, name):
        storage = self.recorder.storage(tensor)
        if storage is None or (storage.memory_class and (storage.name or not name)):
            return
        if memory_class in ("parameter", "buffer") and storage.maker is not None:
            return
        storage.memory_class, storage.name = memory_class, name

    def _first_states(self):
        """The function has called an optimizer itself, for the first time: what that made and left is what later steps find."""
        for storage in self.recorder.storages.values():
            if storage.maker is not None and storage.maker.phase == OPTIMIZER:
                storage.maker.writes.remove(storage)
                storage.maker, storage.memory_class, storage.from_step = None, "optimizer_state", 1
        if any(leaf.grad is not None for leaf in self.leaves):
            self.recorder.note("gradients live when the function ends: a later step begins with them, and this model does not")

    def _optimize(self):
        """The first call makes the states, which later steps find; the second is the one that is listed."""
        recorder = self.recorder
        listed, before = recorder.ops, set(map(id, recorder.storages.values()))
        recorder.ops = [type(listed[0])("", "", OPTIMIZER, None)]
        recorder.enter(OPTIMIZER)
        number_steps()
        self.optimizer.step()
        for storage in recorder.storages.values():
            if id(storage) not in before:
                storage.maker, storage.memory_class, storage.from_step = None, "optimizer_state", 1
        recorder.ops = listed
        self.optimizer.step()


EXCEPTIONS = {
    "DataDependentOutputException": "reads a value from a tensor ({}), and a fake step has no values",
    "DynamicOutputShapeException": "makes a tensor whose shape depends on values ({}), and a fake step has none",
    "UnsupportedOperatorException": "calls an operator without a fake kernel ({})",
    "UnsupportedFakeTensorException": "makes a tensor that a fake step cannot have ({})",
}


def explain(error):
    for kind, what in EXCEPTIONS.items():
        exception = getattr(fake_tensor, kind, None)
        if exception is not None and isinstance(error, exception):
            operator = str(getattr(error, "func", None) or error).splitlines()[0]
            where = place_of(error)
            return f"{where}: " * bool(where) + "the step " + what.format(operator)
    return "the step failed on fake tensors: " + told(error)


def model_of(function, options):
    step = Step(function)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise Failure(2, "--device cuda: this torch sees no CUDA device, which backward needs even on fake tensors",
                      "a build of torch for CUDA finds a stand-in of one; is CUDA_VISIBLE_DEVICES set?")
    try:
        with torch.device(options.device):
            step.run()
    except Failure:
        raise
    except (Exception, SystemExit) as error:
        for found, what in ((step.recorder.remakes, CHECKPOINTS), (step.recorder.differentiates, DIFFERENTIATES)):
            if found:  # which may be what failed
                raise Failure(3, *what) from error
        elsewhere = {storage.device for storage in step.recorder.storages.values()} - {options.device, "cpu"}
        hint = "a step that was recorded has values: liveset run"
        if elsewhere:
            hint = f"its tensors are on {elsewhere.pop()}: give --device cuda"
        raise Failure(3, explain(error), hint) from error
    return text.model_text(step, options)
