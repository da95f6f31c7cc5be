"""One look at the interpreter: which Python objects hold tensors that are no part of a model or an optimizer, and what they are called.

First come the names that can be looked up: globals of modules, and locals of the functions that run. What has none there is followed
upwards by gc.get_referrers, a level of containers at a time, DEPTH levels at most; after each level its containers are looked up too.
No code of the job runs for it: attributes are read from where they lie, and tensors are compared by identity only. All that
it holds of the job, it lets go at its end.
"""
import collections
import gc
import inspect
import os
import sys
import time
import types

from .addresses import storage_address
from .checkpoints import contents_of

MOST_TENSORS = 256   # the largest
MOST_FOLLOWED = 16   # objects of one level: get_referrers compares every reference of the interpreter with each of them
MOST_REFERRERS = 256
MOST_SHOWN = 3       # names of one tensor
DEPTH = 4
FRAMES = 200
OURS = os.path.dirname(os.path.abspath(__file__))
SNAPSHOTS = sys.version_info < (3, 13)  # a function's f_locals is a copy, which its frame keeps
CONTAINERS = {list: "a list", tuple: "a tuple", dict: "a dict", set: "a set", collections.deque: "a deque", types.CellType: None,
              collections.OrderedDict: "a dict", collections.defaultdict: "a dict"}
bases_of = type.__dict__["__mro__"].__get__


class Node:
    """An object on the way from tensors upwards. `label`: what is known of the way below."""

    __slots__ = ("item", "origins", "label", "key")

    def __init__(self, item, origins, label="", key=None):
        self.item = item
        self.origins = origins  # ids of tensors
        self.label = label
        self.key = key


class Scan:
    def __init__(self, torch, deadline):
        self.torch = torch
        self.deadline = deadline
        self.names = {}    # {id of a tensor: [name]}
        self.globals = {}  # {id of a module's dict: (dict, its file)}
        self.mine = set()  # ids of our own containers of the job's objects

    def run(self, state):
        """Calls state(tensor, names) for each tensor. -> whether there was time for all of it"""
        tensors = []
        try:
            tensors = self._tensors()
            self.mine.add(id(tensors))
            self._find_globals()
            named = self._look_up({id(tensor): tensor for tensor in tensors})
            for key, texts in named.items():
                self.names[key] = texts
            unnamed = [tensor for tensor in tensors if id(tensor) not in named]
            whole = len(unnamed) <= MOST_FOLLOWED and not self._late()
            del unnamed[MOST_FOLLOWED:]
            self.mine.add(id(unnamed))
            if unnamed:
                whole = self._follow(unnamed) and whole
            for tensor in tensors:
                state(tensor, self.names.get(id(tensor), ()))
            return whole
        finally:
            tensors.clear()
            self.globals.clear()
            unnamed = tensor = None

    def _late(self):
        return time.thread_time() > self.deadline

    def _tensors(self):
        """The largest tensors that are no part of a model or an optimizer."""
        torch = self.torch
        wanted = {torch.Tensor: [], torch.nn.Parameter: [], torch.nn.Module: [], torch.optim.Optimizer: []}
        objects = gc.get_objects()
        item = None
        try:
            bases = {kind: kind if kind is torch.Tensor else next((base for base in bases_of(kind) if base in wanted), None)
                     for kind in set(map(type, objects))}
            bases = {kind: base for kind, base in bases.items() if base is not None and (base is not torch.Tensor or kind is base)}
            for item in [item for item in objects if type(item) in bases]:
                wanted[bases[type(item)]].append(item)
            objects = None
            known = {0}
            for item in wanted[torch.nn.Parameter]:
                known.add(address_of(item))
                if item.is_leaf:
                    known.add(address_of(item.grad))
            for item in wanted[torch.nn.Module]:
                add_addresses(item.__dict__.get("_buffers"), known)
            for item in wanted[torch.optim.Optimizer]:
                add_addresses(item.__dict__.get("state"), known)
            found = [(item.untyped_storage().nbytes(), item) for item in wanted[torch.Tensor] if address_of(item) not in known]
            found.sort(key=lambda entry: entry[0], reverse=True)
            return [item for _, item in found[:MOST_TENSORS]]
        finally:
            wanted.clear()
            objects = item = found = None

    def _find_globals(self):
        for name, module in list(sys.modules.items()):
            if isinstance(module, types.ModuleType) and not name.startswith("_liveset_shim"):
                content = module.__dict__
                self.globals.setdefault(id(content), (content, content.get("__file__") or name))
        for frame in running_frames():
            if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # of exec() and the like
                self.globals.setdefault(id(frame.f_globals), (frame.f_globals, frame.f_code.co_filename))
        frame = None

    def _look_up(self, wanted):
        """Names that modules and running functions have for objects. -> {id: [name]}"""
        found = {}

        def match(content, describe):
            if wanted.keys().isdisjoint(map(id, list(content.values()))):  # nearly always, so it has to be quick
                return
            for key, item in list(content.items()):
                if id(item) in wanted and isinstance(key, str):
                    names = found.setdefault(id(item), [])
                    text = describe(key)
                    if len(names) < MOST_SHOWN and text not in names:
                        names.append(text)

        for content, file in self.globals.values():
            match(content, lambda key, file=file: f"global `{key}` of {os.path.basename(str(file))}")
        for frame in running_frames():
            code = frame.f_code
            if code.co_flags & inspect.CO_OPTIMIZED:
                read_locals(frame, lambda local, code=code: match(local, lambda key: named_local(code, key)))
        frame = None
        return found

    def _follow(self, tensors):
        """Names of the containers that hold the tensors, from the innermost outwards. -> whether there was time for it"""
        level = [Node(tensor, {id(tensor)}) for tensor in tensors]
        open_ones = set(map(id, tensors))
        likely, seen, resolved = {}, set(open_ones), {}
        try:
            for _ in range(DEPTH):
                if self._late():
                    return False
                above, closed = self._referrers(level, seen, resolved, likely)
                named = self._look_up({key: node.item for key, node in above.items()})
                for key, names in named.items():
                    resolved[key] = names
                    self._name(above[key], names[:1], open_ones)
                for origins, names in closed[True]:
                    self._name(Node(None, origins), names, open_ones)
                seen.update(above)
                level = [node for node in above.values() if node.origins & open_ones][:MOST_FOLLOWED]
                reached = set().union(*(node.origins for node in level)) if level else set()
                for origins in closed[False]:
                    for origin in (origins & open_ones) - reached:  # every way up leads back down
                        self.names[origin] = [f"{likely.get(origin) or 'a container'} (only a reference cycle was found)"]
                        open_ones.discard(origin)
                if not level:
                    break
            for origin in open_ones:
                if likely.get(origin):
                    self.names[origin] = [likely[origin]]
            return True
        finally:
            level.clear()
            above = node = None

    def _name(self, node, names, open_ones):
        for origin in node.origins & open_ones:
            label = node.label
            self.names[origin] = [f"{name}{f' ({label})' if label else ''}" for name in names]
            open_ones.discard(origin)

    def _referrers(self, level, seen, resolved, likely):
        """What refers to the nodes of a level. `likely`: {tensor: the best name so far}.
        -> {id: Node}, {True: [(tensors, names)] that end at something named, False: [tensors] whose way led back}"""
        nodes = {id(node.item): node for node in level}
        items = [node.item for node in level]
        self.mine |= {id(items), id(level), id(nodes)}
        above, closed = {}, {True: [], False: []}
        referrers = gc.get_referrers(*items)
        self.mine.add(id(referrers))
        try:
            for item in referrers[:MOST_REFERRERS]:
                kind = type(item)
                key = id(item)
                if key in self.mine or kind is Node or key in self.globals or ours(item, kind):
                    continue
                below = [nodes[id(child)] for child in gc.get_referents(item) if id(child) in nodes]
                origins = set().union(*(node.origins for node in below))
                if key in resolved:
                    closed[True].append((origins, resolved[key][:1]))
                elif key in seen:
                    closed[False].append(origins)
                elif kind is types.FrameType:
                    self._dead_frame(item, nodes, closed[True])
                else:
                    above[key] = self._describe(item, kind, below, origins, likely)
            return above, closed
        finally:
            self.mine -= {id(items), id(nodes), id(referrers)}
            items = nodes = referrers = item = below = node = None

    def _dead_frame(self, frame, nodes, named):
        """A frame that has returned and is kept: by a traceback, mostly."""
        code = frame.f_code

        def match(content):
            for key, item in list(content.items()):
                if id(item) in nodes:
                    named.append((nodes[id(item)].origins, [named_local(code, key) + ", kept by its frame"]))
        read_locals(frame, match)

    def _describe(self, item, kind, below, origins, likely):
        """The node of a referrer; an object that is more than a container gives its tensors a name, the first one the best."""
        first = below[0] if below else None
        if kind in CONTAINERS:
            label = CONTAINERS[kind] or (first.label if first else "")
            key = next((key for key, content in list(item.items()) if first is not None and content is first.item and isinstance(key, str)),
                       None) if issubclass(kind, dict) else None
            for origin in origins:
                likely.setdefault(origin, label)
            return Node(item, origins, label, key)
        if kind is types.FunctionType:
            text = f"closure of {item.__name__}()"
        elif kind in (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType):
            text = f"local of {item.__name__}(), which is suspended"
        elif issubclass(kind, type):
            text = f"attribute {f'`{first.key}` ' if first is not None and first.key else ''}of class {item.__name__}"
        else:
            name = attribute_name(item, first)
            text = f"attribute {f'`{name}` ' if name else ''}of {kind.__name__}"
        for origin in origins:
            if likely.get(origin) is None or likely[origin] in CONTAINERS.values():
                likely[origin] = text
        return Node(item, origins, text)


def ours(item, kind):
    module = getattr(kind, "__module__", None) if isinstance(kind, type) else None
    if isinstance(module, str) and module.startswith("_liveset_shim"):
        return True
    return kind is types.FrameType and item.f_code.co_filename.startswith(OURS)


def named_local(code, key):
    return f"local `{key}` of {code.co_name}() in {os.path.basename(code.co_filename)}"


def attribute_name(item, node):
    """What an object calls the node below it."""
    if node is None:
        return None
    try:
        content = object.__getattribute__(item, "__dict__")
    except Exception:
        content = {}
    if content is node.item:
        return node.key
    if isinstance(content, dict):
        for key, value in list(content.items()):
            if value is node.item and isinstance(key, str):
                return key
    for base in bases_of(type(item)):
        for key, member in list(vars(base).items()):
            if isinstance(member, types.MemberDescriptorType):
                try:
                    if member.__get__(item) is node.item:
                        return key
                except Exception:
                    pass
    return None


def running_frames():
    """Frames of all threads, the innermost first, without ours."""
    found = []
    for frame in list(sys._current_frames().values()):
        depth = 0
        while frame is not None and depth < FRAMES:
            if not frame.f_code.co_filename.startswith(OURS):
                found.append(frame)
            frame = frame.f_back
            depth += 1
    return found


def read_locals(frame, read):
    """Calls read({name: object}) of a function's frame."""
    local = frame.f_locals
    try:
        read(local)
    finally:
        # Before Python 3.13 this is a copy that the frame keeps, and with it the job's objects. When the job itself has it (locals(), a
        # debugger), it was there before us.
        if SNAPSHOTS and sys.getrefcount(local) <= 3:
            local.clear()


def address_of(tensor):
    """Of its storage; 0 where there is none."""
    try:
        return storage_address(tensor, tensor.untyped_storage())
    except Exception:
        return 0


def add_addresses(content, known, depth=0):
    """Adds the storages of the tensors in dicts, lists and tuples."""
    if isinstance(content, (dict, list, tuple)):
        if depth < 3:
            for item in contents_of(content):
                add_addresses(item, known, depth + 1)
    elif content is not None:
        known.add(address_of(content))
