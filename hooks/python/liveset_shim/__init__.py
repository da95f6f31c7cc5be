"""Tells the recorder what a PyTorch job is doing: module scopes, steps, phases, what autograd retains.

Loaded from its file into the job's interpreter by the preloaded library; `native` are the recorder's functions. Rules:
nothing of ours raises in the job, writes to its streams (but for what this torch lacks, a line each, once), or keeps its tensors
or modules alive; nothing is pushed on autograd's hook stack; the training script is not edited.
"""
import importlib
import os
import sys

from . import checkpoints, distributed, ending, engine, fingerprint, holders, missing, modules, optimizers, reentrant, replay, sharded, statistics, \
    unseen
from .context import Context

COVERS = ("module scopes, steps, phases; at every backward the storages that the autograd graph retains; inputs and random "
          "states of non-reentrant checkpoint regions; parameters, buffers, gradients, optimizer state; at the ends of steps the "
          "requested and active bytes that the CUDA allocator counts; collective operations, and whose gradients they reduce")
CANNOT_SEE = ("the inside of compiled regions; models that are no nn.Module or that were compiled in place (a step then begins at "
              "its backward); optimizers that are no torch.optim.Optimizer or whose step is compiled (steps then do not end)")

_installed = None


def install(torch, native):
    """Called once, by the preloaded library, when torch is whole."""
    install_parts(Context(torch, native))
    # A forked child is not recorded: give it its torch back as it was.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=uninstall)


def install_parts(context):
    global _installed
    try:
        importlib.import_module(checkpoints.MODULE)  # torch before 2.9 leaves that to the job; its first region may come before a backward
    except Exception as error:
        context.failed(error)
    lacks = missing.points(context)
    scopes = modules.Modules(context)
    rate = float(os.environ.get(replay.VARIABLE) or 0)
    checked = [replay.Replay(context, scopes, rate)] if rate > 0 else []  # before the hooks of regions: it imports what they look for
    steps = int(os.environ.get(fingerprint.VARIABLE) or 0)
    checked += [fingerprint.Fingerprint(context, scopes, steps)] if steps > 0 else []
    regions = checkpoints.Checkpoints(context, scopes)
    hooks_of_engine = engine.Engine(context, scopes, regions)
    # First what knows which slots are packed: torch.utils.checkpoint's hooks, which are wrapped later, inherit from the same class.
    _installed = [] if hooks_of_engine.packed is None else [hooks_of_engine.packed]
    _installed += [scopes, optimizers.Optimizers(context, scopes), statistics.Statistics(context), holders.Holders(context),
                   ending.Ending(context), regions, reentrant.Reentrant(context, regions), distributed.Distributed(context, scopes),
                   sharded.Sharded(context, scopes), hooks_of_engine, *checked]
    try:
        for part in _installed:
            part.install()
    except BaseException:
        uninstall()
        raise
    try:
        unseen.hide(context, [module for name, module in list(sys.modules.items()) if name.startswith(f"{__name__}.")])
    except Exception as error:
        context.failed(error)
    missing.say(context, lacks)
    cannot_see = "; ".join([CANNOT_SEE, *lacks])
    before = context.reports_before()
    if before:
        cannot_see += f"; what came before the main thread let the hooks in ({before:,} of torch's allocations and frees)"
    context.source(f"torch {context.torch.__version__}", COVERS, cannot_see)


def uninstall():
    global _installed
    parts, _installed = _installed, None
    for part in reversed(parts or ()):
        try:
            part.uninstall()
        except Exception:
            pass
