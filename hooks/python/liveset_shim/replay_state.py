"""What besides its arguments a checkpointed region depends on, or may change: random states, autocast, modules' buffers and attributes."""
import itertools
import random
import sys
import types

from .checkpoints import contents_of
from .tree import modules_in

LARGEST_BUFFER = 1 << 24  # bytes; of larger ones only the version is compared
MOST_MODULES = 10000
MOST_ITEMS = 16  # of a list or dict that a module holds
SCALARS = (int, float, str, bytes, bool, type(None), complex)
CONTAINERS = (list, tuple, set, frozenset, dict)
# What torch.nn.Module keeps for itself.
MODULE_OWN = frozenset(("training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_backward_pre_hooks",
                        "_backward_hooks", "_is_full_backward_hook", "_forward_hooks", "_forward_hooks_with_kwargs",
                        "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks",
                        "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"))
PYTHON, NUMPY = "python", "numpy"


class States:
    def __init__(self, context, values):
        self.context = context
        self.torch = context.torch
        self.values = values

    def random(self):
        """{source: something that is equal when its state is}"""
        torch = self.torch
        found = {"cpu": self.generator(torch.default_generator)}
        if torch.cuda.is_available() and torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            for index, generator in enumerate(torch.cuda.default_generators):
                found[f"cuda:{index}"] = self.generator(generator)
        found[PYTHON] = hash(random.getstate())
        numpy = sys.modules.get("numpy.random")
        if numpy is not None and hasattr(numpy, "get_state"):
            name, keys, *rest = numpy.get_state()
            found[NUMPY] = hash((name, keys.tobytes(), *rest))
        return found

    def generator(self, generator):
        """Hash of a generator's state. Torch gives it as a tensor: memory of ours."""
        return self.values.digest(self.context.own(generator.get_state))

    def autocast(self):
        """(cache is on, ((device, dtype) of those that are on)); the cache only where it matters."""
        torch = self.torch
        devices = ["cpu"]
        if torch.cuda.is_available():
            devices.append("cuda")
        on = tuple((device, str(torch.get_autocast_dtype(device))) for device in devices if torch.is_autocast_enabled(device))
        return bool(on) and torch.is_autocast_cache_enabled(), on

    def modules_of(self, function):
        """[(name, module)] that a function can reach: itself, its owner, its closure, partial arguments, globals that it names."""
        Module, found = self.torch.nn.Module, {}
        for name, item in self._reached(function):
            for module in _modules_in(Module, item):
                for inner, each in modules_in(module, name):
                    if len(found) >= MOST_MODULES:
                        break
                    found.setdefault(id(each), (inner, each))
        return list(found.values())

    def _reached(self, function, depth=0):
        """(name, object) of what a function can reach without being called."""
        if isinstance(function, self.torch.nn.Module):
            yield type(function).__name__, function
            return
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            yield type(owner).__name__, owner
        inner = getattr(function, "func", None)  # functools.partial
        if inner is not None and depth < 3:
            yield from self._reached(inner, depth + 1)
            for item in (*getattr(function, "args", ()), *getattr(function, "keywords", {}).values()):
                yield type(item).__name__, item
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        if code is None:
            return
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                item = cell.cell_contents
            except ValueError:
                continue
            yield name, item
            if depth < 3 and isinstance(item, (types.FunctionType, types.MethodType)):
                yield from self._reached(item, depth + 1)
        for name in code.co_names:
            if name in function.__globals__:
                item = function.__globals__[name]
                if not isinstance(item, (types.ModuleType, type)):
                    yield name, item

    def captured_tensors(self, function):
        """[(name, tensor)] that a plain function finds without being given them."""
        if isinstance(function, self.torch.nn.Module):
            return []
        return [(name, item) for name, item in self._reached(function)
                if isinstance(item, self.torch.Tensor) and not isinstance(item, self.torch.nn.Parameter)]

    def parameters(self, modules):
        """{name: (id, version)}; not of modules that FSDP manages, whose parameters come and go."""
        found = {}
        for name, module in modules:
            if hasattr(module, "_get_fsdp_state") or type(module).__name__.startswith(("FSDP", "FullyShardedDataParallel")):
                continue
            for own, parameter in module._parameters.items():
                if type(parameter) is self.torch.nn.Parameter:
                    found[f"{name}.{own}"] = id(parameter), parameter._version
        return found

    def buffers(self, modules):
        """{name: (hash, or version where that is too much)}"""
        found = {}
        for name, module in modules:
            for own, buffer in module._buffers.items():
                if buffer is None:
                    continue
                content = None
                if buffer.numel() * buffer.element_size() <= LARGEST_BUFFER:
                    content = self.values.digest(buffer)
                found[f"{name}.{own}"] = ("version", id(buffer), buffer._version) if content is None else content
        return found

    def training(self, modules):
        return {name: module.training for name, module in modules}

    def attributes(self, modules, function):
        """{name: content} of plain attributes and of what a plain function's closure and globals hold; containers only shallow."""
        found = {}
        for name, module in modules:
            for own, item in module.__dict__.items():
                if own not in MODULE_OWN:
                    _add_plain(found, f"{name}.{own}", item)
        if not isinstance(function, self.torch.nn.Module):
            for name, item in self._reached(function):
                _add_plain(found, name, item)
        return found


def _modules_in(Module, item, depth=0):
    if isinstance(item, Module):
        yield item
    elif depth < 2 and isinstance(item, (list, tuple, dict)):
        for inner in itertools.islice(contents_of(item), MOST_MODULES):
            yield from _modules_in(Module, inner, depth + 1)


def _add_plain(found, name, item):
    if type(item) in SCALARS:
        found[name] = item
    elif type(item) in CONTAINERS:
        items = list(item.items() if isinstance(item, dict) else item) if len(item) <= MOST_ITEMS else []
        found[name] = (type(item).__name__, len(item), [_plain(each) for each in items])


def _plain(item):
    if type(item) is tuple:
        return tuple(_plain(each) for each in item[:2])
    return item if type(item) in SCALARS else type(item).__name__


def differences(before, after):
    """Names whose content differs. NaN equals itself."""
    return [name for name in (*before, *(name for name in after if name not in before))
            if name not in before or name not in after or before[name] != after[name] and not _both_nan(before[name], after[name])]


def _both_nan(one, other):
    return isinstance(one, float) and isinstance(other, float) and one != one and other != other
