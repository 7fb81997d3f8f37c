"""Which inputs a pass was written for: where it makes other library calls than eager, it asks for these inputs first.

A convolution in channels-last memory, or one whose bias a kernel adds, has eager's bits in the dtypes and shapes that
were measured, and other bits elsewhere. All other inputs get the calls that eager makes.
"""

from collections.abc import Iterable, Sequence

from storage.records import Input, dtype_of

WRITTEN_FOR = "WRITTEN_FOR"
"""The name of a table of the inputs that other calls than eager's are for."""
LARGER = "LARGER"
"""The name of a table of the inputs that are not copied for a CUDA graph."""


def key(inputs: Sequence[Input]) -> str:
    """The key of a `PlanTable` for inputs like these, as source."""
    return "(" + ", ".join(f"{dtype_of(i.dtype)}, {i.shape}, {i.stride}" for i in inputs) + ")"


def table(all_inputs: Iterable[Sequence[Input]], name: str = WRITTEN_FOR) -> str:
    """The `PlanTable` of this name that knows these inputs, as source."""
    lines = "".join(f"    {one}: True,\n" for one in dict.fromkeys(map(key, all_inputs)))
    what = "that the calls below are for" if name == WRITTEN_FOR else "that take longer to copy than a replay saves"
    return f"# dtype, shape and stride of each input {what}\n{name} = PlanTable({{\n{lines}}})\n"


def asks(given: str, name: str = WRITTEN_FOR) -> str:
    """An expression that is None for all inputs but those in the table."""
    return f"plan_for({name}, {given})"
