"""Searches in sorted tensors that are a part of another tensor, or lie in memory in another order.

TorchInductor takes the memory's beginning for that of the part, and does not lower a search in a part of what it
computes. Eager copies what is not contiguous.
"""

import torch


def bucketize(x: torch.Tensor, ordered: torch.Tensor, *, out_int32: bool = False, right: bool = False) -> torch.Tensor:
    """As `aten.bucketize`. NotImplemented, and so TorchInductor's own way, where `ordered` has its memory to itself."""
    if _is_whole(ordered):
        return NotImplemented
    return torch.ops.aten.bucketize.Tensor(x, _copied(ordered), out_int32=out_int32, right=right)


def searchsorted(
    ordered: torch.Tensor,
    x: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """As `aten.searchsorted`. NotImplemented in the same case."""
    if _is_whole(ordered):
        return NotImplemented
    options = {"out_int32": out_int32, "right": right, "side": side, "sorter": sorter}
    return torch.ops.aten.searchsorted.Tensor(_copied(ordered), x, **options)


def _is_whole(x: torch.Tensor) -> bool:
    return x.is_contiguous() and x.storage_offset() == 0 and x.untyped_storage().nbytes() == x.numel() * x.itemsize


def _copied(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)
