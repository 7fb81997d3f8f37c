"""What a start does beside dynamo's capture, and that it leaves the process as it was."""

import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch._dynamo.config
from torch._inductor.runtime import triton_compat

from passbench.launch.copies import _compiled, can_copy
from passbench.models.warm_start.beside_capture import _once, garbage_later, hashing, loading, wait_for_kernels


def test_what_caches_are_keyed_by_is_hashed_once() -> None:
    before = sys.getswitchinterval()
    hashing().join()
    assert hashing() is hashing() and not hashing().is_alive()
    assert triton_compat.triton_key.cache_info().currsize == 1
    assert sys.getswitchinterval() == before


def test_two_threads_that_ask_at_once_get_the_same() -> None:
    made: list[object] = []

    @_once
    def slowly() -> object:
        made.append(object())
        time.sleep(0.05)
        return made[-1]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(slowly), pool.submit(slowly)
    assert first.result() is second.result() and len(made) == 1


def test_no_garbage_is_looked_for_meanwhile_and_none_is_lost() -> None:
    gone: list[int] = []

    class Cycle:
        def __del__(self) -> None:
            gone.append(1)

    with pytest.raises(ValueError, match="within"), garbage_later():
        assert not gc.isenabled() and not torch._dynamo.config.run_gc_after_compile
        one = Cycle()
        one.self = one
        del one
        raise ValueError("within")
    assert gc.isenabled() and torch._dynamo.config.run_gc_after_compile
    gc.collect()
    assert gone == [1]


@pytest.mark.gpu
def test_kernels_are_loaded_beside_a_capture() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    thread = loading(device, torch.float32)
    wait_for_kernels()
    assert not thread.is_alive()
    assert loading(device, torch.float32) is loading(device, torch.float32)
    assert not can_copy() or _compiled.cache_info().currsize >= 2
