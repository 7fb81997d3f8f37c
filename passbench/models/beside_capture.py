"""What a start needs besides dynamo's capture, in threads beside it: work that holds no lock of Python's."""

import contextlib
import functools
import gc
import threading
from collections.abc import Callable, Iterator

import torch

from passbench.models.parameters.weight_merging import folded_weights

MERGED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Dtypes of weights that `loading` knows."""


@functools.cache
def hashing() -> threading.Thread:
    """A thread that hashes the files of torch and triton, without which TorchInductor finds nothing in its caches.

    That is half a gigabyte, once in a process. Reading and hashing hold no lock of Python's, so they cost next to
    nothing beside dynamo's capture, if begun before it.
    """
    from torch._inductor.codecache import torch_key
    from torch._inductor.runtime.triton_compat import HAS_TRITON, triton_key

    def hash_files() -> None:
        torch_key()
        if HAS_TRITON:
            triton_key()

    return _begun(hash_files, "passnet-hashing")


@functools.cache
def loading(device: torch.device, dtype: torch.dtype) -> threading.Thread:
    """A thread that loads the GPU's kernels by which weights of this dtype are merged.

    The driver loads a kernel when it is first launched, which takes up to a tenth of a second for each.
    """

    def load() -> None:
        with torch.no_grad(), torch.cuda.device(device):
            one = torch.ones(1, dtype=dtype, device=device)
            folded_weights(one.reshape(1, 1, 1, 1), None, one, one, one, one, 1e-5)
            torch.cat([one, one])
            torch.cuda.synchronize()

    return _begun(load, "passnet-loading")


def _begun(work: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def garbage_later() -> Iterator[None]:
    """Python looks for no garbage meanwhile: a tenth of a capture, which makes many objects and little garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
