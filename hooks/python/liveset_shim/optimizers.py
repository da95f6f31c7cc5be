"""Steps, the optimizer phase, gradients and optimizer state, from torch's global optimizer hooks."""
import importlib

from .context import GRADIENT, OPTIMIZER, OPTIMIZER_STATE, OTHER, PARAMETER


class Optimizers:
    def __init__(self, context, modules):
        self.context = context
        self.modules = modules
        self.handles = []

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
        state = context.state
        with context.quiet():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    try:
                        state(PARAMETER, parameter)
                        if parameter.is_leaf:  # .grad of others warns
                            gradient = parameter.grad
                            if gradient is not None:
                                state(GRADIENT, gradient)
                    except Exception as error:
                        context.failed(error)

    def _after(self, optimizer):
        context, thread = self.context, self.context.thread
        if context.tracing():
            return
        with context.quiet():
            for state in optimizer.state.values():
                self._state_all(state)
        thread.base = OTHER
        # Inside backward the phase is what autograd says; elsewhere it is nothing special until the next forward.
        context.phase(OTHER)
        context.step_over()

    def _state_all(self, state, depth=0):
        items = state.values() if isinstance(state, dict) else state
        for item in items:
            try:
                if isinstance(item, self.context.Tensor):
                    self.context.state(OPTIMIZER_STATE, item)
                elif isinstance(item, (dict, list, tuple)) and depth < 2:
                    self._state_all(item, depth + 1)
            except Exception as error:
                self.context.failed(error)
