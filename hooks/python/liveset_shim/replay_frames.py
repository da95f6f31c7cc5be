"""--check-replay of non-reentrant regions: torch.utils.checkpoint's frame, and its hooks for forward and recompute."""
from .checkpoints import closure_of
from .replay_record import Moment, Recompute, Record, Slot


class Frames:
    def __init__(self, checker):
        self.checker = checker
        self.context, self.torch, self.states = checker.context, checker.torch, checker.states
        self.values, self.findings, self.watches = checker.values, checker.findings, checker.watches

    def install(self, module):
        frame, forward, recompute = (getattr(module, name, None) for name in ("_CheckpointFrame", "_checkpoint_hook", "_recomputation_hook"))
        if frame is None or forward is None or recompute is None:
            self.findings.cannot_see("non-reentrant regions: this torch has other ones")
            return
        patch = self.checker.patch
        patch(frame, "__init__", self._frame_init)
        patch(frame, "save_inputs", self._save_inputs)
        patch(frame, "get_inputs", self._get_inputs)
        patch(forward, "__init__", self._forward_init)
        self.context.region_entered, self.context.region_leaves = self._region_entered, self._region_leaves
        patch(recompute, "__init__", self._recompute_init)
        patch(recompute, "__enter__", self._recompute_enter)
        patch(recompute, "__exit__", self._recompute_exit)

    # --- forward

    def _frame_init(self, original):
        def __init__(frame, recompute_fn, *arguments, **keywords):
            original(frame, recompute_fn, *arguments, **keywords)
            try:
                if self.torch.is_grad_enabled() and self.checker.wanted():
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
                        record.inputs = self.checker.inputs(record.function, arguments, keywords)
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

    def _region_entered(self, hook):
        record = getattr(hook, "_liveset_replay", None)
        if record is not None:
            try:
                with self.context.quiet():
                    self.checker.begin_forward(record)
                hook._liveset_mode = self.watches.begin(record, False)
            except Exception as error:
                self.context.failed(error)

    def _region_leaves(self, hook):
        record = getattr(hook, "_liveset_replay", None)
        if record is not None:
            try:
                self.watches.end(hook._liveset_mode)
                with self.context.quiet():
                    record.end = self.states.random()
            except Exception as error:
                self.context.failed(error)

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
        described = self.checker.described(tensor)
        digest = described[3]
        self.findings.count("values" if digest is not None else "values_not_compared")
        if digest is not None:
            self.findings.count("value_bytes", tensor.numel() * tensor.element_size())
        stack = self.context.thread.stack
        module = self.findings.names_of(stack[-1].scope)[1] if stack else ""
        return Slot(*described, record.made.get(self.values.address(tensor)), module, type(tensor) is self.torch.nn.Parameter,
                    self.values.address(tensor) in record.buffers, len(record.operators))

    # --- recompute

    def _watched(self, function, record):
        def before(*arguments, **keywords):
            replay, mode = record.replay, None
            if replay is not None and replay.begin is None:
                try:
                    with self.context.quiet():
                        replay.inputs = self.checker.inputs(function, arguments, keywords)
                        replay.begin = Moment(self.states, function)
                    mode = self.watches.begin(replay, False)
                except Exception as error:
                    self.context.failed(error)
            return replay, mode

        def after(token, raised, result):
            replay, mode = token
            if replay is None:
                return
            try:
                replay.whole = replay.whole or raised is None
                self.watches.end(mode)
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

    # What a signal handler raises in ours comes before torch's hooks are pushed, or after they are popped.

    def _recompute_enter(self, original):
        def before(hook):
            frame = hook._liveset_replay[0]()
            record = getattr(frame, "_liveset_replay", None)
            if record is not None and record.begin is not None:
                try:
                    with self.context.quiet():
                        record.replay = Recompute()
                        record.replay.before = self.states.random()
                except Exception as error:
                    self.context.failed(error)
        return self.context.around(before, original, None, False, True)

    def _recompute_exit(self, original):
        def after(arguments, raised, result):
            hook, kind = arguments[0], arguments[1] if len(arguments) > 1 else None
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
                        self.checker.finish(record, replay)
                except Exception as error:
                    self.context.failed(error)
        return self.context.around(None, original, after, False, True)

    def _remade(self, frame, gid, record):
        """{index: what _slot() says} of the tensors that a recompute made for holders that live."""
        made = {}
        tensors = frame.recomputed[gid] if gid in frame.recomputed else {}
        for index, reference in enumerate(frame.weak_holders):
            holder = reference()
            handle = holder.handles.get(gid) if holder is not None else None
            tensor = tensors.get(handle) if handle is not None else None
            if tensor is not None and index < len(record.slots):
                made[index] = Slot(*self.checker.described(tensor))
        return made
