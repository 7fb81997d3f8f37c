"""A kernel of `distill` with names for numbers: from source with slots to plain source.

A kernel has one of three forms: over elements, over rows of which a program has one, or over rows that a program sweeps
in steps, several rows side by side where neighbouring rows are neighbours in memory.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.distill.kernels.text_template import template, values
from agent.readable.sizes import HostSizes
from storage.errors import PassNetError

MOST_COLUMNS = 16384
"""The longest row, in elements, that one program holds."""


class Unreadable(PassNetError):
    """A region that this author does not write; says why."""


@dataclass(frozen=True)
class GeneralKernel:
    """Source of a kernel, and the `arguments` behind its tensors. `sizes` has their source on the host by name, and
    that of `rows` and `columns`; `columns` is empty for a pointwise kernel, whose `rows` are its elements. `sweeps`: it
    takes its columns in steps."""

    text: str
    arguments: tuple[str, ...]
    sizes: dict[str, str]
    rows: str
    columns: str
    sweeps: bool = False


_LINES_OF_ROWS = (
    (
        re.compile(r"row = tl\.program_id\(0\) \* ROWS \+ tl\.arange\(0, ROWS\)\[:, None\]\n"),
        "row = tl.program_id(0)\n",
    ),
    (re.compile(r" *row_inside = row < «\d+»\n"), ""),
    (re.compile(r"tl\.arange\(0, COLUMNS\)\[None, :\]"), "tl.arange(0, COLUMNS)"),
    (re.compile(r"column_inside = column < "), "inside = column < "),
    (re.compile(r" *inside = row_inside & column_inside\n"), ""),
    (re.compile(r", mask=row_inside\)"), ")"),
    (re.compile(r"row_inside & "), ""),
    (re.compile(r"mask=column_inside"), "mask=inside"),
    (re.compile(r", ROWS: tl\.constexpr, COLUMNS: tl\.constexpr"), ", COLUMNS: tl.constexpr"),
    (re.compile(r" \+ 0 \* (?:row|column|index)\b"), ""),
)
_OF_ROW = (
    (re.compile(r", 1, keep_dims=True\)"), ", 0)"),
    (re.compile(r"(= tl\.cum(?:sum|prod)\(.+), 1\)$", re.MULTILINE), r"\1, 0)"),
)
_LEFT = re.compile(r"\bROWS\b|row_inside|column_inside|keep_dims|\[None|, None\]")


def one_row(text: str) -> str:
    """A helper or a kernel over rows × columns, as one over a single row."""
    for pattern, new in _OF_ROW:
        text = pattern.sub(new, text)
    return text


def general_kernel(
    texts: Sequence[str],
    name: str,
    pointers: Sequence[str],
    extents: Sequence[tuple[int, int]],
    sizes: HostSizes,
    keeps: Callable[[str], bool],
    typed: str | None,
    lengths: Mapping[str, Sequence[int]],
    sweeps: bool = False,
) -> GeneralKernel:
    """One kernel for all variants.

    `texts`: the kernel's source with slots, in each variant; `extents`: its rows and columns there, columns 1 where it
    is pointwise. `pointers` are what the host calls its tensors, in order. `keeps` says of a literal that it stands in
    the graph itself, where it is no size; `typed` is a pointer whose dtype the kernel computes in, if there is one.
    `lengths`: how many elements each result has, which the kernel may cover one by one. `sweeps`: the kernel takes its
    columns in steps.

    Raises Unreadable where the variants' kernels differ in more than numbers, and for numbers that no expression gives.
    """
    by_row = extents[0][1] > 1
    if any((columns > 1) != by_row or (columns > MOST_COLUMNS and not sweeps) for _, columns in extents):
        raise Unreadable("rows of one element or of too many")
    if by_row and not sweeps:
        texts = [_rows_apart(text) for text in texts]
        if any(_LEFT.search(text) for text in texts):
            raise Unreadable("a kernel that is more than one row a program")
    if len({template(text) for text in texts}) > 1:
        raise Unreadable("kernels that differ between variants")
    taken: dict[str, str] = {}
    columns = ""
    if by_row:
        columns = "columns"
        taken[columns] = _extent([c for _, c in extents], sizes, {})
    rows = "rows" if by_row else "n"
    per_row = {f"{name}.numel() // {columns}": [n / c for n, (_, c) in zip(ns, extents, strict=True)]
               for name, ns in lengths.items()} if by_row else {}  # fmt: skip
    whole = {f"{name}.numel()": list(numbers) for name, numbers in lengths.items()}
    taken[rows] = _extent([r for r, _ in extents], sizes, whole | per_row)
    row_count = tuple(r for r, _ in extents)
    known = {row_count: rows}
    row_length = tuple(c for _, c in extents)
    if by_row:
        known[row_length] = columns
    parts = template(texts[0]).split("«»")
    written = parts[0]
    for column, part in zip(zip(*(values(text) for text in texts), strict=True), parts[1:], strict=True):
        extent = ""
        if by_row and written.endswith(("column < ", "row * ", "range(0, ")) and _numbers(column) == row_length:
            extent = columns
        elif by_row and written.endswith(("row < ", "column * ")) and _numbers(column) == row_count:
            extent = rows
        written += (extent or _slot(column, known, sizes, taken, keeps)) + part
    for number, pointer in reversed(list(enumerate(_pointers(written)))):
        written = re.sub(rf"\b{pointer}\b", f"POINTER{number}", written)
    own = [f"POINTER{number}" for number in range(len(pointers))]
    in_order = sorted(own, key=lambda name: host_order(pointers[int(name.removeprefix("POINTER"))]))
    written = written.replace(", ".join(own), ", ".join(in_order), 1)
    for number, pointer in reversed(list(enumerate(pointers))):
        written = written.replace(f"POINTER{number}", f"{pointer}_ptr")
    used = [size for size in taken if re.search(rf"\b{size}\b", written)]
    block = "ROWS" if sweeps else "COLUMNS" if by_row else "BLOCK"
    written = written.replace(
        f", {block}: tl.constexpr", "".join(f", {s}" for s in (*used, f"{block}: tl.constexpr")), 1
    )
    if re.search(r"\bdtype\b", written):
        if typed not in pointers:
            raise Unreadable("a kernel that computes in a dtype that none of its tensors has")
        written = written.replace("):\n", f"):\n    dtype = {typed}_ptr.dtype.element_ty\n", 1)
    kept = {name: text for name, text in taken.items() if name in used or name in (rows, columns)}
    written = written.replace("KERNEL", name, 1)
    return GeneralKernel(written if sweeps else _each_once(written), tuple(used), kept, rows, columns, sweeps)


def host_order(name: str) -> tuple[bool, str, int]:
    """Where a tensor of the host stands among a kernel's arguments: inputs first, by their numbers."""
    stem, _, number = name.rpartition("_")
    return stem != "in", stem, int(number)


def _numbers(column: Sequence[str]) -> tuple[int, ...] | None:
    return tuple(map(int, column)) if all(literal.isdigit() for literal in column) else None


def _each_once(text: str) -> str:
    """The kernel with each value computed once: a second name for the same expression goes away."""
    first: dict[str, str] = {}
    again: dict[str, str] = {}
    lines = []
    for line in text.split("\n"):
        line = re.sub(r"\b[a-z]\w*\b", lambda word: again.get(word[0], word[0]), line)
        assigned = _ASSIGNED.fullmatch(line)
        if assigned is None or (known := first.setdefault(assigned[2], assigned[1])) == assigned[1]:
            lines.append(line)
        else:
            again[assigned[1]] = known
    return "\n".join(lines)


_ASSIGNED = re.compile(r"    (\w+) = (.+)")


def _rows_apart(text: str) -> str:
    for pattern, new in _LINES_OF_ROWS:
        text = pattern.sub(new, text)
    return one_row(text)


def _pointers(text: str) -> list[str]:
    return re.findall(r"\b(?:in|out)_\d+\b", text.split("\n")[1].split("(", 1)[1])


def _extent(numbers: Sequence[int], sizes: HostSizes, results: Mapping[str, Sequence[float]]) -> str:
    """Source of a kernel's extent: what `results` has for it, or a size of the inputs."""
    for text, each in results.items():
        if list(each) == list(numbers):
            return text
    if (size := sizes.of(tuple(numbers))) is not None:
        return size.text
    raise Unreadable("a kernel whose extent no shape gives")


def _slot(
    column: tuple[str, ...], known: dict[tuple[int, ...], str], sizes: HostSizes, taken: dict[str, str], keeps: Callable
) -> str:
    """What stands in the place of a slot, whose literals in all variants are given."""
    same = len(set(column)) == 1
    if column[0].startswith("tl."):
        return column[0] if same else "dtype"
    if not all(re.fullmatch(r"\d+(\.0)?", literal) for literal in column):
        if same:
            return column[0]
        raise Unreadable("constants that differ between variants")
    numbers = tuple(int(float(literal)) for literal in column)
    is_float = "." in column[0]
    if same and (numbers[0] < 2 or keeps(column[0])):
        return column[0]
    if numbers in known:
        return f"(1.0 * {known[numbers]})" if is_float else known[numbers]
    if is_float and same:
        return column[0]
    size = sizes.of(numbers)
    if size is None:
        if same:
            return column[0]
        raise Unreadable("numbers that no shape gives")
    taken[size.name] = size.text
    return f"(1.0 * {size.name})" if is_float else size.name
