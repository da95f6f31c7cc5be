"""Digests of tensors' contents, read natively where they lie: nothing is dispatched, copied or allocated for those in host memory.

Those of a CUDA device are copied to one host buffer of ours, which waits for the device. On a stand-in device they mean nothing.
"""
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
        self.host_copy = None  # what a tensor of a device was copied to last
        self.exact_types = (self.torch.Tensor, self.torch.nn.Parameter)

    def readable(self, tensor):
        return (type(tensor) in self.exact_types and tensor.layout is self.torch.strided
                and (tensor.device.type == "cpu" or tensor.device.type == "cuda" and not self.stand_in))

    def digest(self, tensor):
        """64-bit hash of the elements in the order of their indices; None where there are none to read. Call it inside quiet()."""
        place = self.place(tensor)
        return None if place is None else self.context.digest(*place) & (1 << 64) - 1

    def place(self, tensor):
        """What the native functions want to know of a tensor in host memory, or of the copy of one. None: it cannot be read."""
        if not self.readable(tensor):
            return None
        try:
            if tensor.device.type != "cpu":
                tensor = self._copied(tensor)
            address = tensor.data_ptr()
        except RuntimeError:  # wrapped by torch.func, or without storage
            return None
        sizes = tensor.shape
        if address == 0:
            if tensor.numel() != 0:
                return None  # its memory was taken away (FSDP does)
            address, sizes = 1, (0,)
        place = [address, tensor.element_size(), len(sizes)]
        for size, stride in zip(sizes, tensor.stride() if len(sizes) == len(tensor.shape) else (1,)):
            place += size, stride
        return place

    def _copied(self, tensor):
        torch = self.torch
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            size = tensor.numel() * tensor.element_size()
            if self.host_copy is None or self.host_copy.numel() < size:
                self.host_copy = torch.empty(size, dtype=torch.uint8)
            copy = self.host_copy[:size].view(tensor.dtype).view(tensor.shape)
            copy.copy_(tensor.detach())
        return copy

    def samples(self, tensor, count=SAMPLES):
        """[(position in the order of indices, bits)] of a few elements at places that are always the same."""
        place = self.place(tensor)
        if place is None:
            return []
        address, item_bytes, dimensions = place[:3]
        sizes, strides = place[3::2], place[4::2]
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
            found.append((position, self.context.bits(address + offset * item_bytes, item_bytes) & (1 << 64) - 1))
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
