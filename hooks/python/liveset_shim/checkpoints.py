"""Non-reentrant checkpoint regions (torch.utils.checkpoint): their scopes in forward and in recompute, and what their frames hold.

The graph's nodes hold only placeholders for what a region saves; the inputs and random states hang on the region's
_CheckpointFrame. Since torch 2.14 a frame keeps tensor arguments as SavedTensor objects in `saved_args`; before that they
were saved on an autograd node, `input_saver`. Keyword arguments and random states are in recompute_fn's closure.
"""
import sys
import weakref

from .context import CHECKPOINT_INPUT, FORWARD, LOSS, RECOMPUTE, RNG_STATE

MODULE = "torch.utils.checkpoint"
# Names are kept for ever by the trace: a job whose steps never end must not make new ones without bound.
MOST_REGIONS = 10000


class Checkpoints:
    def __init__(self, context, modules):
        self.context = context
        self.modules = modules
        self.frames = weakref.WeakSet()  # not stated yet
        self.patched = None

    def install(self):
        module = sys.modules.get(MODULE)
        if self.patched is not None or not hasattr(module, "_CheckpointFrame") or not hasattr(module, "_checkpoint_hook"):
            return
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
        def __init__(frame, recompute_fn, *arguments, **keywords):
            region = None
            try:
                if not self.modules.is_compiling() and not self.context.tracing() and self.context.torch.is_grad_enabled():
                    region = self._new_region()
            except Exception as error:
                self.context.failed(error)
            original(frame, recompute_fn if region is None else self._marked(recompute_fn, region), *arguments, **keywords)
            if region is not None:
                frame._liveset_region = region
                self.frames.add(frame)
        return __init__

    def _hook_init(self, original):
        def __init__(hook, frame, *arguments, **keywords):
            original(hook, frame, *arguments, **keywords)
            hook._liveset_region = getattr(frame, "_liveset_region", None)
        return __init__

    def _hook_enter(self, original):
        def __enter__(hook):
            result = original(hook)
            if hook._liveset_region is not None:
                self._enter(hook._liveset_region)
            return result
        return __enter__

    def _hook_exit(self, original):
        def __exit__(hook, *arguments):
            if hook._liveset_region is not None:
                self._leave(hook._liveset_region)
            return original(hook, *arguments)
        return __exit__

    def _new_region(self):
        """Place of the next region: it is named by its ordinal in the step."""
        context, thread = self.context, self.context.thread
        stack = thread.stack
        if not stack and context.task_id() < 0:
            step = context.step_begin()  # a region outside of any module is a root itself
        else:
            step = context.current_step()
        if thread.step != step:
            thread.step, thread.regions = step, 0
        ordinal, thread.regions = thread.regions, thread.regions + 1
        name = f"checkpoint:{ordinal}" if ordinal < MOST_REGIONS else "checkpoint:more"
        return self.modules.find_region(stack[-1] if stack else None, name)

    def _enter(self, region):
        try:
            stack = self.context.thread.stack
            if not stack and self.context.task_id() < 0:
                self.context.phase(FORWARD)
            stack.append(region)
            self.context.scope_begin(region.scope)
        except Exception as error:
            self.context.failed(error)

    def _leave(self, region):
        try:
            thread = self.context.thread
            for depth in range(len(thread.stack) - 1, -1, -1):
                if thread.stack[depth] is region:
                    self.modules.close_to(thread.stack, depth)
                    if depth == 0 and self.context.task_id() < 0:
                        self.context.phase(LOSS)
                    break
        except Exception as error:
            self.context.failed(error)

    def _marked(self, recompute_fn, region):
        """recompute_fn inside its region's scope, phase recompute. It ends by an exception when it stops early."""
        context, modules = self.context, self.modules

        def recompute(*arguments, **keywords):
            before = depth = None
            try:
                stack = context.thread.stack
                depth = len(stack)
                before = context.phase(RECOMPUTE)  # first: readers know a recompute by the phase in which its region begins
                stack.append(region)
                context.scope_begin(region.scope)
            except Exception as error:
                context.failed(error)
            try:
                return recompute_fn(*arguments, **keywords)
            finally:
                try:
                    if depth is not None:
                        modules.close_to(context.thread.stack, depth)
                    if before is not None:
                        context.phase(before)
                except Exception as error:
                    context.failed(error)

        recompute._liveset_original = recompute_fn
        return recompute

    def state_frames(self, read_node):
        """Says what the frames that came up since the last call hold. `read_node(node)`: tensors that an autograd node saved."""
        frames, self.frames = self.frames, weakref.WeakSet()
        for frame in frames:
            try:
                self._state_frame(frame, read_node)
            except Exception as error:
                self.context.failed(error)

    def _state_frame(self, frame, read_node):
        context = self.context
        say_input = lambda tensor: context.state(CHECKPOINT_INPUT, tensor)
        say_state = lambda tensor: context.state(RNG_STATE, tensor)
        for argument in getattr(frame, "saved_args", ()):
            for_each_tensor(context.Tensor, getattr(argument, "data", argument), say_input)
        saver = getattr(frame, "input_saver", None)
        if saver is not None:
            for tensor in read_node(saver):
                say_input(tensor)
        held = closure_of(getattr(frame.recompute_fn, "_liveset_original", None))
        for_each_tensor(context.Tensor, held.get("fwd_cpu_state"), say_state)
        for_each_tensor(context.Tensor, held.get("fwd_device_states"), say_state)
        for_each_tensor(context.Tensor, held.get("kwargs"), say_input)
        for_each_tensor(context.Tensor, held.get("args"), say_input)
        # A lambda's captured tensors live as long as the frame too.
        for_each_tensor(context.Tensor, list(closure_of(held.get("fn")).values()), say_input)


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
        for inner in item.values() if isinstance(item, dict) else item:
            for_each_tensor(tensor_type, inner, say, depth + 1)
