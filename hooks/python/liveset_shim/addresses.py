"""Where tensors stand, asked without changing them: torch's data_ptr() first copies a storage that is shared until it is written."""
import sys

_bindings = sys.modules.get("torch._C")
_is_shared = getattr(_bindings, "_is_cow_tensor", None)  # a torch without it has no such storages
_read_only = getattr(_bindings, "_data_address", lambda tensor: 0)  # of a tensor's storage


def is_shared(tensor):
    """Whether its storage is shared until it is written (copy on write)."""
    try:
        return _is_shared is not None and _is_shared(tensor)
    except (RuntimeError, NotImplementedError):
        return False  # it has no storage


def is_fake(tensor):
    """Whether it is a compiler's stand-in for a tensor: no memory, and torch warns whoever asks it for its address."""
    fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", None)
    return fake is not None and issubclass(type(tensor), fake)


def data_address(tensor):
    """Of a tensor's first element; 0 of a stand-in. Raises as data_ptr() does where there is none."""
    if is_fake(tensor):
        return 0
    return _read_only(tensor) + tensor.storage_offset() * tensor.element_size() if is_shared(tensor) else tensor.data_ptr()


def storage_address(tensor, storage):
    """Of a tensor's storage; 0 of a stand-in."""
    if is_fake(tensor):
        return 0
    return _read_only(tensor) if is_shared(tensor) else storage.data_ptr()


def _as_said(tensor):
    return storage_address(tensor, tensor.untyped_storage())


# Of the storage of a strided tensor that is exactly a torch.Tensor or Parameter, in one call; raises as data_ptr() does where there is none.
plain_address = getattr(_bindings, "_data_address", None) or _as_said
