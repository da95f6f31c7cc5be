"""Checkpoint regions of any kind: their names, their scopes in forward and in recompute, and what is said of them.

A region is one execution of a checkpointed function. It is named by its ordinal in the step, under the module that calls it;
a region that a recompute opens is numbered from the recomputed one's ordinal on, as it was in forward, so it has its name
again. Within a recompute, the region whose scope ends with the attribute "recompute" is the one that was made again; an inner one
that is new there begins with the attribute "checkpoint", as in forward.
"""
import json
import threading

from .context import FORWARD, LOSS, RECOMPUTE

# Names are kept for ever by the trace: a job whose steps never end must not make new ones without bound.
MOST_REGIONS = 10000
MOST_ARGUMENTS = 64  # of which dtype and device are said


class Region:
    __slots__ = ("place", "scope", "step", "ordinal", "frame", "__weakref__")

    def __init__(self, place, step, ordinal):
        self.place = place
        self.scope = place.scope
        self.step = step
        self.ordinal = ordinal
        self.frame = None  # of a selective region, a weak reference: what keeps its outputs


class ThreadRegions(threading.local):
    """Of the calling thread. `given_up`: how many reentrant regions are open, whose inside builds no graph."""

    def __init__(self):
        self.given_up = 0
        self.numbers_seen = 0  # nodes with sequence numbers below this one were stated, or are of no interest


class Regions:
    def __init__(self, context, modules):
        self.context = context
        self.modules = modules
        self.local = ThreadRegions()
        self.said = {}  # {what is said of a region at its entry: string id}
        self.recompute_key = context.text("recompute")
        self.checkpoint_key = context.text("checkpoint")

    def untraced(self):
        """Whether this call is the job's and not a compiler's."""
        return not self.modules.is_compiling() and not self.context.tracing()

    def count(self):
        """Takes the next ordinal of the step. -> step, ordinal"""
        context, thread = self.context, self.context.thread
        if not thread.stack and context.task_id() < 0:
            step = context.step_begin()  # a region outside of any module is a root itself
        else:
            step = context.current_step()
        if thread.step != step:
            thread.step, thread.regions = step, 0
        ordinal, thread.regions = thread.regions, thread.regions + 1
        return step, ordinal

    def new(self):
        step, ordinal = self.count()
        stack = self.context.thread.stack
        name = f"checkpoint:{ordinal}" if ordinal < MOST_REGIONS else "checkpoint:more"
        return Region(self.modules.find_region(stack[-1] if stack else None, name), step, ordinal)

    def enter(self, region, facts):
        """`facts()`: what describe() wants."""
        try:
            stack = self.context.thread.stack
            if not stack and self.context.task_id() < 0:
                self.context.phase(FORWARD)
            stack.append(region.place)
            self.context.scope_begin(region.scope)
            if not region.place.names:
                self.modules.state_called(region.place)
            self.describe(*facts())
        except Exception as error:
            self.context.failed(error)

    def leave(self, region):
        try:
            stack = self.context.thread.stack
            for depth in range(len(stack) - 1, -1, -1):
                if stack[depth] is region.place:
                    self.modules.close_to(stack, depth)
                    if depth == 0 and self.context.task_id() < 0:
                        self.context.phase(LOSS)
                    break
        except Exception as error:
            self.context.failed(error)

    def describe(self, kind, arguments, autocast, early_stop, preserve_rng):
        """Says what a region is, in its scope. `arguments`: tensors or None where they cannot be seen; `autocast`: (device, dtype)."""
        dtypes = None if arguments is None else tuple([tensor.dtype for tensor in arguments[:MOST_ARGUMENTS]])
        devices = None if arguments is None else frozenset([tensor.device for tensor in arguments[:MOST_ARGUMENTS]])
        facts = kind, dtypes, devices, autocast, early_stop, preserve_rng
        text = self.said.get(facts)
        if text is None:
            said = {"kind": kind, "input_dtypes": dtypes and [name_of(dtype) for dtype in dtypes],
                    "autocast": autocast and {"device": autocast[0], "dtype": name_of(autocast[1])},
                    "early_stop": early_stop, "preserve_rng": preserve_rng}
            if dtypes is None:
                del said["input_dtypes"]
            else:
                said["input_devices"] = sorted(map(str, devices))
            text = self.context.string(json.dumps(said))
            if len(self.said) < 1024:
                self.said[facts] = text
        self.context.attribute(self.checkpoint_key, text)

    def begin_recompute(self, region):
        """-> what end_recompute() needs, None after an error of ours."""
        try:
            context, thread = self.context, self.context.thread
            before = context.phase(RECOMPUTE)  # first: readers know a recompute by the phase in which its region begins
            state = len(thread.stack), before, thread.step, thread.regions
            thread.step, thread.regions = context.current_step(), region.ordinal + 1
            thread.stack.append(region.place)
            context.scope_begin(region.scope)
            return state
        except Exception as error:
            self.context.failed(error)
        return None

    def end_recompute(self, state, early_stopped, raised, say_remade):
        """`raised`: type of the exception that ended it, if any. `say_remade()`: what there is to say in the region's scope."""
        if state is None:
            return
        context, thread = self.context, self.context.thread
        depth, phase, step, ordinals = state
        try:
            self.modules.close_to(thread.stack, depth + 1)  # modules that an exception left without torch's hooks
            if len(thread.stack) > depth:
                say_remade()
                said = {"early_stopped": early_stopped}
                if raised is not None:
                    said["raised"] = raised.__name__
                context.attribute(self.recompute_key, context.text(json.dumps(said)))
        except Exception as error:
            context.failed(error)
        try:
            self.modules.close_to(thread.stack, depth)
            thread.step, thread.regions = step, ordinals
            context.phase(phase)
        except Exception as error:
            context.failed(error)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def autocast_of(device_type, device, cpu):
    """(device, dtype) of the autocast that is on, from what checkpoint notes of it: keyword arguments for the device and the CPU."""
    for name, keywords in ((device_type, device), ("cpu", cpu)):
        if keywords and keywords.get("enabled"):
            return name, keywords.get("dtype")
    return None
