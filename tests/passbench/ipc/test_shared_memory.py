import resource
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from passbench.ipc.shared_memory import CpuSharedMemory, CudaSharedMemory, whole_steps
from storage.errors import PassNetError


@contextmanager
def largest_file(size):
    """As `ulimit -f` does: no file of this process becomes larger than `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_limit_of_the_size_of_files_is_told():
    with largest_file(2048), pytest.raises(PassNetError, match=r"limit of a file's size is 2048 bytes.*ulimit -f"):
        CpuSharedMemory(1 << 20)


def test_memory_that_cannot_grow_keeps_its_size():
    shared = CpuSharedMemory(1024)
    with largest_file(2048), pytest.raises(PassNetError, match="no shared memory of 4096 bytes"):
        shared.grow(4096)
    assert shared.size == 1024 and len(shared.bytes) == 1024
    shared.close()


@given(st.integers(1, 1 << 40))
def test_memory_on_a_gpu_is_of_whole_steps(size):
    steps = whole_steps(size)
    assert size <= steps < size + (64 << 20) and steps % (64 << 20) == 0


@pytest.mark.gpu
def test_memory_on_a_gpu_grows_by_whole_steps():
    shared = CudaSharedMemory(1000, torch.device("cuda:0"))
    assert shared.size == len(shared.bytes) == 64 << 20
    shared.grow((64 << 20) + 1)
    assert shared.size == len(shared.bytes) == 128 << 20
    shared.close()
