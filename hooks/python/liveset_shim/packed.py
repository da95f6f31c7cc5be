"""Which nodes of an autograd graph cannot be read without running a hook: torch before 2.14 shows what a slot holds only by unpacking it."""
import bisect
import itertools
import weakref


class PackedRanges:
    """Which nodes were made while saved-tensor hooks were on: ranges of autograd's sequence numbers. Numbers are per thread, and
    a node does not know its thread, so a range counts for all of them: rather a slot unread than a hook run.

    A slot that a hook packed keeps that hook's unpack function, so a range is over when that function is gone."""

    MOST = 4096  # ranges of functions that live on; then the older half becomes one range

    def __init__(self, context):
        self.ranges = {}    # {ordinal: (first number, number after the last, weak reference to the unpack function)}
        self.open = {}      # {id(hook): [first number]}: hooks that are on
        self.changed = object()  # another one at every change of the ranges
        self.merged = None, []   # what `changed` was, and their bounds then, ascending and disjoint: first, end, first, end ...
        self.ordinals = itertools.count()
        self.next_number = context.torch._C._autograd._get_sequence_nr
        self.hooks = context.torch.autograd.graph.saved_tensors_hooks
        self.original = (self.hooks.__enter__, self.hooks.__exit__)

    def install(self):
        enter, leave = self.original

        def __enter__(hook):
            number = self.next_number()
            result = enter(hook)  # one that raises has no exit
            self.open.setdefault(id(hook), []).append(number)
            return result

        def __exit__(hook, *arguments):
            result = leave(hook, *arguments)
            starts = self.open.get(id(hook))
            if starts:
                self.add(starts[-1], self.next_number(), hook.unpack_hook)
                starts.pop()  # only now: in between, another thread shall find the one or the other
                if not starts:
                    self.open.pop(id(hook), None)
            return result

        self.hooks.__enter__, self.hooks.__exit__ = __enter__, __exit__

    def uninstall(self):
        self.hooks.__enter__, self.hooks.__exit__ = self.original

    def add(self, first, end, unpack):
        if first >= end:
            return
        ordinal = next(self.ordinals)

        def over(_):
            self.ranges.pop(ordinal, None)
            self.changed = object()
        try:
            alive = weakref.ref(unpack, over)
        except TypeError:  # it cannot be watched, so it counts as alive for ever
            alive = None
        self.ranges[ordinal] = first, end, alive
        self.changed = object()
        if len(self.ranges) > self.MOST:
            self._fold()

    def _fold(self):
        older = sorted(self.ranges)[:self.MOST // 2]
        folded = [found for found in map(self.ranges.get, older) if found is not None]
        if folded:
            self.ranges[next(self.ordinals)] = min(first for first, _, _ in folded), max(end for _, end, _ in folded), None
        for ordinal in older:
            self.ranges.pop(ordinal, None)
        self.changed = object()

    def _bounds(self):
        bounds = []
        for first, end in sorted(found[:2] for found in list(self.ranges.values())):
            if bounds and first <= bounds[-1]:
                bounds[-1] = max(bounds[-1], end)
            else:
                bounds += first, end
        return bounds

    def __contains__(self, node):
        number = node._sequence_nr()
        if any(number >= starts[0] for starts in list(self.open.values()) if starts):
            return True
        changed = self.changed
        if self.merged[0] is not changed:
            self.merged = changed, self._bounds()
        return bisect.bisect_right(self.merged[1], number) % 2 == 1
