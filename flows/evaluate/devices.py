"""Which devices benchmarks run on, and which processor cores belong to each."""

import os
from pathlib import Path

from storage.errors import PassNetError

LEAST_CORES = 4
"""With fewer cores a device's processes are not kept apart from another device's."""

_TOPOLOGY = Path("/sys/devices/system/cpu")


def resolve_device(name: str) -> str:
    """ "auto" → "cuda" if there is a GPU, else "cpu"; other names as they are.

    Raises PassNetError for a name that is no device, or for a GPU that is not there.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise PassNetError(f"{name!r} is not a device: use auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise PassNetError(f"PassBench runs on cpu and cuda, not on {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise PassNetError(f"there is no GPU {name!r} here: use --device cpu to check correctness only")
    return name


def resolve_devices(name: str) -> list[str]:
    """The devices that a run fills side by side; a name that is listed twice gets two benchmarks at a time.

    "auto" → every GPU, or the CPU where there is none; "cuda:0,cuda:2" → these; "cpu:2" → the CPU, twice. Raises
    PassNetError as `resolve_device`, for a GPU named twice, which would be timed at two things at once, and for GPUs
    beside the CPU, whose times mean nothing.
    """
    import torch

    if name == "auto" and torch.cuda.device_count() > 1:
        return [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    found = [resolve_device(part.strip()) for part in name.split(",")]
    if {torch.device(part).type for part in found} == {"cpu"}:
        return [slot for part in found for slot in ["cpu"] * max(1, torch.device(part).index or 1)]
    places = [str(torch.device("cuda", torch.device(part).index or 0)) for part in found]
    if "cpu" in found or len(set(places)) < len(places):
        raise PassNetError(f"{name!r} has a GPU twice, or GPUs beside the CPU: name each GPU once")
    return found


def core_shares(count: int) -> list[set[int]]:
    """The cores that this process may use, in `count` parts; the threads of one core are in the same part.

    What compiles for one device then leaves alone the cores on which another device is timed. Where a part would have
    fewer than `LEAST_CORES`, every part has all cores.
    """
    cores: dict[str, list[int]] = {}
    for number in sorted(os.sched_getaffinity(0)):
        siblings = _TOPOLOGY / f"cpu{number}" / "topology" / "thread_siblings_list"
        cores.setdefault(siblings.read_text() if siblings.exists() else str(number), []).append(number)
    threads = [number for together in cores.values() for number in together]
    share = len(threads) // count
    if share < LEAST_CORES:
        return [set(threads)] * count
    return [set(threads[part * share : (part + 1) * share]) for part in range(count)]
