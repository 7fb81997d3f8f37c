"""A GPU that need not be there: what TorchInductor asks about its device until it has scheduled a graph.

TorchInductor's choices depend on the device: it splits reductions by the number of multiprocessors, concatenates and
adds a convolution's bias differently on a GPU than on a CPU. On fake CUDA tensors and with one fixed set of properties
it schedules as on that GPU, on any machine, and equally on all of them. No CUDA context is made, here or in a child.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor.scheduler
import torch._inductor.select_algorithm
import torch._subclasses.fake_tensor
from torch._inductor.codecache import CacheBase
from torch._inductor.runtime.hints import DeviceProperties
from torch.utils._python_dispatch import _disable_current_modes

NAME = "reference GPU (sm_90, 132 multiprocessors)"
_CAPABILITY = (9, 0)
_PROPERTIES = DeviceProperties(
    type="cuda",
    index=0,
    multi_processor_count=132,
    cc=90,
    major=9,
    regs_per_multiprocessor=65_536,
    max_threads_per_multi_processor=2_048,
    max_threads_per_block=1_024,
    warp_size=32,
)
"""Those of an H100 or H200."""


@contextmanager
def pretended() -> Iterator[None]:
    """TorchInductor sees the reference GPU as cuda:0 inside the `with` block."""
    replaced: list[tuple[Any, str, Any]] = [
        (DeviceProperties, "create", lambda *_: _PROPERTIES),
        (torch.cuda, "get_device_properties", lambda *_: _PROPERTIES),
        (torch.cuda, "get_device_capability", lambda *_: _CAPABILITY),
        (torch.cuda, "current_device", lambda: 0),
        (torch._inductor.scheduler, "has_triton", lambda: True),
        (torch._inductor.select_algorithm, "_ALGORITHM_SELECTOR_CACHE", None),
        (CacheBase, "get_system", staticmethod(lambda: {"hash": "reference"})),
        (CacheBase, "get_local_cache_path", staticmethod(lambda: Path("reference"))),
        (torch._subclasses.fake_tensor, "init_gpu_context", lambda *_: None),
    ]
    with ExitStack() as stack:
        for holder, name, value in replaced:
            stack.enter_context(patch.object(holder, name, value))
        yield


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`scaled_dot_product_attention` as the reference GPU runs it: the choice of kernel needs a real device.

    One library call (the memory-efficient kernel stands for all fused ones, a mask is expanded and made additive before
    it), or where none takes the operands their decomposition; after ATen's `sdp_utils.cpp`.
    """
    heads = (query, key, value)
    step = 8 if query.dtype in (torch.float16, torch.bfloat16) else 4
    fused = (
        all(each.dim() == 4 and each.shape[-1] % step == 0 and each.stride(-1) == 1 for each in heads)
        and query.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and not (attn_mask is not None and is_causal)
        and (not enable_gqa or query.shape[1] == key.shape[1])
        and query.shape[:2] == key.shape[:2] == value.shape[:2]
        and 0 not in (*query.shape, *key.shape)
    )
    if not fused:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            zero = torch.zeros((), dtype=query.dtype, device=query.device)
            attn_mask = torch.where(attn_mask, zero, float("-inf"))
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    made = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, False, dropout_p, is_causal, scale=scale
    )
    return made[0]


def tensor(
    data: Any, *, dtype: torch.dtype | None = None, device: Any = None, requires_grad: bool = False
) -> torch.Tensor:
    """`torch.tensor` on the reference GPU: on a fake one tracing asks the real one for the constant."""
    with _disable_current_modes():
        made = torch.tensor(data, dtype=dtype)
        value = made.item() if made.numel() == 1 else 0
    return torch.full(made.shape, value, dtype=made.dtype, device=device)


INSTEAD = {torch.nn.functional.scaled_dot_product_attention: attention, torch.tensor: tensor}
"""What is traced for functions that need a real device."""
