"""Module scopes, from torch's global forward hooks: a root module is named by its class, the others by their name
relative to the scope in which they are called, so that the path reads GPT.bs.0.ln1.
"""
import sys
import weakref

from .addresses import data_address, plain_address
from .context import BUFFER, FORWARD, LOSS, PARAMETER, SCOPE_MODULE, SCOPE_REGION
from .tree import buffers_in, modules_in, owned, parameters_in


class Reference(weakref.ref):
    """To a module. `key`, `home`: where its place is looked for."""

    __slots__ = ("key", "home")


class Place:
    """A scope that was entered at least once. Places form the same tree as the scopes; a module is known by its id while its
    weak reference lives."""

    __slots__ = ("scope", "parent", "module", "module_id", "names", "qualified", "children", "changes_phase", "first_parameter",
                 "first_owner", "__weakref__")

    def __init__(self, scope, parent, module, names, qualified, gone=None):
        self.scope = scope
        self.parent = parent
        self.module = Reference(module, gone) if module is not None else _nothing
        self.module_id = id(module) if module is not None else 0
        self.names = names          # {id(module): (weak reference, qualified name)} of the root module above
        self.qualified = qualified  # name below that root
        self.children = {}          # {id(module) or region name: Place}
        self.changes_phase = False
        self.first_parameter = None  # address of its storage, when the module's storages were said last
        self.first_owner = None      # (weak reference to the module that has it, name there)


def _nothing():
    return None


def names_below(module):
    return {id(child): (weakref.ref(child), qualified) for qualified, child in modules_in(module)}


class Modules:
    def __init__(self, context):
        self.context = context
        self.thread = context.thread
        self.roots = {}   # {id(module): Place}
        self.latest = {}  # {id(module): Place}: where a module was called last
        self.is_compiling = getattr(getattr(context.torch, "compiler", None), "is_compiling", lambda: False)
        self.handles = []
        module = context.torch.nn.modules.module.Module
        self.calls = [getattr(module, name).__code__ for name in ("_call_impl", "_wrapped_call_impl") if hasattr(module, name)]
        self.dead = []    # references to modules that are gone
        self.on_new_root = None  # called before the first forward of a root module
        self.warns = None  # torch's own _has_any_global_hook while ours stands in its place

    def install(self):
        module = self.context.torch.nn.modules.module
        before, after = self._hooks()
        self.handles.append(module.register_module_forward_pre_hook(before))
        try:
            self.handles.append(module.register_module_forward_hook(after, always_call=True))
        except TypeError:  # torch before 2.1
            self.handles.append(module.register_module_forward_hook(after))
        self._quieten(module)

    def _quieten(self, module):
        """torch.compile warns at every call of a compiled module when there are global hooks. Ours leave no trace in what is
        compiled, so the warning shall depend on the job's own hooks only."""
        original = getattr(module, "_has_any_global_hook", None)
        if original is None:
            return
        tables = [getattr(module, name) for name in ("_global_forward_pre_hooks", "_global_forward_hooks",
                                                     "_global_forward_hooks_always_called")]
        before, after = self.handles

        def _has_any_global_hook():
            hooks = [table for table in tables if any(key not in (before.id, after.id) for key in table)]
            return bool(hooks or module._global_backward_pre_hooks or module._global_backward_hooks
                        or module._global_forward_hooks_with_kwargs)

        module._has_any_global_hook = _has_any_global_hook
        self.warns = original

    def uninstall(self):
        if self.warns is not None:
            self.context.torch.nn.modules.module._has_any_global_hook = self.warns
            self.warns = None
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self.thread.stack.clear()

    def _hooks(self):
        # Plain functions over local names: they run for every module call of the job.
        is_compiling = self.is_compiling
        thread = self.thread
        failed = self.context.failed
        begin, end, leave = self.context.scope_begin, self.context.scope_end, self.leave
        enter_root, find_child = self.enter_root, self.find_child

        def before(module, arguments):
            if is_compiling():  # a compiler that traces this function must find nothing in it
                return
            try:
                stack = thread.stack
                if not stack:
                    enter_root(module)
                    return
                top = stack[-1]
                place = top.children.get(id(module))
                if place is None or place.module() is not module:
                    place = find_child(top, module)
                stack.append(place)
                begin(place.scope)
            except Exception as error:
                failed(error)

        # On the way of an exception (an early stop is one) torch keeps what a hook raises to itself, a signal handler's exception too.
        def after(module, arguments, result):
            if is_compiling():
                return
            try:
                stack = thread.stack
                if len(stack) > 1 and stack[-1].module_id == id(module):
                    stack.pop()
                    end()
                elif stack:
                    leave(stack, module)
            except Exception as error:
                failed(error)

        return before, after

    def enter_root(self, module):
        context = self.context
        if context.tracing():
            return
        if context.task_id() >= 0:
            # Called inside backward, with no region of ours around: a recompute by a checkpoint class that we do not know.
            place = self.latest.get(id(module))
            if place is None or place.module() is not module:
                place = self.find_root(module)
        else:
            place = self.find_root(module)
            if place.changes_phase:
                self._state_tensors(place, module)
                context.step_begin(context.torch.is_grad_enabled())
                context.phase(FORWARD)
        self.thread.stack.append(place)
        context.scope_begin(place.scope)

    def find_root(self, module):
        place = self.roots.get(id(module))
        if place is not None and place.module() is module:
            return place
        if self.on_new_root is not None:
            self.on_new_root()
        inner = getattr(module, "_orig_mod", module)  # torch.compile's wrapper
        name = type(inner).__name__
        scope = self.context.scope(0, SCOPE_MODULE, self.context.text(name))
        place = Place(scope, None, module, names_below(module), "", self.dead.append)
        # A root without parameters is a criterion or a transform: no forward of a model.
        place.changes_phase = bool(parameters_in(module))
        self._keep(place, self.roots)
        return place

    def find_child(self, top, module):
        """The place of `module` when it is called inside `top`, made when there is none."""
        known = top.names.get(id(module)) if top.names else None
        if known is not None and known[0]() is module:
            qualified = known[1]
            prefix = top.qualified + "."
            relative = qualified[len(prefix):] if top.qualified and qualified.startswith(prefix) else qualified
        else:
            relative = qualified = type(module).__name__
        relative = relative or type(module).__name__
        scope = self.context.scope(top.scope, SCOPE_MODULE, self.context.text(relative))
        if top.module_id == 0 and not top.names:  # a checkpoint region around a whole model
            place = Place(scope, top, module, names_below(module), "", self.dead.append)
            before = self.latest.get(id(module))
            if before is not None and before.module() is module:
                place.first_parameter = before.first_parameter
            if self.context.task_id() < 0:
                self._state_tensors(place, module)
        else:
            place = Place(scope, top, module, top.names, qualified, self.dead.append)
        self._keep(place, top.children)
        return place

    def state_called(self, place):
        """States anew what has moved of models that only this region calls: no forward of a root does."""
        for child in list(place.children.values()):
            module = child.module()
            if module is not None and self.context.task_id() < 0:
                self._state_tensors(child, module)

    def models(self):
        """The modules that no other module calls, be it in a checkpoint region."""
        places = list(self.roots.values())
        found = {}
        for place in places:  # which grows
            module = place.module()
            if place.module_id == 0:
                places += list(place.children.values())
            elif module is not None:
                found[id(module)] = module
        return list(found.values())

    def _keep(self, place, places):
        """Puts a module's place where it is looked for, until the module is gone: models may come and go for ever. A weak reference
        calls no function of Python's, in which an exception of the job's signal handler would be lost: it only lists itself."""
        while self.dead:
            reference = self.dead.pop()
            for known in (reference.home, self.latest):
                found = known.get(reference.key)
                if found is not None and found.module is reference:
                    known.pop(reference.key, None)
        place.module.key, place.module.home = place.module_id, places
        places[place.module_id] = self.latest[place.module_id] = place

    def find_region(self, top, name):
        children = top.children if top is not None else self.roots
        place = children.get(name)
        if place is None:
            scope = self.context.scope(top.scope if top is not None else 0, SCOPE_REGION, self.context.text(name))
            names, qualified = (top.names, top.qualified) if top is not None else ({}, "")
            place = children[name] = Place(scope, top, None, names, qualified)
        return place

    def leave(self, stack, module):
        """Ends the scope of `module`, and those inside it that were left by an exception that no hook saw."""
        wanted = id(module)
        for depth in range(len(stack) - 1, -1, -1):
            if stack[depth].module_id == wanted:
                break
        else:
            return  # it was entered before these hooks were
        root = stack[0]
        self.close_to(stack, depth)
        if not stack and root.changes_phase and self.context.task_id() < 0:
            # Without a graph (an evaluation) no loss will be walked back.
            self.context.phase(LOSS if self.context.torch.is_grad_enabled() else self.thread.base)

    def drop_stale(self):
        """Ends scopes that no call is behind any more: an exception left their modules that torch's hooks do not see (a
        KeyboardInterrupt). Only where it matters: at a backward or an optimizer step that seems to be inside of a module."""
        stack = self.thread.stack
        if not stack:
            return
        frame = sys._getframe()
        while frame is not None:
            if frame.f_code in self.calls:
                return
            frame = frame.f_back
        self.close_to(stack, 0)

    def close_to(self, stack, depth):
        while len(stack) > depth:
            stack.pop()
            self.context.scope_end()

    def _state_tensors(self, place, module):
        """Says which storages are parameters and buffers: when the root is first seen, and again after they moved."""
        first = self._first_parameter(place, module)
        with self.context.quiet():
            try:
                address = -1 if first is None else plain_address(first) if type(first) in self.context._exact_types else data_address(first)
            except (AttributeError, RuntimeError, NotImplementedError, ValueError):
                address = -1  # sparse, lazy, or wrapped by torch.func
            if address == place.first_parameter:
                return
            place.first_parameter = address
            for memory_class, tensors in ((PARAMETER, parameters_in(module)), (BUFFER, buffers_in(module))):
                for name, tensor in tensors:
                    try:
                        self.context.state(memory_class, tensor, self.context.text(name))
                    except Exception as error:  # one that has no storage must not hide the others
                        self.context.failed(error)

    def _first_parameter(self, place, module):
        """Looked up where it was found before: this runs at every forward of a root."""
        if place.first_owner is not None:
            owner, name = place.first_owner
            table = getattr(owner(), "__dict__", {}).get("_parameters")
            first = dict.get(table, name) if isinstance(table, dict) else None
            if first is not None:
                return first
        for _, owner in modules_in(module):
            for name, first in owned(owner, "_parameters"):
                place.first_owner = weakref.ref(owner), name
                return first
        return None
