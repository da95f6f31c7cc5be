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
        self.over = []      # weak references of functions that are gone
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
            starts = self.open.setdefault(id(hook), [])
            starts.append(self.next_number())
            try:
                return enter(hook)
            except BaseException:  # it has no exit
                starts.pop()
                if not starts:
                    self.open.pop(id(hook), None)
                raise

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
        if self.over:
            self._drop_over()
        ordinal = next(self.ordinals)

        try:
            # What it calls is no function of Python's, in which an exception of the job's signal handler would be lost.
            alive = weakref.ref(unpack, self.over.append)
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

    def _drop_over(self):
        del self.over[:]
        for ordinal, found in list(self.ranges.items()):
            if found[2] is not None and found[2]() is None:
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
        if self.over:
            self._drop_over()
        changed = self.changed
        if self.merged[0] is not changed:
            self.merged = changed, self._bounds()
        return bisect.bisect_right(self.merged[1], number) % 2 == 1
