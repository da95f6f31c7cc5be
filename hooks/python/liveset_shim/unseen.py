"""Keeps torch's compiler out of our functions: what stands in the place of a function of torch calls them as frames of their own, which
the compiler would try to compile, and count."""
import types

# In these some function calls the one of torch or of the job in whose place it stands, which is compiled as ever. What the others call
# is for us alone.
CALLERS = ("around", "distributed", "holders", "replay", "replay_state", "sharded", "statistics")


def hide(context, modules):
    """Marks all functions of these modules as dynamo marks those that it skips. It need not have been imported."""
    bindings = getattr(getattr(context.torch._C, "_dynamo", None), "eval_frame", None)
    skip_one = getattr(bindings, "skip_code", None)  # of an older torch
    if skip_one is None:
        actions = getattr(bindings, "_FrameAction", None)
        if actions is None or not hasattr(bindings, "set_code_exec_strategy"):
            return
    for module in modules:
        if skip_one is None:
            calls = module.__name__.rpartition(".")[2] in CALLERS
            strategy = bindings._FrameExecStrategy(actions.SKIP, actions.DEFAULT if calls else actions.SKIP)
        for code in codes_of(module):
            if skip_one is not None:
                skip_one(code)
            else:
                bindings.set_code_exec_strategy(code, strategy)


def codes_of(module):
    waiting = []
    for member in vars(module).values():
        if getattr(member, "__module__", None) == module.__name__:
            waiting += [getattr(one, "__func__", one) for one in (vars(member).values() if isinstance(member, type) else (member,))]
    waiting = [one.__code__ for one in waiting if isinstance(one, types.FunctionType)]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
