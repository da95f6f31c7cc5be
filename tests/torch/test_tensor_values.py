"""What reads tensors' contents for --check-replay and --fingerprint leaves them and the job as they are, and reads the truth or nothing."""
import pathlib
import struct
import threading
import types
import unittest
from unittest import mock

import support

torch = support.importlib.import_module("torch")
shim = support.load_shim()
values_module = support.importlib.import_module("_liveset_shim.tensor_values")
replay_state = support.importlib.import_module("_liveset_shim.replay_state")


def content(address, item_bytes, dimensions, *sides):
    """A stand-in for the native digest: the sum of the bytes that a dense or strided place has, read one by one."""
    import ctypes

    def elements(start, sides):
        if not sides:
            return bytes((ctypes.c_ubyte * item_bytes).from_address(start))
        size, stride, *rest = sides
        return b"".join(elements(start + index * stride * item_bytes, rest) for index in range(size))
    assert len(sides) == 2 * dimensions
    return hash(elements(address, sides))


def truth(tensor):
    return hash(bytes(tensor.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).tolist())) & (1 << 64) - 1


class Values(unittest.TestCase):
    def setUp(self):
        self.values = values_module.TensorValues(types.SimpleNamespace(torch=torch, digest=content, bits=lambda address, count: 0))

    def through_a_device(self):
        """Tensors are read as those of a device are: copied to a buffer first."""
        def copied(reading, copy=values_module.Reading._copied):
            return copy(reading, tuple(reading.tensor.shape), reading.tensor.stride())

        class OnDevice(values_module.Reading):
            def __enter__(reading):
                super().__enter__()
                if reading.place is not None and reading.tensor.numel():
                    reading.place[0] = copied(reading).data_ptr()
                return reading
        return mock.patch.object(values_module, "Reading", OnDevice)

    def test_strides_of_every_kind_are_read_in_the_order_of_indices(self):
        base = torch.arange(2 * 3 * 4, dtype=torch.float32).view(2, 3, 4)
        tensors = [base, base.transpose(0, 2), base[:, 1], base[1:, ::2], base[0, 0, :1].expand(5, 1), base[0, 0, 0], base[:0],
                   base.to(torch.bfloat16), base > 3, base.to(torch.complex64)]
        for number, tensor in enumerate(tensors):
            self.assertEqual(self.values.digest(tensor), truth(tensor), number)
            with self.through_a_device():
                self.assertEqual(self.values.digest(tensor), truth(tensor), number)

    def test_what_a_view_says_otherwise_than_its_memory_is_not_read(self):
        numbers = torch.tensor([1 + 2j, 3 - 4j])
        for tensor in (numbers.conj(), numbers.conj().imag, torch._neg_view(torch.ones(2))):
            self.assertIsNone(self.values.digest(tensor))
            self.assertEqual(self.values.samples(tensor), [])
        self.assertEqual(self.values.digest(numbers.conj().resolve_conj()), truth(numbers.conj()))

    def test_two_threads_do_not_read_each_other(self):
        """The other thread reads more, between the copy and the digest of the first."""
        ones, zeros = torch.ones(16), torch.zeros(4096)
        with self.through_a_device():
            with self.values.read(ones) as reading:
                other = threading.Thread(target=lambda: self.values.digest(zeros))
                other.start()
                other.join()
                self.values.digest(zeros)  # and so does this one, from a hook that runs meanwhile
                self.assertEqual(reading.digest() & (1 << 64) - 1, truth(ones))
            self.assertEqual(self.values.digest(zeros), truth(zeros))
            self.assertLessEqual(len(self.values.buffers), 2)  # what ran at once

    def test_lazy_copies_stay_lazy(self):
        lazy = torch._lazy_clone(torch.ones(8))
        self.values.digest(lazy)
        self.values.samples(lazy)
        self.values.address(lazy)
        self.assertTrue(torch._C._is_cow_tensor(lazy))

    def test_nothing_is_read_while_a_graph_is_captured(self):
        tensor = mock.Mock(spec_set=("layout", "device", "is_conj", "is_neg"), layout=torch.strided, device=torch.device("cuda:0"))
        tensor.is_conj.return_value = tensor.is_neg.return_value = False
        self.values.exact_types = (type(tensor),)
        for captures in (True, False):
            with mock.patch.object(torch.cuda, "is_initialized", return_value=True), \
                 mock.patch.object(torch.cuda, "is_current_stream_capturing", return_value=captures):
                self.assertEqual(self.values.readable(tensor), not captures)
        self.assertEqual(self.values.capturing, 1)

    def test_methods_of_a_jobs_own_containers_are_not_called(self):
        def refuse(*_):
            raise AssertionError("the job's code ran")
        one = torch.nn.Linear(1, 1)
        for base, item in ((dict, {"one": one}), (list, [one]), (tuple, (one,))):
            own = type("Own", (base,), {"values": refuse, "items": refuse, "__iter__": refuse})(item)
            self.assertEqual(list(replay_state.contents_of(own)), [one])
            self.assertEqual(list(replay_state._modules_in(torch.nn.Module, own)), [one])


class Writing(support.TorchTest):
    def test_whole_values_are_those_of_strided_gradients_and_a_full_disk_loses_no_line(self):
        script = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.).view(2, 3).t())
    def forward(self, x):
        return x @ self.weight
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.5)
net(torch.ones(1, 3)).sum().backward()
optimizer.step()
"""
        run = self.record(script, options=("--fingerprint=1", "--fingerprint-values"))
        self.assertEqual((run.status, run.stderr), (0, ""))
        self.assert_sound(run)
        folder = pathlib.Path(f"{run.trace}.values")
        files = {entry["what"]: (folder / entry["file"]).read_bytes()
                 for entry in support.json.loads((folder / "index.json").read_text())["tensors"]}
        # weight[i][j] is i + 3 j, and its gradient is 1.
        self.assertEqual(files["parameter"], struct.pack("<6f", -0.5, 2.5, 0.5, 3.5, 1.5, 4.5))
        # Where the files cannot be written the fingerprints are said all the same.
        blocked = self.folder / "blocked"
        blocked.write_text("")
        run = self.record(script, name="full",
                          options=("--fingerprint=1",), environment={"LIVESET_FINGERPRINT_VALUES": str(blocked / "no")})
        self.assertEqual((run.status, run.stderr), (0, ""))
        self.assertEqual(run.trace.read_bytes().count(b'"what": "parameter"'), 1)


if __name__ == "__main__":
    unittest.main()
