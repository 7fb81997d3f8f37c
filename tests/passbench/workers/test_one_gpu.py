import os

import pytest
import torch

from passbench.workers.one_gpu import device_inside, one_gpu

SECOND = torch.device("cuda", 1)


def test_on_the_cpu_all_gpus_are_hidden():
    assert one_gpu(torch.device("cpu")) == {"CUDA_VISIBLE_DEVICES": ""}
    assert device_inside(torch.device("cpu")) == "cpu"


@pytest.mark.parametrize(("listed", "seen"), [("2,3", "3"), ("GPU-a,GPU-b,GPU-c", "GPU-b"), ("MIG-a,MIG-b", "MIG-b")])
def test_of_a_list_the_devices_element_is_left(monkeypatch, listed, seen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert one_gpu(SECOND) == {"CUDA_VISIBLE_DEVICES": seen}
    assert device_inside(SECOND) == "cuda:0"


@pytest.mark.gpu
def test_a_gpu_of_a_host_without_a_list():
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        pytest.skip("CUDA_VISIBLE_DEVICES lists this process's GPUs")
    last = torch.device("cuda", torch.cuda.device_count() - 1)
    seen = one_gpu(last)
    if torch.cuda.device_count() == 1:
        assert seen == {}
    else:
        uuid = str(torch.cuda.get_device_properties(last).uuid).removeprefix("GPU-")
        assert seen == {"CUDA_VISIBLE_DEVICES": f"GPU-{uuid}"}
