"""What ran inside the replacements of a pass, as the child reports it: names in a struct of a fixed size.

`passbench.child.observing` makes it, `passbench.checking.evidence` judges it.
"""

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

MAX_NAMES = 64
NAME_BYTES = 120
_HEAD = struct.Struct("<BBBBBBBB")  # numbers of operators, kernels, Triton kernels; then what is true or false
BYTES = _HEAD.size + MAX_NAMES * NAME_BYTES
_FOREIGN = re.compile(r"[^A-Za-z0-9_.:<>,() *&~-]")


@dataclass(frozen=True)
class Observation:
    """Names, each group sorted and without repetition, at most `MAX_NAMES` together; see `passbench.child.observing`.

    `operators`: overloads, such as "aten.mm.default". `kernels`: kernels, copies and fills as the device reports them.
    `triton_kernels`: launched `@triton.jit` functions. `profiled`: whether the device's activity was recorded; without
    it, `kernels` is empty and proves nothing. `overflow`: there were more names than fit. `uneven`: not every call
    launched and dispatched as much as the others. `captured`: a replacement asked for a CUDA graph, see
    `passbench.launch.capture`. `deep`: functions of the pass called each other so deeply that Python's limit was near.

    Raises ValueError on anything that does not fit the fixed-size form.
    """

    operators: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    triton_kernels: tuple[str, ...] = ()
    profiled: bool = False
    overflow: bool = False
    uneven: bool = False
    captured: bool = False
    deep: bool = False

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
        captured: bool = False,
        deep: bool = False,
    ) -> "Observation":
        """From names as they were found: cleaned, cut to `NAME_BYTES`, and as many as fit; the device's kernels last,
        since a library has many."""
        groups, room, overflow = [], MAX_NAMES, False
        for found in (operators, triton_kernels, kernels):
            names = sorted({clean(name) for name in found})
            groups.append(tuple(names[:room]))
            overflow |= len(names) > room
            room -= len(groups[-1])
        return cls(groups[0], groups[2], groups[1], profiled, overflow, uneven, captured, deep)

    def encode(self) -> bytes:
        """`BYTES` bytes."""
        names = b"".join(n.encode("ascii").ljust(NAME_BYTES, b"\0") for group in self._groups for n in group)
        marks = self.profiled, self.overflow, self.uneven, self.captured, self.deep
        head = _HEAD.pack(*map(len, self._groups), *marks)
        return (head + names).ljust(BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "Observation":
        """The inverse of `encode`, from bytes that nobody trusts. Raises ValueError on all others."""
        if len(data) != BYTES:
            raise ValueError(f"an observation has {BYTES} bytes")
        found = _HEAD.unpack_from(data)
        counts, marks = found[:3], found[3:]
        ends = counts[0], counts[0] + counts[1], sum(counts)
        if ends[2] > MAX_NAMES or max(marks) > 1:
            raise ValueError("impossible counts")
        slots = [data[i : i + NAME_BYTES] for i in range(_HEAD.size, BYTES, NAME_BYTES)]
        if any(map(any, slots[ends[2] :])):
            raise ValueError("bytes after the last name")
        names = tuple(slot.rstrip(b"\0").decode("latin-1") for slot in slots)
        groups = names[: ends[0]], names[ends[0] : ends[1]], names[ends[1] : ends[2]]
        return cls(*groups, *map(bool, marks))


def clean(name: str) -> str:
    """A name of anything as an observation holds it: foreign characters become "~", and the end is cut off."""
    return _FOREIGN.sub("~", name)[:NAME_BYTES] or "~"
