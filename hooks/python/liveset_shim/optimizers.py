"""Steps, the optimizer phase, gradients and optimizer state, from torch's global optimizer hooks."""
import importlib
import weakref

from .addresses import data_address, plain_address
from .checkpoints import contents_of
from .context import GRADIENT, OPTIMIZER, OPTIMIZER_STATE, OTHER, PARAMETER


class Optimizers:
    def __init__(self, context, modules):
        self.context = context
        self.modules = modules
        self.handles = []
        self.known_state = {}  # {id(tensor): (weak reference, address)}: state tensors stated before

    def install(self):
        optimizer = importlib.import_module("torch.optim.optimizer")  # torch.optim hides its attribute
        if not hasattr(optimizer, "register_optimizer_step_pre_hook"):  # torch before 2.0
            return
        before, after = self._hooks()
        self.handles = [optimizer.register_optimizer_step_pre_hook(before), optimizer.register_optimizer_step_post_hook(after)]

    def uninstall(self):
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def _hooks(self):
        is_compiling = self.modules.is_compiling

        def before(optimizer, arguments, keywords):
            if is_compiling():
                return
            try:
                self._before(optimizer)
            except Exception as error:
                self.context.failed(error)

        def after(optimizer, arguments, keywords):
            if is_compiling():
                return
            try:
                self._after(optimizer)
            except Exception as error:
                self.context.failed(error)

        return before, after

    def _before(self, optimizer):
        context, thread = self.context, self.context.thread
        if context.tracing():
            return
        self.modules.drop_stale()
        thread.base = OPTIMIZER
        context.phase(OPTIMIZER)
        state, Parameter, stated, named = context.state, context.torch.nn.Parameter, context.stated_gradients, context.parameter_name
        exact_types, strided = context._exact_types, context.torch.strided
        with context.quiet():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    try:
                        if type(parameter) is not Parameter:  # those are known from their modules and from the graph
                            state(PARAMETER, parameter)
                        if parameter.is_leaf:  # .grad of others warns
                            gradient = parameter.grad
                            if gradient is None:
                                continue
                            if type(gradient) not in exact_types or gradient.layout is not strided or plain_address(gradient) not in stated:
                                state(GRADIENT, gradient, 0 if named is None else named(parameter))
                    except Exception as error:
                        context.failed(error)
            stated.clear()

    def _after(self, optimizer):
        context, thread = self.context, self.context.thread
        if context.tracing():
            return
        known, exact_types, strided = self.known_state, context._exact_types, context.torch.strided
        with context.quiet():
            for state in optimizer.state.values():
                try:
                    for item in state.values() if type(state) is dict else (state,):
                        # Most optimizers keep their tensors from step to step: one that is where it was needs no second statement.
                        found = known.get(id(item))
                        if (found is None or found[0]() is not item or type(item) not in exact_types or item.layout is not strided
                                or plain_address(item) != found[1]):
                            self._state_all((item,))
                except Exception as error:
                    context.failed(error)
        thread.base = OTHER
        # Inside backward the phase is what autograd says; elsewhere it is nothing special until the next forward.
        context.phase(OTHER)
        context.step_over()
        if context.on_step_over is not None:
            context.on_step_over()

    def _state_all(self, state, depth=0):
        items = contents_of(state) if isinstance(state, (dict, list, tuple)) else state
        for item in items:
            try:
                if isinstance(item, self.context.Tensor):
                    self._state_one(item)
                elif isinstance(item, (dict, list, tuple)) and depth < 2:
                    self._state_all(item, depth + 1)
            except Exception as error:
                self.context.failed(error)

    def _state_one(self, tensor):
        known = self.known_state
        address = 0
        if tensor.layout is self.context.torch.strided:
            address = plain_address(tensor) if type(tensor) in self.context._exact_types else data_address(tensor)
        found = known.get(id(tensor))
        if found is not None and found[0]() is tensor and found[1] == address:
            return
        if len(known) & 1023 == 1023:
            for key in [key for key, (reference, _) in known.items() if reference() is None]:
                del known[key]
        known[id(tensor)] = weakref.ref(tensor), address
        self.context.state(OPTIMIZER_STATE, tensor)
