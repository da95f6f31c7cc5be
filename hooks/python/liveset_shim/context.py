"""What all parts of the shim share: the recorder's functions, the state of each thread, storages, and our own errors."""
import json
import signal
import threading
import types

from .addresses import is_fake, storage_address
from .around import around

# Numbers of proto/trace.proto (a test compares).
OTHER, FORWARD, LOSS, BACKWARD, RECOMPUTE, OPTIMIZER = range(6)
SCOPE_MODULE, SCOPE_REGION = 1, 3
PARAMETER, GRADIENT, OPTIMIZER_STATE, BUFFER, CHECKPOINT_INPUT, RNG_STATE, ACTIVATION = range(1, 8)
RECOMPUTED_ACTIVATION = 8
ACTIVATION_GRADIENT = 10
LOSS_VALUE = 13
OFFLOADED = 12
BACKWARD_BEGIN, BACKWARD_END = 40, 41

# proto DType + 1, the low byte of what a statement says of its tensor; the index of a checkpoint region's slot, + 1, stands above it.
DTYPES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8, "complex32": 9,
          "complex64": 10, "complex128": 11, "bool": 12, "bfloat16": 16, "float8_e5m2": 24, "float8_e4m3fn": 25, "float8_e5m2fnuz": 26,
          "float8_e4m3fnuz": 27, "uint16": 28, "uint32": 29, "uint64": 30}
INDEX_SHIFT = 8

# c10::DeviceType of what torch.device says.
DEVICE_TYPES = {"cpu": 0, "cuda": 1, "xpu": 12, "mps": 13, "hpu": 15, "mtia": 19}


class ThreadState(threading.local):
    """Of the calling thread. `base`: the phase that holds between a backward and the next forward."""

    def __init__(self):
        self.stack = []  # places of the modules and regions that are open
        self.base = OTHER
        self.step = -1
        self.regions = 0  # checkpoint regions of `step` so far
        self.started = None  # a backward that has begun and is on its way to the engine
        self.grad_wanted = False  # --check-replay: what the caller of a reentrant region wanted
        self.watches = []  # --check-replay: its modes that are over, but are still on the thread's stack


class Context:
    def __init__(self, torch, native):
        self.torch = torch
        self.Tensor = torch.Tensor
        self.thread = ThreadState()
        self.around = around
        for name, function in native.items():
            setattr(self, name, function)
        # What does the same past Python, where it can: it answers whether.
        self._natively = {self.storage: self.storage_tensor, self.retain: self.retain_tensor, self.drop: self.drop_tensor,
                          self.remake: self.remake_tensor}
        self._heaps = {}
        self._strings = {}
        self._errors = {}
        self.learning = True  # whether the recorder still looks for the place of a tensor's memory in its object
        self.dtypes = {getattr(torch, name): number for name, number in DTYPES.items() if hasattr(torch, name)}
        self.on_step_over = None  # called when a step is over
        self.before_backward = None
        self.region_entered = None  # (torch's hook of a non-reentrant region): its scope is the innermost
        self.region_leaves = None   # the same, before that scope ends
        self.parameter_name = None  # of a distributed job: parameter -> string id
        self.stated_gradients = set()  # addresses of the storages of gradients stated since the last optimizer step
        self._exact_types = (torch.Tensor, torch.nn.Parameter)
        self._is_wrapper = _wrapper_test(torch)
        self._unwrap = _functorch_unwrap(torch)
        # Reading tensors must not run the job's torch_function modes and subclasses ("with torch.device(...)" is one).
        self.quiet = torch._C.DisableTorchFunction
        saved_tensor = getattr(torch._C._autograd, "SavedTensor", None)
        self.saved_tensors_readable = hasattr(saved_tensor, "data")
        self.types(*self._exact_types, saved_tensor)
        self.task_id = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self._dispatch_mode = getattr(torch._C, "_get_dispatch_mode", None)
        keys = getattr(torch._C, "_TorchDispatchModeKey", None)
        self._tracing_keys = [getattr(keys, name) for name in ("FAKE", "PROXY") if hasattr(keys, name)]

    def tracing(self):
        """Whether this thread only traces a program (a compiler does): its tensors have no memory."""
        if self._dispatch_mode is not None:
            for key in self._tracing_keys:
                if self._dispatch_mode(key) is not None:
                    return True
        return False

    def text(self, text):
        """Id of a string. Only for names that come from code, of which there are few."""
        found = self._strings.get(text)
        if found is None:
            found = self._strings[text] = self.string(text)
        return found

    def heap_of(self, device):
        found = self._heaps.get(device)
        if found is None:
            number = DEVICE_TYPES.get(device.type)
            if number is None and device.type == self.torch._C._get_privateuse1_backend_name():
                number = 20
            found = self._heaps[device] = 0 if number is None else self.heap(number, device.index or 0)
        return found

    def heaps(self):
        """(device, heap) of the devices that were met."""
        return list(self._heaps.items())

    def state(self, memory_class, tensor, name=0):
        """Says what the storage of `tensor` holds. Call it inside `with quiet()`."""
        self.say(self.storage, memory_class, tensor, name)

    def state_retained(self, memory_class, tensor, name):
        """Says that the graph retains the storage of `tensor`."""
        self.say(self.retain, memory_class, tensor, name)

    def say(self, record, memory_class, tensor, name=0, index=-1, scope=0):
        """Calls `record` (storage, retain, drop, remake, offload, holder: native functions) for each storage that is in `tensor`.
        `index`: of a checkpoint region's slot. `scope`: what it is said of; 0: where the thread is. Call it inside `with quiet()`."""
        exact = type(tensor) in self._exact_types
        if exact:
            natively = self._natively.get(record)
            if natively is not None and natively(memory_class, tensor, name, scope, index + 1 << INDEX_SHIFT):
                return
        elif is_fake(tensor):
            return
        if not exact and self._is_wrapper(tensor):
            for attribute in tensor.__tensor_flatten__()[0]:
                inner = getattr(tensor, attribute)
                if isinstance(inner, self.Tensor):  # a DTensor has its mesh there too
                    self.say(record, memory_class, inner, name, index, scope)
            return
        if tensor.layout is not self.torch.strided:
            for part in _sparse_parts(self.torch, tensor):
                self.say(record, memory_class, part, name, index, scope)
            return
        try:
            storage = tensor.untyped_storage()
            address = storage_address(tensor, storage)
        except (RuntimeError, NotImplementedError):
            inner = self._unwrap(tensor) if self._unwrap is not None else tensor
            if inner is tensor:
                return  # it has no memory: nothing to say
            self.say(record, memory_class, inner, name, index, scope)
            return
        dtype, device = self.dtypes.get(tensor.dtype, 0), tensor.device
        record(memory_class, self.heap_of(device), address, storage.nbytes(), name, dtype | index + 1 << INDEX_SHIFT, scope)
        if self.learning and dtype and type(tensor) in self._exact_types and tensor.numel() and device.type in DEVICE_TYPES:
            self.learning = self.learn_tensor(tensor, address, storage.nbytes(), dtype, DEVICE_TYPES[device.type], device.index or 0)

    def failed(self, error):
        """Notes an error of ours in the trace, once per place, and swallows it."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            if _is_signal_handler(trace.tb_next.tb_frame.f_code):
                raise error  # the job's own signal handler raised while we happened to run: its exception is the job's
            trace = trace.tb_next
        code = trace.tb_frame.f_code if trace is not None else None
        place = (code.co_name, trace.tb_lineno) if code is not None else ("", 0)
        count = self._errors[place] = self._errors.get(place, 0) + 1
        if count == 1 and len(self._errors) <= 16:
            text = json.dumps({"function": place[0], "line": place[1], "error": f"{type(error).__name__}: {error}"[:1000]})
            self.attribute(self.text("liveset.python_error"), self.string(text))


def _wrapper_test(torch):
    try:
        from torch.utils._python_dispatch import is_traceable_wrapper_subclass
        return is_traceable_wrapper_subclass
    except ImportError:
        return lambda tensor: hasattr(tensor, "__tensor_flatten__")


def _functorch_unwrap(torch):
    """What gives the tensor inside one of torch.func's wrappers (grad, vmap), and others as they are."""
    functorch = getattr(torch._C, "_functorch", None)
    try:
        is_wrapped, unwrapped = functorch.is_functorch_wrapped_tensor, functorch.get_unwrapped
    except AttributeError:
        return None
    return lambda tensor: unwrapped(tensor) if is_wrapped(tensor) else tensor


def _sparse_parts(torch, tensor):
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


def _is_signal_handler(code):
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if isinstance(handler, types.MethodType):
            handler = handler.__func__
        if getattr(handler, "__code__", None) is code:
            return True
    return False
