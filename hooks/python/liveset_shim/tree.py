"""The modules below a module and what they own, read as they lie in torch's tables: the methods that list them may be the job's own, and
print, count or build."""


# Lists and not generators: these would run a line of ours when they are dropped, and lose what a signal handler raises there.


def modules_in(root, prefix=""):
    """[(qualified name, module)], the root first, each module once."""
    found, seen, waiting = [], set(), [(prefix, root)]
    while waiting:
        name, module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            found.append((name, module))
            waiting += reversed([(f"{name}.{inner}" if name else inner, child) for inner, child in owned(module, "_modules")])
    return found


def parameters_in(root):
    return tensors_in(root, "_parameters")


def buffers_in(root):
    return tensors_in(root, "_buffers")


def tensors_in(root, table):
    """[(qualified name, tensor)], each tensor once."""
    found = {}
    for name, module in modules_in(root):
        for own, tensor in owned(module, table):
            found.setdefault(id(tensor), (f"{name}.{own}" if name else own, tensor))
    return list(found.values())


def owned(module, table):
    """[(name, item)] of a module's own table."""
    try:
        found = object.__getattribute__(module, "__dict__").get(table)
        if found is None and type(module).__module__.startswith("torch.jit."):
            found = getattr(module, table)
        if isinstance(found, dict):
            items = dict.items(found)
        else:
            items = found.items() if type(found).__module__.startswith("torch.") else ()
        return [(name, item) for name, item in items if item is not None]
    except (AttributeError, RuntimeError):  # its constructor has not run
        return []
