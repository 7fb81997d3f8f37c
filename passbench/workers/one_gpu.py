"""A worker sees the benchmark's GPU and no other: it can neither use another one nor leave it at work."""

import os

import torch


def one_gpu(device: torch.device) -> dict[str, str]:
    """The variables of a worker's environment that hide all GPUs but `device`; on the CPU they hide all.

    Where this process's own CUDA_VISIBLE_DEVICES lists GPUs, it is that list's element; else the GPU's UUID.
    """
    if device.type != "cuda":
        return {"CUDA_VISIBLE_DEVICES": ""}
    listed = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    number = device.index or 0
    if number < len(listed):
        return {"CUDA_VISIBLE_DEVICES": listed[number]}
    if torch.cuda.device_count() == 1:
        return {}
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return {"CUDA_VISIBLE_DEVICES": uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"}


def device_inside(device: torch.device) -> str:
    """What a worker calls the device, the only one that it sees."""
    return "cuda:0" if device.type == "cuda" else str(device)
