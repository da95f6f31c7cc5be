"""The start and end of every backward: `Variable._execution_engine` is what torch.autograd.backward, torch.autograd.grad and
libraries that bypass both (Megatron) call, so a proxy that forwards everything stands in its place.

torch's own two functions allocate the first gradients (torch.autograd._make_grads) before they call the engine. These are
part of the backward, so for them it begins one call earlier; the engine's proxy then only ends it.
"""
from .addresses import plain_address
from .context import ACTIVATION_GRADIENT, BACKWARD, BACKWARD_BEGIN, BACKWARD_END, GRADIENT, LOSS_VALUE
from .graph import Graph
from .packed import PackedRanges

MOST_STATED = 1 << 17  # a job without an optimizer of torch's never asks for them


class Engine:
    def __init__(self, context, modules, checkpoints):
        self.context = context
        self.modules = modules
        self.checkpoints = checkpoints
        self.packed = None if context.saved_tensors_readable else PackedRanges(context)
        self.graph = checkpoints.graph = Graph(context, self.packed, checkpoints.slot_of)
        self.original = None
        self.make_grads = None

    def install(self):
        variable = self.context.torch.autograd.Variable
        self.original = variable._execution_engine
        variable._execution_engine = EngineProxy(self.original, self)
        autograd = self.context.torch.autograd
        self.make_grads = getattr(autograd, "_make_grads", None)
        if self.make_grads is not None:
            autograd._make_grads = self._early_start(self.make_grads)

    def uninstall(self):
        if self.original is not None:
            self.context.torch.autograd.Variable._execution_engine = self.original
            self.original = None
        if self.make_grads is not None:
            self.context.torch.autograd._make_grads = self.make_grads
            self.make_grads = None

    def _early_start(self, make_grads):
        def before(outputs, *arguments, **keywords):
            try:
                self.end_started()
                self.context.thread.started = self.begin(outputs)
            except Exception as error:
                self.context.failed(error)
            return arguments[0] if arguments else keywords.get("grads", ())

        def after(given, raised, result):
            if raised is not None:
                self.end_started()
            elif self.context.thread.started is not None:
                self._state_first(result, given)

        return self.context.around(before, make_grads, after)

    def _state_first(self, gradients, given):
        """The gradients of the roots: those that torch made, and not the caller."""
        context = self.context
        try:
            given = set(map(id, given or ()))
            with context.quiet():
                for gradient in gradients:
                    if isinstance(gradient, context.Tensor) and id(gradient) not in given:
                        context.state(ACTIVATION_GRADIENT, gradient)
        except Exception as error:
            context.failed(error)

    def end_started(self):
        """Ends a backward that began and never reached the engine."""
        begun, self.context.thread.started = self.context.thread.started, None
        if begun is not None:
            self.end(begun)

    def begin(self, tensors):
        """Before a backward: what the graph retains. -> what end() needs, None when this is no backward of its own."""
        context = self.context
        if context.tracing() or self.modules.is_compiling():
            return None
        if context.task_id() >= 0:
            self.checkpoints.reentrant.state_under(tensors)
            return None
        self.checkpoints.reentrant.forget_older()
        self.modules.drop_stale()
        context.step_begin()  # a model that is no nn.Module has no root forward
        self.checkpoints.install()  # torch.utils.checkpoint may have been imported since
        leaves = []
        nodes = 0
        with context.quiet():
            try:
                nodes, leaves = self.graph.walk(*self._roots(tensors))
                self.checkpoints.state_frames(self.graph.read_node)
                if context.before_backward is not None:
                    context.before_backward()
            except Exception as error:
                context.failed(error)
        context.mark(BACKWARD_BEGIN, nodes)
        # The leaves outlive the call without us: the graph holds them, and the caller holds the graph.
        return leaves, context.phase(BACKWARD)

    def end(self, begun):
        context = self.context
        leaves, before = begun
        thread = context.thread
        # Inside a module's forward (a gradient penalty) forward goes on; otherwise the loss is over.
        context.phase(before if thread.stack else thread.base)
        try:
            with context.quiet():
                self._state_gradients(leaves)
        finally:
            context.mark(BACKWARD_END, 0)

    def _state_gradients(self, leaves):
        context = self.context
        exact_types, named, stated = context._exact_types, context.parameter_name, context.stated_gradients
        storage_tensor = context.storage_tensor
        if len(stated) >= MOST_STATED:
            stated.clear()
        for leaf in leaves:
            try:
                gradient = leaf.grad if leaf.is_leaf else None
                if gradient is None:
                    continue
                name = 0 if named is None else named(leaf)
                plain = type(gradient) in exact_types
                if not plain or not storage_tensor(GRADIENT, gradient, name):
                    context.say(context.storage, GRADIENT, gradient, name)
                    plain = plain and gradient.layout is context.torch.strided
                if plain:
                    stated.add(plain_address(gradient))
            except Exception as error:
                context.failed(error)

    def before_run(self, *arguments, **keywords):
        """Of the engine's run_backward."""
        context = self.context
        begun, create_graph = None, False
        try:
            begun, context.thread.started = context.thread.started, None
            if begun is None:
                begun = self.begin(arguments[0] if arguments else keywords.get("tensors", ()))
            create_graph = bool(arguments[3]) if len(arguments) > 3 else bool(keywords.get("create_graph", False))
        except Exception as error:
            context.failed(error)
        if create_graph:
            context.create_graph(1)
        return begun, create_graph

    def after_run(self, token, raised, result):
        begun, create_graph = token
        if create_graph:
            self.context.create_graph(0)
        if begun is not None:
            try:
                self.end(begun)
            except Exception as error:
                self.context.failed(error)

    def _roots(self, tensors):
        """The graph's first nodes, and the device of the roots; the one-element tensors among the roots are the loss."""
        nodes, device = {}, None
        for root in (tensors,) if isinstance(tensors, self.context.Tensor) else tensors:
            if isinstance(root, self.context.Tensor):
                try:
                    if root.numel() == 1:
                        self.context.state(LOSS_VALUE, root)
                except Exception as error:
                    self.context.failed(error)
                node = root.grad_fn
                device = device or root.device
            else:
                node = root[0]  # a GradientEdge: node, output number
            if node is not None:
                nodes[node] = None
        return nodes, device


class EngineProxy:
    """Forwards everything to the engine that was there."""

    def __init__(self, engine, hooks):
        object.__setattr__(self, "_liveset_engine", engine)
        object.__setattr__(self, "run_backward", hooks.context.around(hooks.before_run, engine.run_backward, hooks.after_run))

    def __getattr__(self, name):
        return getattr(self._liveset_engine, name)

    def __setattr__(self, name, item):
        setattr(self._liveset_engine, name, item)
