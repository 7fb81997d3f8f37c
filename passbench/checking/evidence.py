"""What ran inside the replacements of a pass, and whether it may have: the parent's side.

See docs/integrity.md, "Evidence".

The child observes (`passbench.child.observing`) and answers with bytes of a fixed size. Nothing here runs code of a
pass. An observation is a second look at what the static policy has let through; the child that makes it is not trusted,
so it can convict and cannot acquit.
"""

import functools
import re

import torch

from passbench.contract import PassFiles
from passbench.ipc.observation import MAX_NAMES, Observation, clean
from passbench.policy.forms.taken_names import write_taken_imports
from passbench.policy.modules import Report, read_module, syntax_tree

FREE = frozenset(
    """empty empty_like empty_strided new_empty new_empty_strided
    zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill_ zero_ lift_fresh scalar_tensor
    view _unsafe_view _reshape_alias as_strided expand permute transpose t select slice squeeze unsqueeze unbind split
    split_with_sizes detach alias _conj view_as_real
    clone copy_ _to_copy""".split()
)
"""ATen operators, without overload, that compute nothing: allocations, fills, views, copies and casts. `lift_fresh` is
`as_tensor` of numbers, `_conj` is `.H`, `alias` is `x[...]`; `_reshape_alias` is what `reshape` is on some backends."""

READING = frozenset(
    """_local_scalar_dense item equal is_nonzero nonzero nonzero_numpy masked_select argwhere _unique _unique2
    unique_dim unique_consecutive allclose _is_all_true _is_any_true""".split()
)
"""ATen operators whose result, or its shape, follows from the values of a tensor: the host waits for the device."""

_DENIED = frozenset(
    """set_ set_data from_file resize_ resize_as_ record_stream pin_memory _pin_memory _sobol_engine_draw
    _foreach_copy_ _lazy_clone""".split()
)
"""ATen operators with effects that no pass may have, though they are reached through the dispatcher."""

_FILL_OR_COPY = r"at::native::(FillFunctor<|(direct|converting|b?float[0-9]+)_copy_kernel_cuda)"
_TORCH_KERNELS = re.compile(
    rf"Mem(cpy|set) .*"
    rf"|void at::native::(vectorized|unrolled)_elementwise_kernel<([0-9]+, )?{_FILL_OR_COPY}.*"
    rf"|void at::native::elementwise_kernel<[0-9]+, [0-9]+, at::native::gpu_kernel_impl(_nocast)?<{_FILL_OR_COPY}.*"
)
"""What torch 2.11 to 2.15 launch for the free operators. The functor comes early in these names, so that it is within
`NAME_BYTES`; without it, `elementwise_kernel` could be any operator."""

_TO_THE_HOST = "Memcpy DtoH"
"""A copy that torch makes without an operator is one, too: `torch.tensor([x[0]])` reads `x`. Operators of linear
algebra look for their errors by such copies, so that nothing follows from one beside an operator."""

_ADVICE = "call torch's public operators, or compute in @triton.jit kernels of the pass"


def judge(observation: Observation, files: PassFiles) -> str | None:
    """None if all that ran is allowed to a pass of these sources, else the reason, its code first.

    A replacement may dispatch ATen operators that draw no random numbers and read no values. Which kernels they launch
    is their own business; where none computes, every kernel must be one of the pass, a fill or a copy. A replacement
    that launches nothing is not judged: one that only changes metadata is legal.
    """
    reading = [name for name in observation.operators if _base(name) in READING or _sizes_by_values(name)]
    if reading:
        advice = "the host may not read the values of a tensor; compute with torch or in a kernel"
        return f"evidence_read: {_some(reading)} ran inside the replacement; {advice}"
    operators = [name for name in observation.operators if not _allowed_operator(name)]
    if operators:
        return f"evidence_operator: {_some(operators)} ran inside the replacement; {_ADVICE}"
    own, library = jit_functions(files), library_ops(observation)
    if not library and any(name.startswith(_TO_THE_HOST) for name in observation.kernels):
        return "evidence_read: values were copied from the device to the host inside the replacement"
    kernels = [] if library else list(observation.kernels)
    kernels = [name for name in kernels if name not in own and not _TORCH_KERNELS.fullmatch(name)]
    kernels += [name for name in observation.triton_kernels if name not in own]
    if kernels:
        return f"evidence_kernel: {_some(kernels)} ran inside the replacement and is no kernel of the pass; {_ADVICE}"
    if observation.deep:
        return "evidence_deep: functions call each other hundreds of times deep; write a loop"
    if observation.uneven:
        return "evidence_uneven: some calls launch less than others; compute every call's outputs in that call"
    named = len(observation.operators) + len(observation.triton_kernels)
    if observation.overflow and (not library or named >= MAX_NAMES):
        advice = "launch fewer kernels of different names"
        return f"evidence_overflow: more than {MAX_NAMES} operators and kernels ran inside the replacement; {advice}"
    return None


def library_ops(observation: Observation) -> tuple[str, ...]:
    """The operators that computed inside replacements, sorted, without overloads: ("aten.mm", "aten.relu").

    Empty where replacements ran nothing but kernels of their own, allocations, fills, views, copies and casts.
    """
    return tuple(sorted({f"aten.{_base(n)}" for n in observation.operators if _base(n) not in FREE}))


def jit_functions(files: PassFiles) -> frozenset[str]:
    """Names of the `@triton.jit` functions in a pass's sources; a compiled kernel is called by its function's."""
    return _jit_functions(tuple(files.modules.items()))


@functools.lru_cache(maxsize=8)
def _jit_functions(sources: tuple[tuple[str, str], ...]) -> frozenset[str]:
    siblings, report = frozenset(name for name, _ in sources), Report()
    trees = {name: tree for name, text in sources if (tree := syntax_tree(name, text, report)) is not None}
    write_taken_imports(trees)
    read = (read_module(name, text, trees[name], siblings, report) for name, text in sources if name in trees)
    return frozenset(clean(name) for module in read if module is not None for name in module.kernel_names)


def _base(name: str) -> str:
    """ "aten.add.Tensor" → "add"."""
    return name.partition(".")[2].partition(".")[0]


def _allowed_operator(name: str) -> bool:
    namespace, _, rest = name.partition(".")
    base = _base(name)
    return namespace in ("aten", "prims") and (base in FREE or (base not in _DENIED and not _is_random(rest)))


@functools.cache
def _sizes_by_values(name: str) -> bool:
    """Whether the values of a tensor decide the shape of an operator's result, as torch's own tags say. `index` does so
    by a mask alone, which the child looks for."""
    base, _, overload = name.partition(".")[2].partition(".")
    packet = getattr(torch.ops.aten, base, None) if base.isidentifier() and base != "index" else None
    found = getattr(packet, overload, None) if packet is not None and overload.isidentifier() else None
    return isinstance(found, torch._ops.OpOverload) and torch.Tag.dynamic_output_shape in found.tags


@functools.cache
def _is_random(name: str) -> bool:
    """Whether "normal_.default" and the like draw random numbers, as torch's own tags say; True where torch has no
    such operator."""
    base, _, overload = name.partition(".")
    if not base.isidentifier() or base.startswith("__"):
        return True
    packet = getattr(torch.ops.aten, base, None) or getattr(torch.ops.prims, base, None)
    found = getattr(packet, overload, None) if packet is not None and overload.isidentifier() else None
    if not isinstance(found, torch._ops.OpOverload):
        return True
    return torch.Tag.nondeterministic_seeded in found.tags and base not in _SEEDED_BY_DROPOUT


_SEEDED_BY_DROPOUT = frozenset(
    """_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _flash_attention_forward _efficient_attention_forward _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_attention_math _scaled_dot_product_fused_attention_overrideable scaled_dot_product_attention
    _cudnn_attention_forward _cudnn_rnn miopen_rnn""".split()
)
"""Attention and recurrences: random only with dropout, which the static policy refuses and a comparison shows."""


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
