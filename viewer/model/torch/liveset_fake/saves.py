"""What autograd's graph holds when backward begins: a walk from the loss over the slots of every node."""
import torch

python_node = torch._C._FunctionBase


class HookRanges:
    """Sequence numbers of the nodes that were made while saved-tensor hooks of the script were on: their slots hold what those hooks
    made, and reading one runs the hooks (a recompute, where it is a checkpoint's)."""

    def __init__(self):
        self.open, self.ranges = [], []
        self.enter, self.leave = torch.autograd.graph.saved_tensors_hooks.__enter__, torch.autograd.graph.saved_tensors_hooks.__exit__

    def __enter__(self):
        def enter(hooks):
            self.open.append(torch.autograd._get_sequence_nr())
            return self.enter(hooks)

        def leave(hooks, *error):
            if self.open:
                self.ranges.append((self.open.pop(), torch.autograd._get_sequence_nr()))
            return self.leave(hooks, *error)

        torch.autograd.graph.saved_tensors_hooks.__enter__ = enter
        torch.autograd.graph.saved_tensors_hooks.__exit__ = leave
        return self

    def __exit__(self, *_):
        torch.autograd.graph.saved_tensors_hooks.__enter__ = self.enter
        torch.autograd.graph.saved_tensors_hooks.__exit__ = self.leave

    def has(self, number):
        return any(begin <= number < end for begin, end in self.ranges) or any(begin <= number for begin in self.open)


class Walk:
    """`slots`: [(sequence number, node's name, slot's name, tensor)], nodes in the order of a breadth-first walk; `leaves`: variables."""

    def __init__(self, roots, hooks):
        self.slots, self.leaves, self.names, self.unread = [], [], {}, 0
        self.attributes = {}
        nodes = [root for root in roots if root is not None]
        seen = set(nodes)
        for node in nodes:
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    nodes.append(following)
        for node in nodes:
            variable = getattr(node, "variable", None)
            if isinstance(variable, torch.Tensor):
                self.leaves.append(variable)
                continue
            number = node._sequence_nr()
            kind = type(node).__name__
            self.names[number] = kind
            if hooks.has(number):
                self.unread += 1
                continue
            self._read(node, number, kind)

    def _read(self, node, number, kind):
        if isinstance(node, python_node):
            for index, tensor in enumerate(self._value(node, "saved_tensors") or ()):
                self._add(number, kind, f"saved_tensors[{index}]", tensor)
            return
        names = self.attributes.get(type(node))
        if names is None:
            raw = "_raw_saved_"
            names = self.attributes[type(node)] = [name[len(raw):] for name in dir(type(node)) if name.startswith(raw)]
        for name in names:
            self._add(number, kind, name, self._value(node, "_saved_" + name))

    def _value(self, node, name):
        try:
            return getattr(node, name)
        except RuntimeError:  # freed by an earlier backward, or changed since: backward itself will say so
            return None

    def _add(self, number, kind, slot, value):
        if isinstance(value, torch.Tensor):
            self.slots.append((number, kind, f"{kind}.{slot}", value))
        elif isinstance(value, (list, tuple)):
            for each in value:
                self._add(number, kind, slot, each)
