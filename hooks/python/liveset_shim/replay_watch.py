"""The watch over a region's operators: a dispatch mode, which only writes down and forwards. Nothing else of ours is one."""
import sys

MOST_OPERATORS = 20000  # of a region


class Watches:
    """Begins and ends them on the thread's stack of modes."""

    def __init__(self, context, values, states, findings):
        self.context = context
        self.findings = findings
        self.type = _watch_type(context, values, states, findings)
        self.profiled = getattr(context.torch._C._autograd, "_profiler_enabled", lambda: False)

    def begin(self, of, hashing):
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
        mode = self.type(of, hashing)
        # Were it left here by what a signal handler raises, it would be over.
        self.context.thread.watches.append(mode)
        mode.__enter__()
        self.context.thread.watches.remove(mode)
        return mode

    def end(self, mode):
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


def _watch_type(context, values, states, findings):
    """The dispatch mode that writes down what runs and forwards it."""
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
    torch, Tensor, thread = context.torch, context.Tensor, context.thread
    Generator, Parameter = torch._C.Generator, torch.nn.Parameter
    is_grad_enabled, default_generator = torch.is_grad_enabled, torch.default_generator
    generator_state = states.generator
    ignored = {torch.ops.aten.detach.default, torch.ops.prim.device.default}

    class Watch(TorchDispatchMode):
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls):
            return True

        def __init__(self, of, hashing):
            super().__init__()
            self.operators, self.generators, self.made, self.hashing = of.operators, of.generators, of.made, hashing
            self.used = of.used
            self.of = of
            self.off = False

        def is_innermost(self):
            return _get_current_dispatch_mode() is self

        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            keywords = keywords or {}
            if self.off or function in ignored:
                return function(*arguments, **keywords)
            if len(self.operators) >= MOST_OPERATORS:
                if self.of is not None:  # from here on nobody knows who wrote what, and what was used
                    findings.cannot_see(f"operators of a region beyond {MOST_OPERATORS:,}")
                    self.made.clear()
                    self.of.used = self.of = None
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
