"""What Python holds (`liveset run --who-holds`): references to tensors that are no parameter, buffer, gradient or optimizer state.

A scan looks at the interpreter's objects at the ends of a few steps and at the end of the job (scan.py), and states for the storage
of each tensor what holds it. It ends when its time is over; what the scans came to is said at the end. Streams that
Tensor.record_stream names are stated too: a block comes back to its allocator only when they have got there.
"""
import atexit
import json
import os
import time

from .scan import Scan

BUDGET_SECONDS = 0.2  # of processor time, unless LIVESET_WHO_HOLDS_SECONDS says how many
MOST_NAMES = 1000  # strings are kept for ever by the trace
LONGEST_NAME = 300


class Holders:
    def __init__(self, context):
        self.context = context
        self.every = whole_number(os.environ.get("LIVESET_WHO_HOLDS"))
        self.budget = whole_number(os.environ.get("LIVESET_WHO_HOLDS_SECONDS")) or BUDGET_SECONDS
        self.steps = self.scans = self.cut_short = self.tensors = self.named = 0
        self.longest = 0.0
        self.texts = {}
        self.before = None  # what else is called when a step is over
        self.streams = False

    def install(self):
        if not self.every:
            return
        context = self.context
        self.before, context.on_step_over = context.on_step_over, self._step_over
        atexit.register(self._end)
        tensor = context.torch.Tensor
        if "record_stream" not in tensor.__dict__ and hasattr(tensor, "record_stream"):
            tensor.record_stream = self._recorded_stream(tensor.record_stream)
            self.streams = True

    def uninstall(self):
        if not self.every:
            return
        self.every = 0
        atexit.unregister(self._end)
        if self.streams:
            del self.context.torch.Tensor.record_stream
            self.streams = False

    def _recorded_stream(self, original):
        context = self.context

        def record_stream(tensor, stream):
            result = original(tensor, stream)
            try:
                if self.every and not context.tracing():
                    with context.quiet():
                        context.say(context.holder, 0, tensor, self._text(f"stream {stream.stream_id}, by record_stream"))
            except Exception as error:
                context.failed(error)
            return result

        return record_stream

    def _step_over(self):
        if self.before is not None:
            self.before()
        self.steps += 1
        # The first step makes things that later ones do not.
        if self.every and self.steps % self.every == 2 % self.every:
            self.scan()

    def _end(self):
        if not self.every:
            return
        self.scan()
        try:
            said = {"scans": self.scans, "longest_ms": round(1000 * self.longest, 1), "cut_short": self.cut_short, "tensors": self.tensors,
                    "named": self.named}
            self.context.attribute(self.context.text("liveset.who_holds"), self.context.string(json.dumps(said)))
        except Exception as error:
            self.context.failed(error)

    def scan(self):
        begin = time.thread_time()
        try:
            with self.context.quiet():
                self.cut_short += not Scan(self.context.torch, begin + self.budget).run(self._state)
        except Exception as error:
            self.context.failed(error)
        self.scans += 1
        spent = time.thread_time() - begin
        self.longest = max(self.longest, spent)
        if spent > self.budget:  # an interpreter of many objects: more seldom, then
            self.every = min(2 * self.every, 1 << 30)

    def _state(self, tensor, names):
        self.tensors += 1
        if names:
            self.named += 1
            self.context.say(self.context.holder, 0, tensor, self._text("; ".join(names)))

    def _text(self, text):
        found = self.texts.get(text)
        if found is None:
            if len(self.texts) >= MOST_NAMES:
                return self.context.text("a Python reference (more different ones than are named)")
            found = self.texts[text] = self.context.string(text[:LONGEST_NAME])
        return found


def whole_number(text):
    """A whole number of 0 or more; 0 for what is none."""
    try:
        return max(0, int(text))
    except (TypeError, ValueError):
        return 0
