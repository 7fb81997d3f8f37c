"""Memory that parent and child share: inputs are laid out in it, outputs come back in it.

On the CPU it is a memfd, mapped by both; on CUDA one allocation, opened through CUDA IPC. Every tensor made from it
has a storage of its own, as tensors have in a user's program: compilers look at storages to find aliases.
"""

import errno
import fcntl
import mmap
import os
import resource
from collections.abc import Sequence

import torch

from passbench.ipc import cuda_ipc
from passbench.ipc.messages import Block
from storage.errors import PassNetError

ALIGNMENT = 512  # bytes; what CUDA's caching allocator gives
_SEAL_SHRINK = 0x2  # F_SEAL_SHRINK: a child that cuts the file short would crash the parent
_SEAL_SEAL = 0x1


def extent(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Elements of memory that a tensor of this shape and stride reaches over; 0 if it has none."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


class CpuSharedMemory:
    """A memfd mapped into this process. `size` in bytes; `fd` None makes a new one.

    Raises PassNetError if the system does not give a file of this size.
    """

    def __init__(self, size: int, fd: int | None = None) -> None:
        self.owner = fd is None
        if fd is None:
            fd = os.memfd_create("passnet-shared", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                _set_size(fd, size)
            except PassNetError:
                os.close(fd)
                raise
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEAL_SHRINK | _SEAL_SEAL)
        self.fd, self.size = fd, size
        self._map = mmap.mmap(fd, size)
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    @property
    def handle(self) -> tuple:
        """What the child opens, with the descriptor that it got at its start."""
        return ("cpu", self.size)

    def storage(self, offset: int, size: int) -> torch.UntypedStorage:
        """`size` bytes at `offset` as a storage of their own."""
        if size == 0:
            return torch.UntypedStorage(0)
        return torch.frombuffer(self._map, dtype=torch.uint8, count=size, offset=offset).untyped_storage()

    def grow(self, size: int) -> None:
        """Enlarge the file and map it anew; tensors of the old mapping stay valid. For the owner.

        Raises PassNetError if the system does not give a file of this size.
        """
        _set_size(self.fd, size)
        self.size = size
        self._map = mmap.mmap(self.fd, size)
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def close(self) -> None:
        """Close the file; mappings end with their last tensor."""
        if self.owner:
            os.close(self.fd)


def _set_size(fd: int, size: int) -> None:
    try:
        os.ftruncate(fd, size)
    except OSError as error:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if error.errno == errno.EFBIG and limit != resource.RLIM_INFINITY:
            advice = f"the limit of a file's size is {limit} bytes; raise it with `ulimit -f unlimited`"
        else:
            advice = f"{error.strerror}; free memory, or take a smaller variant"
        raise PassNetError(f"no shared memory of {size} bytes for the worker: {advice}") from error


_STEP = 64 << 20
"""Bytes of whose multiples CUDA memory is. Another process reads an allocation of 1062 MiB and some bytes about half as
fast as one of 1152 MiB: products with weights of 553 MB took 440 us there and 270 us here on an H100
(benchmarks/passbench/h100_memory_sizes)."""


def whole_steps(size: int) -> int:
    """The next size up that CUDA memory has."""
    return -(-size // _STEP) * _STEP


class CudaSharedMemory:
    """One CUDA allocation of `size` bytes or a little more; `handle` given: another process's, of just as many."""

    fd = None

    def __init__(self, size: int, device: torch.device, handle: bytes | None = None) -> None:
        self.size, self.device, self.owner = 0, device, handle is None
        if self.owner:
            size = whole_steps(size)
        self._start = cuda_ipc.allocate(size, device) if handle is None else cuda_ipc.attach(handle)
        self.size = size
        self._handle = cuda_ipc.export(self._start) if handle is None else handle
        self.bytes = cuda_ipc.as_bytes(self._start, size, device)

    @property
    def handle(self) -> tuple:
        """What the child opens."""
        return ("cuda", self.size, self._handle)

    def storage(self, offset: int, size: int) -> torch.UntypedStorage:
        """`size` bytes at `offset` as a storage of their own."""
        return cuda_ipc.storage(self._start + offset, size, self.device)

    def grow(self, size: int) -> None:
        """Replace the allocation by one of another size. For the owner, when no child has it open.

        Raises torch.OutOfMemoryError; the shared memory is of no size then, and can grow again.
        """
        self.close()
        self.__init__(size, self.device)

    def close(self) -> None:
        """Let go of the allocation, if there is one; nobody may use its tensors any more."""
        if self.size:
            self.size, self.bytes = 0, None
            (cuda_ipc.free if self.owner else cuda_ipc.detach)(self._start)


SharedMemory = CpuSharedMemory | CudaSharedMemory


def make(size: int, device: torch.device) -> SharedMemory:
    """New shared memory of at least `size` bytes on the device."""
    return CudaSharedMemory(size, device) if device.type == "cuda" else CpuSharedMemory(size)


def open_handle(handle: tuple, fd: int | None, device: torch.device) -> SharedMemory:
    """The shared memory that another process made; `fd`: the memfd, on the CPU. `device` is what this process calls the
    GPU that it lies on."""
    if handle[0] == "cpu":
        return CpuSharedMemory(handle[1], fd=fd)
    _, size, shared = handle
    return CudaSharedMemory(size, device, shared)


TensorCache = dict[tuple, dict[int, torch.Tensor]]
"""Tensors of the shared memory, by kind and place. To make one anew takes ten times as long as another handle to it."""


def input_tensors(shared: SharedMemory, block: Block, places: Sequence[int], cache: TensorCache) -> list[torch.Tensor]:
    """The tensors at these places of a block, each alone in its storage.

    The tensors are new objects every time. Their storages are kept in `cache`, which grows with every new place.
    """
    here = cache.setdefault((block.dtype, block.shape, block.stride), {})
    starts = [block.starts[place] for place in places]
    if missing := [start for start in starts if start not in here]:
        size = extent(block.shape, block.stride) * block.dtype.itemsize
        empty = torch.empty(0, dtype=block.dtype, device=shared.bytes.device)
        for start in missing:
            here[start] = empty.detach().set_(shared.storage(start, size), 0, block.shape, block.stride)
    return [here[start].detach() for start in starts]


def place_bytes(shared: SharedMemory, block: Block, place: int) -> torch.Tensor:
    """The bytes of one place, padding included, eight at a time."""
    start = block.starts[place]
    return shared.bytes[start : start + block.size].view(torch.int64)


def output_views(shared: SharedMemory, block: Block) -> list[torch.Tensor]:
    """The tensors at all places of an output's block, to be written to alone: views of one."""
    whole = shared.bytes[block.offset : block.end].view(block.dtype)
    step = block.size // block.dtype.itemsize
    return list(whole.as_strided((len(block.starts), *block.shape), (step, *block.stride)).unbind(0))
