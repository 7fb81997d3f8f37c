"""The shared memory as a worker's calls see it, and the seeds of its random operators."""

import pytest
import torch

from passbench.child.call_memory import CallMemory


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_seed_is_torchs_own(device):
    memory = CallMemory(torch.device(device), None)

    def drawn() -> list[float]:
        return [*torch.rand(3, device=device).tolist(), *torch.rand(2).tolist()]

    torch.manual_seed(5)
    expected = drawn()
    assert drawn() != expected
    memory.seed(5)
    assert drawn() == expected
