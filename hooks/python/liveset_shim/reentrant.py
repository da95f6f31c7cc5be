"""Reentrant checkpoint regions (torch.utils.checkpoint.CheckpointFunction), and graphs that a backward builds in general.

In forward such a region runs without a graph. Its node's backward runs the function again with one, and calls the engine for that
graph alone: what it holds is said before, by slot names. The same is said of the graph under any backward that is called
inside of a backward (checkpoint functions that libraries bring), as far as it was built in this backward.
"""
import sys

from .around import original_of
from .checkpoints import MODULE, for_each_tensor
from .context import PARAMETER, RECOMPUTED_ACTIVATION
from .graph import CHECKPOINT_NODE
from .regions import autocast_of


class Reentrant:
    def __init__(self, context, checkpoints):
        self.context = context
        self.checkpoints = checkpoints
        self.regions = checkpoints.regions
        self.patched = None
        self.next_number = getattr(context.torch._C._autograd, "_get_sequence_nr", None)
        checkpoints.reentrant = self

    def install(self):
        function = getattr(sys.modules.get(MODULE), "CheckpointFunction", None)
        if self.patched is not None or function is None:
            return
        self.patched = function, function.__dict__.get("forward"), function.__dict__.get("backward")
        function.forward = staticmethod(self._forward(function.forward))
        function.backward = staticmethod(self._backward(function.backward))

    def uninstall(self):
        if self.patched is not None:
            function, function.forward, function.backward = self.patched
            self.patched = None

    def _forward(self, original):
        regions = self.regions

        def before(ctx, run_function, preserve_rng_state, *arguments):
            region = None
            try:
                # Without a graph above it this is no region, unless the one around it will be made again, and this one with it.
                if regions.untraced() and (ctx.next_functions or regions.local.given_up):
                    region = regions.new()
            except Exception as error:
                self.context.failed(error)
            if region is None:
                return None, (ctx, run_function, preserve_rng_state, *arguments)

            def enter(*inputs, **keywords):
                regions.enter(region, lambda: self._facts(ctx, inputs, preserve_rng_state))
                regions.local.given_up += 1

            def leave(token, raised, result):
                regions.local.given_up -= 1
                regions.leave(region)

            run = self.context.around(enter, run_function, leave)
            return (ctx, region, run), (ctx, run, preserve_rng_state, *arguments)

        def after(token, raised, result):
            try:
                if token is not None:
                    ctx, region, run = token
                    if getattr(ctx, "run_function", None) is run:
                        ctx.run_function = original_of(run)
                    ctx._liveset_region = region
            except Exception as error:
                self.context.failed(error)

        return self.context.around(before, original, after, True)

    def _facts(self, ctx, inputs, preserve_rng_state):
        tensors = []
        for_each_tensor(self.context.Tensor, inputs, tensors.append)
        autocast = autocast_of(getattr(ctx, "device_type", None), getattr(ctx, "device_autocast_kwargs", None),
                               getattr(ctx, "cpu_autocast_kwargs", None))
        return "reentrant", tensors, autocast, False, bool(preserve_rng_state)

    def _backward(self, original):
        def before(ctx, *gradients):
            try:
                region = getattr(ctx, "_liveset_region", None)
                function = getattr(ctx, "run_function", None)
                if region is not None and function is not None:
                    ctx.run_function = self._recomputing(function, region)
                    return ctx, function
            except Exception as error:
                self.context.failed(error)
            return None

        def after(token, raised, result):
            try:
                if token is not None:
                    ctx, ctx.run_function = token
            except Exception as error:
                self.context.failed(error)

        return self.context.around(before, original, after)

    def _recomputing(self, function, region):
        regions, local = self.regions, self.regions.local

        def before(*inputs, **keywords):
            given_up, local.given_up = local.given_up, 0  # this run builds a graph, whatever was around the call that began the backward
            try:
                self.forget_older()
            except Exception as error:
                self.context.failed(error)
            return regions.begin_recompute(region), given_up

        def after(token, raised, result):
            state, given_up = token
            outputs = () if raised is not None else result
            try:
                regions.end_recompute(state, False, raised, lambda: self._say_outputs(outputs, region.scope))
            finally:
                local.given_up = given_up

        return self.context.around(before, function, after)

    def _say_outputs(self, outputs, scope):
        tensors = []
        for_each_tensor(self.context.Tensor, outputs, tensors.append)
        self.state_graph([tensor.grad_fn for tensor in tensors], scope)

    def forget_older(self):
        """Nodes that were made before now are not made in a recompute."""
        if self.next_number is not None:
            self.regions.local.numbers_seen = self.next_number()

    def state_under(self, tensors):
        """Before a backward inside of a backward."""
        tensors = (tensors,) if isinstance(tensors, self.context.Tensor) else tensors
        self.state_graph([root.grad_fn if isinstance(root, self.context.Tensor) else root[0] for root in tensors])

    def state_graph(self, roots, scope=0):
        """Says what the graph under these nodes holds, as far as this thread built it since the last call: by sequence numbers, which
        rise per thread. Nodes of another thread may have such a number too; they are as few as those that were built."""
        context, local, graph = self.context, self.regions.local, self.checkpoints.graph
        if self.next_number is None or graph is None:
            return
        first, local.numbers_seen = local.numbers_seen, self.next_number()
        if first >= local.numbers_seen:
            return
        numbers = range(first, local.numbers_seen)
        nodes = [node for node in dict.fromkeys(roots) if node is not None]
        seen = set(nodes)
        with context.quiet():
            while nodes:
                node = nodes.pop()
                if node._sequence_nr() not in numbers:
                    continue
                for following, _ in node.next_functions:
                    if following is not None and following not in seen:
                        seen.add(following)
                        nodes.append(following)
                try:
                    self._state_node(graph, node, scope)
                except Exception as error:
                    context.failed(error)

    def _state_node(self, graph, node, scope):
        known = graph.known_of(node)
        if known is None:
            self._state_python_node(graph, node, scope)
            return
        for name, content in graph.contents(node, known):
            if content is not None:
                for_each_tensor(self.context.Tensor, content, lambda tensor, name=name: self._remade(tensor, name, scope))

    def _state_python_node(self, graph, node, scope):
        label = type(node).__name__
        if label == CHECKPOINT_NODE:
            graph._python_node(node)  # a region inside: its inputs and random states
            return
        name = self.context.text(f"{label}.saved_tensors")
        for tensor in graph.read_node(node):
            self._remade(tensor, name, scope)

    def _remade(self, tensor, name, scope):
        memory_class = PARAMETER if isinstance(tensor, self.context.torch.nn.Parameter) else RECOMPUTED_ACTIVATION
        self.context.say(self.context.remake, memory_class, tensor, name, -1, scope)
