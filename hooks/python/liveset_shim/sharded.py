"""FSDP2 (torch.distributed.fsdp.fully_shard): which storages hold gathered parameters, and whose.

The shard of a parameter is a parameter of its module and is said with the others. Whole, it lies in a storage that FSDP allocates for
each time that it gathers it: that one is said as it is put in the module's place, with "gathered:" before the parameter's name.
"""
import sys

from .context import PARAMETER

MODULES = ("torch.distributed.fsdp._fully_shard._fsdp_param", "torch.distributed._composable.fsdp._fsdp_param")


class Sharded:
    def __init__(self, context, modules):
        self.context = context
        self.patched = None  # (class, its own to_unsharded)
        modules.on_new_root = self.install  # FSDP may be imported after us, and gathers for the first time inside of a root's forward

    def install(self):
        if self.patched is not None:
            return
        for name in MODULES:
            kind = getattr(sys.modules.get(name), "FSDPParam", None)
            if kind is not None and hasattr(kind, "to_unsharded"):
                self.patched = kind, kind.to_unsharded
                kind.to_unsharded = self._stating(kind.to_unsharded)
                return

    def uninstall(self):
        if self.patched is not None:
            kind, kind.to_unsharded = self.patched
            self.patched = None

    def _stating(self, original):
        context = self.context

        def to_unsharded(parameter):
            result = original(parameter)
            try:
                if not context.tracing():
                    with context.quiet():
                        self._state(parameter)
            except Exception as error:
                context.failed(error)
            return result
        return to_unsharded

    def _state(self, parameter):
        context = self.context
        name = getattr(parameter, "_param_fqn", None) or getattr(parameter._module_info, "param_name", "")
        whole = getattr(parameter, "_unsharded_param", None)
        if whole is not None:
            context.state(PARAMETER, getattr(whole, "_local_tensor", whole), context.text(f"gathered:{name}"))
