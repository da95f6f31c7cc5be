"""What kernels take and do not show: all that is known here of the inside of an operator. Measured with `liveset run`; estimates.

Three cases are large enough to matter. cuBLAS has a workspace. Losses that reduce in place keep a storage as large as before the
reduction. And oneDNN, which computes convolutions on the CPU, copies input, weight and result into layouts of its own, one operand of
its three after another.
"""
import os
import re

import torch

REDUCED_IN_PLACE = ("mse_loss", "smooth_l1_loss", "binary_cross_entropy", "soft_margin_loss")
LEAST_CHANNELS = 8  # oneDNN reads fewer as they are


GEMMS = ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm")
MIB = 1 << 20


def cublas_workspace():
    """Bytes that torch's allocator gives each cuBLAS handle; a job has one handle for forward and one for autograd's thread."""
    stated = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if stated:
        return sum(int(size) * int(count) << 10 for size, count in stated)
    return 32 * MIB if torch.cuda.get_device_capability()[0] in (9, 10) else 8 * MIB + (128 << 10)


def size_of(tensor):
    return tensor.numel() * tensor.element_size()


def storage_bytes(name, given, result, size):
    """Bytes of a result's storage, which is said to have `size`."""
    if name in REDUCED_IN_PLACE and isinstance(result, torch.Tensor) and result.dim() == 0 and given:
        return max(size, size_of(given[0]))
    return size


def workspace(name, arguments, given, made):
    """Bytes that live while the operator runs, beside what it makes."""
    if name in REDUCED_IN_PLACE and made and made[0].dim() == 0:
        return size_of(given[0])
    if name == "convolution" and by_onednn(arguments[0], arguments[1], arguments[2], arguments[3:]):
        return convolution(arguments[0], arguments[1], made[0])
    if name == "convolution_backward" and by_onednn(arguments[1], arguments[2], None, arguments[4:10]):
        return convolution_backward(*arguments[:3], arguments[10])
    return 0


def by_onednn(tensor, weight, bias, geometry):
    if tensor.device.type != "cpu":
        return False
    try:
        return "Mkldnn" in str(torch._C._select_conv_backend(tensor, weight, bias, *geometry))
    except (AttributeError, RuntimeError, TypeError):
        return False


def copied(tensor):
    return size_of(tensor) if tensor.shape[1] >= LEAST_CHANNELS else 0


def convolution(tensor, weight, result):
    return max(copied(tensor) + size_of(weight), size_of(result))


def convolution_backward(gradient, tensor, weight, wanted):
    """The gradient of the input first, then that of the weight: each copied in, made, copied out."""
    from_gradient, from_weight = copied(gradient), size_of(weight)
    to_input = size_of(tensor) if wanted[0] else 0
    to_weight = from_weight if wanted[1] else 0
    peaks = [from_gradient + from_weight + to_input, 2 * to_input] if wanted[0] else []
    if wanted[1]:
        peaks += [to_input + from_gradient + copied(tensor) + to_weight, to_input + 2 * to_weight]
    return max(0, max(peaks, default=0) - to_input - to_weight)
