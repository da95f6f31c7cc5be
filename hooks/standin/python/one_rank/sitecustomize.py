"""Lets rank 0 of a job run alone: `liveset dryrun --world N` puts this file in front of the job's Python path.

The store at which the ranks of a job meet waits until all have come. Here it must not, as no other rank will. Nothing else of PyTorch
is changed: what ranks tell each other afterwards goes through the stand-in of NCCL.
"""
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))
_MODULE = "torch.distributed.rendezvous"


def _without_waiting(module):
    store = getattr(module, "TCPStore", None)
    if store is None:  # a torch without distributed
        return

    def alone(*arguments, **options):
        if len(arguments) < 6:  # wait_for_workers is the sixth
            options.setdefault("wait_for_workers", False)
        return store(*arguments, **options)

    module.TCPStore = alone


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds one module as the others would, and changes it once it is whole."""

    def find_spec(self, name, path, target=None):
        if name != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        sys.meta_path.remove(self)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            _without_waiting(module)

        spec.loader.exec_module = execute_and_change
        return spec


def _run_the_users_own():
    """Python takes the first sitecustomize that it finds, which is this one."""
    others = [folder for folder in sys.path if os.path.abspath(folder or ".") != _OWN_FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _AfterImport())
_run_the_users_own()
