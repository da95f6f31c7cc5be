"""Digests of tensors' contents, read natively where they lie: nothing is dispatched, copied or allocated for those in host memory.

Those of a CUDA device are copied to a host buffer of ours, which waits for the device; never while its stream captures a graph, which
that would break. On a stand-in device they mean nothing.
"""
import mmap
import os
import struct

SAMPLES = 8
FORMATS = {"float32": "<f", "float64": "<d", "float16": "<e", "int8": "<b", "uint8": "<B", "int16": "<h", "int32": "<i", "int64": "<q",
           "bool": "<?"}


class TensorValues:
    def __init__(self, context):
        self.context = context
        self.torch = context.torch
        self.stand_in = "LIVESET_STANDIN" in os.environ
        self.buffers = []  # those that no reading has now: one for each thread that ever read beside others
        self.capturing = 0  # tensors that were not read because a graph was captured
        self.exact_types = (self.torch.Tensor, self.torch.nn.Parameter)
        self.storage_address = getattr(self.torch._C, "_data_address", None)

    def readable(self, tensor):
        if type(tensor) not in self.exact_types or tensor.layout is not self.torch.strided:
            return False
        if tensor.is_conj() or tensor.is_neg():  # what lies in memory is not what they mean
            return False
        device = tensor.device.type
        if device == "cuda" and not self.stand_in and self.captures():
            self.capturing += 1
            return False
        return device == "cpu" or device == "cuda" and not self.stand_in

    def captures(self):
        """Whether the current CUDA stream captures a graph: nothing may wait for it then."""
        cuda = self.torch.cuda
        return cuda.is_initialized() and cuda.is_current_stream_capturing()

    def address_of(self, tensor):
        """As data_ptr(), which would make a copy-on-write tensor the copy that it was to be only when it is written to."""
        if self.storage_address is None:
            return tensor.data_ptr()
        start = self.storage_address(tensor)
        return start and start + tensor.storage_offset() * tensor.element_size()

    def address(self, tensor):
        """Of the first element; 0 where there is no memory."""
        try:
            return self.address_of(tensor)
        except RuntimeError:
            return 0

    def digest(self, tensor):
        """64-bit hash of the elements in the order of their indices; None where there are none to read. Call it inside quiet()."""
        with self.read(tensor) as reading:
            return reading.digest()

    def samples(self, tensor):
        with self.read(tensor) as reading:
            return reading.samples()

    def read(self, tensor):
        return Reading(self, tensor)


class Reading:
    """A tensor's elements in host memory, which stays as it is until the `with` block ends. Falsy: they cannot be read."""

    def __init__(self, values, tensor):
        self.values = values
        self.tensor = tensor
        self.buffer = None
        self.place = None  # what the native functions want to know

    def __bool__(self):
        return self.place is not None

    def __enter__(self):
        values, tensor = self.values, self.tensor
        if not values.readable(tensor):
            return self
        sizes, strides = tuple(tensor.shape), tensor.stride()
        try:
            address = values.address_of(tensor)
            if address != 0 and tensor.device.type != "cpu" and tensor.numel() != 0:
                address = values.address_of(self._copied(sizes, strides))
        except RuntimeError:  # wrapped by torch.func, or without storage
            self.__exit__()
            return self
        if address == 0 or tensor.numel() == 0:
            if tensor.numel() != 0:
                return self  # its memory was taken away (FSDP does)
            address, sizes, strides = 1, (0,), (1,)
        self.place = [address, tensor.element_size(), len(sizes)]
        for size, stride in zip(sizes, strides):
            self.place += size, stride
        return self

    def __exit__(self, *_):
        buffer, self.buffer, self.place = self.buffer, None, None
        if buffer is not None:
            self.values.buffers.append(buffer)

    def _copied(self, sizes, strides):
        """The same elements at the same distances in a buffer that is no memory of torch's, and that nobody else has until __exit__.
        The device allocates nothing for it: both sides are one run of memory."""
        values, tensor = self.values, self.tensor
        torch = values.torch
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
            wanted = span * tensor.element_size()
            try:
                self.buffer = values.buffers.pop()
            except IndexError:
                pass
            if self.buffer is None or self.buffer.numel() < wanted:
                self.buffer = torch.frombuffer(mmap.mmap(-1, wanted), dtype=torch.uint8)
            copy = self.buffer[:wanted].view(tensor.dtype)
            copy.copy_(tensor.detach().as_strided((span,), (1,), tensor.storage_offset()))
        return copy

    def digest(self):
        return None if self.place is None else self.values.context.digest(*self.place) & (1 << 64) - 1

    def samples(self, count=SAMPLES):
        """[(position in the order of indices, bits)] of a few elements at places that are always the same."""
        if self.place is None:
            return []
        address, item_bytes, dimensions = self.place[:3]
        sizes, strides = self.place[3::2], self.place[4::2]
        elements = 1
        for size in sizes:
            elements *= size
        found = []
        for number in range(min(count, elements)):
            position = number if elements <= count else _mixed(number) % elements
            rest, offset = position, 0
            for dimension in range(dimensions - 1, -1, -1):
                rest, index = divmod(rest, sizes[dimension])
                offset += index * strides[dimension]
            found.append((position, self.values.context.bits(address + offset * item_bytes, item_bytes) & (1 << 64) - 1))
        return found


def element(bits, dtype):
    """The number that an element's bits mean; None where they are no such number."""
    name = str(dtype).removeprefix("torch.")
    data = struct.pack("<Q", bits)
    if name == "bfloat16":
        return struct.unpack("<f", b"\0\0" + data[:2])[0]
    form = FORMATS.get(name)
    return None if form is None else struct.unpack(form, data[:struct.calcsize(form)])[0]


def _mixed(number):
    """The generator splitmix64 at a place: even, and the same in every run."""
    number = (number + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    number = (number ^ number >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return number ^ number >> 31


def sampled(number, rate):
    """Whether the `number`-th of many belongs to a share of `rate`."""
    return _mixed(number) < rate * 2.0 ** 64
