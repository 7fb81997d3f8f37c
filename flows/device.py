"""Which device a benchmark runs on."""

from storage.errors import PassNetError


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
