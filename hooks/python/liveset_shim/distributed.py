"""Jobs of several ranks: the collective operations that Python starts, and what a gradient belongs to.

torch.distributed's functions and FSDP call methods of their process group, which are wrapped here as attributes of its class; compilers
never see them. (The reductions of DistributedDataParallel start in C++, where hooks/autograd sees them.) For
`liveset check --distributed` gradients carry their parameter's path, and DistributedDataParallel's buckets their parameters, once it
has settled which these are.
"""
import json
import sys
import types
import weakref

from .addresses import data_address, storage_address
from .checkpoints import for_each_tensor
from .tree import modules_in, owned, parameters_in

MODULE = "torch._C._distributed_c10d"
# Method of a process group: (what it is called in the trace, which argument is stated: what it reads; of a reduce_scatter what it
# writes, which becomes the gradients).
METHODS = {"allreduce": ("all_reduce", 0), "allreduce_coalesced": ("all_reduce", 0), "reduce": ("reduce", 0),
           "reduce_scatter": ("reduce_scatter", 0), "reduce_scatter_single": ("reduce_scatter", 0),
           "_reduce_scatter_base": ("reduce_scatter", 0), "reduce_scatter_single_coalesced": ("reduce_scatter", 0),
           "reduce_scatter_tensor_coalesced": ("reduce_scatter", 0), "allgather": ("all_gather", 1), "all_gather_single": ("all_gather", 1),
           "_allgather_base": ("all_gather", 1), "allgather_coalesced": ("all_gather", 1),
           "all_gather_single_coalesced": ("all_gather", 1), "allgather_into_tensor_coalesced": ("all_gather", 1),
           "broadcast": ("broadcast", 0), "gather": ("gather", 1), "gather_single": ("gather", 1), "gather_into_tensor": ("gather", 1),
           "scatter": ("scatter", 1), "all_to_all_single": ("all_to_all", 1), "alltoall_base": ("all_to_all", 1),
           "alltoall": ("all_to_all", 1), "send": ("send", 0), "recv": ("recv", 0), "recv_anysource": ("recv", 0)}
BUCKETS = "rebuilt_per_bucket_param_indices"
MOST_ASKED = 64         # backwards after which buckets that are not settled are not asked for again
LONGEST_STATEMENT = 3500  # bytes of one attribute


class Distributed:
    def __init__(self, context, modules):
        self.context = context
        self.modules = modules
        self.replaced = {}   # {method: the class's own}
        self.group = None    # the class
        self.names = {}      # {id(parameter): (weak reference, string id of its path)}
        self.known_roots = ()
        self.asked = 0

    def install(self):
        self.context.before_backward = self.before_backward
        self._wrap()

    def _wrap(self):
        self.group = getattr(sys.modules.get(MODULE), "ProcessGroup", None)
        if self.group is None:  # it is not imported yet, or this build has none
            return
        for method, (name, index) in METHODS.items():
            original = self.group.__dict__.get(method)
            if original is not None:
                self.replaced[method] = original
                setattr(self.group, method, self._stated(getattr(self.group, method), method, name, index))

    def uninstall(self):
        self.context.parameter_name = self.context.before_backward = None
        for method, original in self.replaced.items():
            setattr(self.group, method, original)
        self.replaced = {}

    def _stated(self, original, method, name, index):
        context = self.context
        text = context.text(name)

        def before(group, *arguments, **keywords):
            try:
                if not context.tracing():
                    with context.quiet():
                        for_each_tensor(context.Tensor, arguments[index] if len(arguments) > index else list(keywords.values()),
                                        lambda tensor: self._state(tensor, text))
            except Exception as error:
                context.failed(error)

        around = context.around(before, original, None)
        if type(around) is types.BuiltinFunctionType:
            # Bound to the group as pybind11's own methods are, and for pybind11 one of them.
            return type(self.group.__dict__[method])(around)

        def collective(group, *arguments, **keywords):
            before(group, *arguments, **keywords)
            return original(group, *arguments, **keywords)

        # For a Python subclass that leaves the method as it is, pybind11 takes this for an override, unless the function that calls the C++
        # method has the method's name: then it goes on in C++ and does not come back here.
        collective.__code__ = collective.__code__.replace(co_name=method)
        collective.__name__ = method
        return collective

    def _state(self, tensor, text):
        context = self.context
        try:
            storage = tensor.untyped_storage()
            address, size = storage_address(tensor, storage), storage.nbytes()
            if tensor.is_contiguous():
                address, size = data_address(tensor), tensor.numel() * tensor.element_size()
        except (RuntimeError, NotImplementedError):
            return
        context.collective(0, context.heap_of(tensor.device), address, size, text, -1)

    def active(self):
        distributed = sys.modules.get("torch.distributed")
        return distributed is not None and distributed.is_available() and distributed.is_initialized()

    def parameter_name(self, parameter):
        """String id of a parameter's path from its root module's class; 0 where it has none."""
        found = self.names.get(id(parameter))
        if found is not None and found[0]() is parameter:
            return found[1]
        if not self._learn():
            return 0
        found = self.names.get(id(parameter))
        return found[1] if found is not None and found[0]() is parameter else 0

    def _learn(self):
        """Notes the parameters of the root modules. -> whether there was anything to note"""
        roots = [place.module() for place in list(self.modules.roots.values())]
        roots = [root for root in roots if root is not None]
        known = tuple(map(id, roots))
        if known == self.known_roots:
            return False
        self.known_roots = known
        self.names = {}
        for root in roots:
            kind = type(getattr(root, "_orig_mod", root)).__name__
            for name, parameter in parameters_in(root):
                self.names[id(parameter)] = weakref.ref(parameter), self.context.text(f"{kind}.{name}")
        return True

    def before_backward(self):
        """Says which parameters a bucket of DistributedDataParallel has: it settles that after its first backward."""
        active = self.active()
        self.context.parameter_name = self.parameter_name if active else None
        if active and self.group is None:
            self._wrap()
        if not active or not 0 <= self.asked < MOST_ASKED:
            return
        models = [root for root in (place.module() for place in list(self.modules.roots.values()))
                  if type(root).__name__ == "DistributedDataParallel" and hasattr(root, "_get_ddp_logging_data")]
        if not models:
            return
        if len(models) > 1:  # the buckets' numbers are of all of them
            self.asked = -1
            return
        self.asked += 1
        text = models[0]._get_ddp_logging_data().get(BUCKETS)
        if text:
            self.asked = -1
            names = names_by_index(models[0])
            for number, bucket in enumerate(text.split(",")):
                self._state_bucket(number, [names[int(index)] for index in bucket.split()])

    def _state_bucket(self, number, names):
        part, length = [], 0
        for name in names + [None]:
            if part and (name is None or length + len(name) > LONGEST_STATEMENT):
                said = json.dumps({"bucket": number, "parameters": part})
                self.context.attribute(self.context.text("liveset.bucket"), self.context.string(said))
                part, length = [], 0
            if name is not None:
                part.append(name)
                length += len(name) + 4


def names_by_index(model):
    """Paths of the parameters that a DistributedDataParallel reduces, in its order."""
    found, seen = [], set()
    for module_name, module in modules_in(model.module):
        for name, parameter in owned(module, "_parameters"):
            if parameter.requires_grad and f"{module_name}.{name}" not in model.parameters_to_ignore and id(parameter) not in seen:
                seen.add(id(parameter))
                found.append(".".join(part for part in (type(model).__name__, "module", module_name, name) if part))
    return found
