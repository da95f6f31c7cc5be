"""--check-replay of reentrant regions: torch.utils.checkpoint.CheckpointFunction."""
from .checkpoints import for_each_tensor
from .replay_record import Moment, Recompute, Record, Slot


class Functions:
    def __init__(self, checker):
        self.checker = checker
        self.context, self.torch, self.states = checker.context, checker.torch, checker.states
        self.values, self.findings, self.watches = checker.values, checker.findings, checker.watches

    def install(self, module):
        function = getattr(module, "CheckpointFunction", None)
        if function is not None:
            patch = self.checker.patch
            patch(function, "apply", lambda _: self._apply(function), classmethod)
            patch(function, "forward", self._forward, staticmethod)
            patch(function, "backward", self._backward, staticmethod)

    def _apply(self, function):
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

    def _forward(self, original):
        def before(*given):
            try:
                ctx, run_function, preserve_rng_state, *arguments = given
                if self.checker.wanted():
                    record = Record("", "", run_function, bool(preserve_rng_state), True)
                    record.devices = {str(item.device) for item in arguments if isinstance(item, self.context.Tensor)}
                    ctx._liveset_replay = record
                    given = (ctx, self._watched(run_function, record), *given[2:])
            except Exception as error:
                self.context.failed(error)
            return None, given
        return self.context.around(before, original, lambda *_: None, True)

    def _watched(self, function, record):
        """Called in forward and, by the same name in the context, in the recompute."""
        def before(*arguments):
            replay, mode = record.replay, None
            if record.begin is not None and replay is None:
                return None
            try:
                with self.context.quiet():
                    inputs = self.checker.inputs(function, arguments, {})
                    if replay is None:
                        record.inputs = inputs
                        self.checker.begin_forward(record)
                        self._say_untrained(record, arguments)
                    else:
                        replay.inputs = inputs
                        replay.begin = Moment(self.states, function)
                mode = self.watches.begin(record if replay is None else replay, True)
            except Exception as error:
                self.context.failed(error)
            return replay, mode

        def after(token, raised, result):
            if token is None:
                return
            replay, mode = token
            try:
                self.watches.end(mode)
                with self.context.quiet():
                    if raised is None:
                        self._outputs(record, replay, result)
                    if replay is None:
                        record.end = self.states.random()
                    else:
                        record.replay = None
                        replay.end = Moment(self.states, function)
                        replay.after = None
                        self.checker.finish(record, replay)
            except Exception as error:
                self.context.failed(error)

        return self.context.around(before, function, after)

    def _outputs(self, record, replay, result):
        made = []
        for_each_tensor(self.context.Tensor, result, made.append)
        (replay or record).outputs += [Slot(*self.checker.described(tensor)) for tensor in made]
        if replay is not None:
            replay.whole = True
            return
        self.findings.count("values", len(made))
        self.findings.count("value_bytes", sum(tensor.numel() * tensor.element_size() for tensor in made))

    def _backward(self, original):
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
