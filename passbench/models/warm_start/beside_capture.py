"""What a start needs besides dynamo's capture, in threads beside it: work that holds no lock of Python's."""

import contextlib
import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
import torch._dynamo.config

from passbench.launch.copies import load_copies
from passbench.launch.garbage_collection import without_collection
from passbench.models.parameters.weight_merging import folded_weights
from passbench.models.warm_start.compiler_hashes import CompilerHashes

T = TypeVar("T")

SHORT_TURN = 1e-4
"""Seconds that a thread waits for Python's lock while files are hashed."""
MERGED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Dtypes of weights that `loading` knows."""
_ONE_AT_A_TIME = threading.RLock()


def _once(function: Callable[..., T]) -> Callable[..., T]:
    """As `functools.cache`, which calls the function twice where two threads ask at the same time."""
    kept = functools.cache(function)

    @functools.wraps(function)
    def asked(*given: object) -> T:
        with _ONE_AT_A_TIME:
            return kept(*given)

    return asked


@_once
def hashing() -> threading.Thread:
    """A thread that hashes the files of torch and triton, without which TorchInductor finds nothing in its caches.

    That is half a gigabyte in 2,000 files, once in a process; it has nothing to do where no file has changed since
    another process did it. Reading and hashing hold no lock of Python's, but each file asks for the lock again, and a
    busy main thread gives it after 5 ms alone: for so long it gives it sooner.
    """
    hashes = CompilerHashes()
    if hashes.take_up():
        return _begun(int, "passnet-hashing")

    def hash_files() -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(min(before, SHORT_TURN))
        try:
            hashes.compute()
        finally:
            sys.setswitchinterval(before)

    return _begun(hash_files, "passnet-hashing")


@_once
def gpu_thread(device: torch.device) -> ThreadPoolExecutor:
    """A thread that plans convolutions on this GPU and captures CUDA graphs with these plans, in turn.

    A process that ends waits for what the thread is at, some seconds at most: CUDA may not be taken apart under it."""
    return ThreadPoolExecutor(1, "passnet-gpu")


@_once
def helping_thread(device: torch.device, number: int) -> ThreadPoolExecutor:
    """One of the threads that plan convolutions beside `gpu_thread`, and call them for it."""
    return ThreadPoolExecutor(1, f"passnet-gpu-helper-{number}")


@_once
def loading(device: torch.device, dtype: torch.dtype) -> threading.Thread:
    """A thread that loads the GPU's kernels by which weights of this dtype are merged and a CUDA graph's inputs copied.

    The driver loads a kernel when it is first launched, which takes up to a tenth of a second for each.
    """

    def load() -> None:
        with torch.no_grad(), torch.cuda.device(device):
            one = torch.ones(1, dtype=dtype, device=device)
            folded_weights(one.reshape(1, 1, 1, 1), None, one, one, one, one, 1e-5)
            torch.cat([one, one])
            load_copies()
            torch.cuda.current_stream().synchronize()  # other streams may be in a capture of another thread

    thread = _begun(load, "passnet-loading")
    _loading.append(thread)
    return thread


_loading: list[threading.Thread] = []


def wait_for_kernels() -> None:
    """Return when `loading` is done: a CUDA graph may not be captured while another thread waits for the GPU."""
    for thread in tuple(_loading):
        thread.join()


def wait_for_gpu_thread(device: torch.device) -> None:
    """Return when `gpu_thread` has nothing left to do: another thread is about to capture a CUDA graph."""
    gpu_thread(device).submit(int).result()


def _begun(work: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def garbage_later() -> Iterator[None]:
    """Python looks for no garbage meanwhile, and dynamo asks for none: a sixth of a capture, which makes many objects
    and little garbage. What was made counts as old afterwards, so that the next full collection looks at it first."""
    with without_collection():
        try:
            with torch._dynamo.config.patch(run_gc_after_compile=False):
                yield
        finally:
            if gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()
