"""Which inputs a pass was written for: where it makes other library calls than eager, it asks for these inputs first.

A convolution in channels-last memory, or one whose bias a kernel adds, has eager's bits in the dtypes and shapes that
were measured, and other bits elsewhere. All other inputs get the calls that eager makes.
"""

from collections.abc import Iterable, Sequence

from storage.records import Input, dtype_of

TABLE = "WRITTEN_FOR"


def key(inputs: Sequence[Input]) -> str:
    """The key of a `PlanTable` for inputs like these, as source."""
    return "(" + ", ".join(f"{dtype_of(i.dtype)}, {i.shape}, {i.stride}" for i in inputs) + ")"


def table(all_inputs: Iterable[Sequence[Input]]) -> str:
    """The `PlanTable` that knows these inputs, as source."""
    lines = "".join(f"    {one}: True,\n" for one in dict.fromkeys(map(key, all_inputs)))
    return f"# dtype, shape and stride of each input that the calls below are for\n{TABLE} = PlanTable({{\n{lines}}})\n"


def asks(given: str) -> str:
    """An expression that is None for all inputs but those in the table."""
    return f"plan_for({TABLE}, {given})"
