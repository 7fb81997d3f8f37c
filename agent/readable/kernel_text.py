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


@dataclass(frozen=True)
class VariantKernels:
    """A kernel as it is in each variant: `texts` are its source with slots, `extents` its rows and columns, columns 1
    where it is pointwise.

    `pointers` are what the host calls its tensors, in order. `keeps` says of a literal that it stands in the graph
    itself, where it is no size. `typed` is a pointer whose dtype the kernel computes in, if there is one. `lengths` are
    how many elements each result has, which the kernel may cover one by one. `sweeps`: it takes its columns in steps.
    """

    texts: Sequence[str]
    name: str
    pointers: Sequence[str]
    extents: Sequence[tuple[int, int]]
    sizes: HostSizes
    keeps: Callable[[str], bool]
    typed: str | None
    lengths: Mapping[str, Sequence[int]]
    sweeps: bool = False

    def general(self) -> GeneralKernel:
        """One kernel for all variants.

        Raises Unreadable where the variants' kernels differ in more than numbers, and for numbers that no expression
        gives.
        """
        texts = self._alike()
        taken = self._extent_sources()
        text = _with_names_of(self.pointers, self._filled(texts, taken))
        used = [size for size in taken if re.search(rf"\b{size}\b", text)]
        block = f"{self._block}: tl.constexpr"
        text = text.replace(f", {block}", "".join(f", {each}" for each in (*used, block)), 1)
        if re.search(r"\bdtype\b", text):
            if self.typed not in self.pointers:
                raise Unreadable("a kernel that computes in a dtype that none of its tensors has")
            text = text.replace("):\n", f"):\n    dtype = {self.typed}_ptr.dtype.element_ty\n", 1)
        text = text.replace("KERNEL", self.name, 1)
        kept = {name: source for name, source in taken.items() if name in used or name in (self._rows, self._columns)}
        if not self.sweeps:
            text = _each_once(text)
        return GeneralKernel(text, tuple(used), kept, self._rows, self._columns, self.sweeps)

    @property
    def _by_row(self) -> bool:
        return self.extents[0][1] > 1

    @property
    def _rows(self) -> str:
        """What the kernel calls the number of its rows, or of its elements."""
        return "rows" if self._by_row else "n"

    @property
    def _columns(self) -> str:
        return "columns" if self._by_row else ""

    @property
    def _block(self) -> str:
        """The kernel's first constant."""
        return "ROWS" if self.sweeps else "COLUMNS" if self._by_row else "BLOCK"

    def _alike(self) -> list[str]:
        """The texts, of one row a program unless the kernel sweeps; they differ in numbers alone."""
        for _, columns in self.extents:
            if (columns > 1) != self._by_row or (columns > MOST_COLUMNS and not self.sweeps):
                raise Unreadable("rows of one element or of too many")
        texts = list(self.texts)
        if self._by_row and not self.sweeps:
            texts = [_rows_apart(text) for text in texts]
            if any(_LEFT.search(text) for text in texts):
                raise Unreadable("a kernel that is more than one row a program")
        if len({template(text) for text in texts}) > 1:
            raise Unreadable("kernels that differ between variants")
        return texts

    def _extent_sources(self) -> dict[str, str]:
        """Source of the numbers of columns and rows on the host, by what the kernel calls them."""
        sources: dict[str, str] = {}
        results: dict[str, list[float]] = {f"{name}.numel()": list(each) for name, each in self.lengths.items()}
        if self._by_row:
            sources[self._columns] = _extent([columns for _, columns in self.extents], self.sizes, {})
            for name, each in self.lengths.items():
                per_row = [n / columns for n, (_, columns) in zip(each, self.extents, strict=True)]
                results[f"{name}.numel() // {self._columns}"] = per_row
        sources[self._rows] = _extent([rows for rows, _ in self.extents], self.sizes, results)
        return sources

    def _filled(self, texts: Sequence[str], taken: dict[str, str]) -> str:
        """The text with names or numbers in its slots; `taken` gets the source of each name."""
        row_count, row_length = zip(*self.extents, strict=True)
        known = {row_count: self._rows} | ({row_length: self._columns} if self._by_row else {})
        first, *parts = template(texts[0]).split("«»")
        written = first
        for literals, part in zip(zip(*map(values, texts), strict=True), parts, strict=True):
            extent = ""
            if self._by_row and written.endswith(("column < ", "row * ", "range(0, ")):
                extent = self._columns if _numbers(literals) == row_length else ""
            elif self._by_row and written.endswith(("row < ", "column * ")):
                extent = self._rows if _numbers(literals) == row_count else ""
            written += (extent or _slot(literals, known, self.sizes, taken, self.keeps)) + part
        return written


def _with_names_of(pointers: Sequence[str], text: str) -> str:
    """The kernel with the host's names for its tensors, in the host's order."""
    for number, pointer in reversed(list(enumerate(_pointers(text)))):
        text = re.sub(rf"\b{pointer}\b", f"POINTER{number}", text)
    own = [f"POINTER{number}" for number in range(len(pointers))]
    in_order = sorted(own, key=lambda name: host_order(pointers[int(name.removeprefix("POINTER"))]))
    text = text.replace(", ".join(own), ", ".join(in_order), 1)
    for number, pointer in reversed(list(enumerate(pointers))):
        text = text.replace(f"POINTER{number}", f"{pointer}_ptr")
    return text


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
