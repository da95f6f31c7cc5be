"""What --check-replay keeps of a region's forward, and of each recompute: plain numbers, no tensor and no module."""
import typing


class Record:
    """A region's forward."""

    def __init__(self, region, module, function, preserves, reentrant):
        self.region, self.module = region, module  # names
        self.preserves, self.reentrant = preserves, reentrant
        self.begin = self.end = None  # Moments
        self.devices = ()             # of tensor arguments
        self.inputs = []              # [(name, hash, version, address)]
        self.slots = []               # [Slot]
        self.operators = []           # [(operator, grad is on, hash of what it made or None, scope)]
        self.generators = []          # [state of a generator of the job before each operator that used one]
        self.outputs = []             # of a reentrant region
        self.function = function
        self.made = {}                # {address: number of the operator that wrote there last}
        self.used = set()             # ids of the parameters that its operators read; None: nobody watched
        self.buffers = frozenset()    # addresses
        self.custom_contexts = False  # of a context_fn that we do not know: it may set what it likes
        self.watched = False          # its operators were
        self.differs = False          # something was said
        self.replay = None            # the recompute that runs


class Slot(typing.NamedTuple):
    """A tensor that a region saved, or returned."""
    shape: tuple
    dtype: str
    device: str
    digest: object  # None: it cannot be read
    samples: tuple
    operator: object = None  # number of the one that made it
    module: str = ""
    is_parameter: bool = False
    is_buffer: bool = False  # of a module: these are compared as buffers
    position: int = 0        # operators so far


class Moment:
    """What a region depends on besides its arguments, at one time."""

    def __init__(self, states, function, in_forward=False):
        modules = states.modules_of(function)
        self.random = states.random()
        self.autocast = states.autocast()
        self.inference = states.torch.is_inference_mode_enabled()
        self.parameters = states.parameters(modules)
        self.training = states.training(modules)
        # Only what the recompute itself changes is compared: other regions may have changed them since the forward, rightly.
        self.buffers = {} if in_forward else states.buffers(modules)
        self.attributes = {} if in_forward else states.attributes(modules, function)


class Recompute:
    def __init__(self):
        self.before = self.after = None  # random states around it, as the training sees them
        self.begin = self.end = None     # Moments inside, where the random states are the restored ones
        self.inputs, self.operators, self.generators, self.outputs, self.slots, self.made = [], [], [], [], {}, {}
        self.used = set()
        self.count = 0                   # of values that it saved
        self.watched = False
        self.whole = False               # it ran to its end
        self.stopped = False             # torch stopped it because all was made
