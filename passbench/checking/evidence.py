"""What ran inside the replacements of a pass, and whether it may have (INTEGRITY.md, layer 6): the parent's side.

The child observes (`passbench.child.observe`) and answers with bytes of a fixed size. Nothing here runs code of a pass.
An observation is a second look at what the static policy has let through; the child that makes it is not trusted, so
it can convict and cannot acquit.
"""

import functools
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from passbench.contract import PassFiles
from passbench.policy.modules import Report, parse

MAX_NAMES = 64
NAME_BYTES = 120
_HEAD = struct.Struct("<BBBBBB")  # numbers of operators, kernels and Triton kernels; profiled, overflow, uneven
BYTES = _HEAD.size + MAX_NAMES * NAME_BYTES
_FOREIGN = re.compile(r"[^A-Za-z0-9_.:<>,() *&~-]")

OPERATORS = frozenset(
    """empty empty_like empty_strided new_empty new_empty_strided
    zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill_ zero_ lift_fresh
    view _unsafe_view _reshape_alias as_strided expand permute transpose t select slice squeeze unsqueeze unbind split
    split_with_sizes detach alias _conj
    clone copy_ _to_copy""".split()
)
"""ATen operators, without overload, that the host functions and tensor methods of `passbench.policy.allowlists` come
down to: allocations, fills, views and copies. `lift_fresh` is `as_tensor` of numbers, `_conj` is `.H`, `alias` is
`x[...]`; `_reshape_alias` is what `reshape` is on some backends."""

_FILL_OR_COPY = r"at::native::(FillFunctor<|(direct|converting|b?float[0-9]+)_copy_kernel_cuda)"
_TORCH_KERNELS = re.compile(
    rf"Mem(cpy|set) .*"
    rf"|void at::native::(vectorized|unrolled)_elementwise_kernel<([0-9]+, )?{_FILL_OR_COPY}.*"
    rf"|void at::native::elementwise_kernel<[0-9]+, [0-9]+, at::native::gpu_kernel_impl(_nocast)?<{_FILL_OR_COPY}.*"
)
"""What torch 2.11 to 2.15 launch for those operators. The functor comes early in these names, so that it is within
`NAME_BYTES`; without it, `elementwise_kernel` could be any operator."""

_ADVICE = "compute in @triton.jit kernels of the pass; its host code may allocate, fill, view and copy"


@dataclass(frozen=True)
class Observation:
    """Names, each group sorted and without repetition, at most `MAX_NAMES` together; see `evidence_run.observe`.

    `operators`: overloads, such as "aten.mm.default". `kernels`: kernels, copies and fills as the device reports them.
    `triton_kernels`: launched `@triton.jit` functions. `profiled`: whether the device's activity was recorded; without
    it, `kernels` is empty and proves nothing. `overflow`: there were more names than fit. `uneven`: not every call
    launched and dispatched as much as the others.

    Raises ValueError on anything that does not fit the fixed-size form.
    """

    operators: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    triton_kernels: tuple[str, ...] = ()
    profiled: bool = False
    overflow: bool = False
    uneven: bool = False

    def __post_init__(self) -> None:
        if sum(map(len, self._groups)) > MAX_NAMES:
            raise ValueError(f"more than {MAX_NAMES} names")
        for group in self._groups:
            if list(group) != sorted(set(group)):
                raise ValueError("names that are not sorted, or there twice")
            if any(name != clean(name) for name in group):
                raise ValueError("a name that is empty, too long or has foreign characters")

    @property
    def _groups(self) -> tuple[tuple[str, ...], ...]:
        return self.operators, self.kernels, self.triton_kernels

    @classmethod
    def of(
        cls,
        operators: Iterable[str],
        kernels: Iterable[str],
        triton_kernels: Iterable[str],
        *,
        profiled: bool,
        uneven: bool = False,
    ) -> "Observation":
        """From names as they were found: cleaned, cut to `NAME_BYTES`, and as many as fit."""
        groups, room, overflow = [], MAX_NAMES, False
        for found in (operators, kernels, triton_kernels):
            names = sorted({clean(name) for name in found})
            groups.append(tuple(names[:room]))
            overflow |= len(names) > room
            room -= len(groups[-1])
        return cls(*groups, profiled=profiled, overflow=overflow, uneven=uneven)

    def encode(self) -> bytes:
        """`BYTES` bytes."""
        names = b"".join(n.encode("ascii").ljust(NAME_BYTES, b"\0") for group in self._groups for n in group)
        head = _HEAD.pack(*map(len, self._groups), self.profiled, self.overflow, self.uneven)
        return (head + names).ljust(BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "Observation":
        """The inverse of `encode`, from bytes that nobody trusts. Raises ValueError on all others."""
        if len(data) != BYTES:
            raise ValueError(f"an observation has {BYTES} bytes")
        *counts, profiled, overflow, uneven = _HEAD.unpack_from(data)
        ends = counts[0], counts[0] + counts[1], sum(counts)
        if ends[2] > MAX_NAMES or max(profiled, overflow, uneven) > 1:
            raise ValueError("impossible counts")
        slots = [data[i : i + NAME_BYTES] for i in range(_HEAD.size, BYTES, NAME_BYTES)]
        if any(map(any, slots[ends[2] :])):
            raise ValueError("bytes after the last name")
        names = tuple(slot.rstrip(b"\0").decode("latin-1") for slot in slots)
        groups = names[: ends[0]], names[ends[0] : ends[1]], names[ends[1] : ends[2]]
        return cls(*groups, bool(profiled), bool(overflow), bool(uneven))


def clean(name: str) -> str:
    """A name of anything as an observation holds it: foreign characters become "~", and the end is cut off."""
    return _FOREIGN.sub("~", name)[:NAME_BYTES] or "~"


def judge(observation: Observation, files: PassFiles) -> str | None:
    """None if all that ran is allowed to a pass of these sources, else the reason, its code first.

    A replacement that launches nothing is not judged: one that only changes metadata is legal.
    """
    own = jit_functions(files)
    operators = [name for name in observation.operators if not _allowed_operator(name)]
    if operators:
        return f"evidence_operator: {_some(operators)} ran inside the replacement; {_ADVICE}"
    kernels = [name for name in observation.kernels if name not in own and not _TORCH_KERNELS.fullmatch(name)]
    kernels += [name for name in observation.triton_kernels if name not in own]
    if kernels:
        return f"evidence_kernel: {_some(kernels)} ran inside the replacement and is no kernel of the pass; {_ADVICE}"
    if observation.uneven:
        return "evidence_uneven: some calls launch less than others; compute every call's outputs in that call"
    if observation.overflow:
        advice = "launch fewer kernels of different names"
        return f"evidence_overflow: more than {MAX_NAMES} operators and kernels ran inside the replacement; {advice}"
    return None


def jit_functions(files: PassFiles) -> frozenset[str]:
    """Names of the `@triton.jit` functions in a pass's sources; a compiled kernel is called by its function's."""
    return _jit_functions(tuple(files.modules.items()))


@functools.lru_cache(maxsize=8)
def _jit_functions(sources: tuple[tuple[str, str], ...]) -> frozenset[str]:
    siblings = frozenset(name for name, _ in sources)
    parsed = (parse(name, text, siblings, Report()) for name, text in sources)
    return frozenset(clean(kernel) for module in parsed if module is not None for kernel in module.kernels)


def _allowed_operator(name: str) -> bool:
    namespace, _, rest = name.partition(".")
    return namespace == "aten" and rest.partition(".")[0] in OPERATORS


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
