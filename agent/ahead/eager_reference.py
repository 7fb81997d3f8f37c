"""Variants in eager, which passes are compared with: their calls, the inputs of draws, and what comes of these."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from agent.ahead.gpu_memory import lacks_memory
from agent.ahead.graph_times import SideGraphs
from agent.ahead.many_draws import distribution, rows_together
from agent.ahead.output_levels import Level, varies
from agent.ahead.own_inputs import all_bytes, copied
from agent.ahead.side_times import Call, Row
from passbench.child.call_memory import seed_generators
from passbench.child.outputs import BadOutput, describe_all, flatten
from passbench.inputs.distribution import CORRECTNESS, Distribution
from passbench.inputs.draw import PYTHON_INT, make_inputs
from passbench.ipc.messages import OutputMeta
from passbench.ipc.shared_memory import extent
from passbench.result import EAGER_FAILED, VariantFailure
from storage.graph.as_fx import to_module
from storage.records import Variant, dtype_of

_DRAWS = ((*CORRECTNESS, *(Distribution.VARIED,) * 3), (Distribution.VARIED,) * 24)
"""What a pass is given when it is measured for the first time, and again: a search asks twice about what it may hand
in. Sums that cancel are wrong once in many draws."""
_FEWER = ((1 << 30, 1), (1 << 28, 4), (1 << 26, 12))
"""Of a variant with inputs of more bytes there are only so many draws."""
_KEPT_BYTES = 4 << 30
"""What the references of a sample that are kept may take. Nine searches share a GPU of 80 GB with a benchmark."""
TIMED = 3
"""Draws whose inputs are timed in turn."""

Each = TypeVar("Each")


@dataclass(frozen=True)
class Caller:
    """Makes calls on a device. `seed` is that of random operators."""

    device: torch.device
    seed: int

    def called(self, call: Call, row: Row) -> list[Any]:
        """What a call returns, as a flat list, once the device is done."""
        found = self.issued(call, row)
        self.synchronize()
        return found

    def issued(self, call: Call, row: Row) -> list[Any]:
        """As `called`, without a wait for the device."""
        seed_generators(self.seed, self.device)
        return flatten(call(*row))

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True)
class EagerReference:
    """A variant in eager: the call, the inputs of each draw, and what it returns for them with what it leaves of the
    inputs that it writes to. `left` are the inputs of the first draw as a call leaves them, `written` the numbers of
    those that it writes to, `metas` what PassBench knows of the outputs. `took` has the microseconds of its calls by
    clock, of each measurement. `own` has for each output the level at which eager agrees with itself, as soon as that
    was asked. `graphs` has eager's calls in a CUDA graph as soon as they are timed.

    Inputs are drawn once: that takes longer than to compare.
    """

    call: Call
    rows: list[Row]
    left: Row
    expected: list[list[Any]]
    written: tuple[int, ...]
    metas: tuple[OutputMeta, ...]
    took: dict[str, list[float]] = field(default_factory=dict)
    own: list[Level] = field(default_factory=list)
    graphs: SideGraphs = field(default_factory=SideGraphs)

    @property
    def bytes(self) -> int:
        """What the inputs and outputs of its draws take."""
        held = (x for values in (*self.rows, self.left, *self.expected) for x in values if isinstance(x, torch.Tensor))
        return sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in held}.values())

    def row(self, draw: int) -> Row:
        """The inputs of a draw, those that are written to as copies."""
        return tuple(copied(x) if n in self.written else x for n, x in enumerate(self.rows[draw]))

    def repeated(self, each: list[Each]) -> list[Each]:
        """Of what there is for each output, that of outputs that eager repeats; all where it was not asked."""
        if not self.own:
            return each
        return [one for one, own in zip(each, self.own, strict=True) if not varies(own)]

    def timed_rows(self, calls: int) -> list[Row]:
        """The inputs of so many calls: no call finds what another one has written, which may be an index by then."""
        return [self.row(number % min(TIMED, len(self.rows))) for number in range(calls)]


class EagerReferences:
    """The references of variants on a caller's device. A variant has `draws` draws at most. `turn` makes a context in
    which eager is called for them. They are kept as long as they take no more than `most` bytes; the first one beyond
    that is kept until another one is made."""

    def __init__(
        self, caller: Caller, draws: int, turn: Callable[[], AbstractContextManager[None]], most: int = _KEPT_BYTES
    ) -> None:
        self._caller, self._draws, self._turn, self._most = caller, draws, turn, most
        self._made: dict[tuple[str, bool], EagerReference | str] = {}
        self._beyond: tuple[str, bool] | None = None
        self._took: dict[tuple[str, bool], dict[str, list[float]]] = {}

    def of(self, variant: Variant, again: bool = False) -> EagerReference:
        """The variant in eager, made once; `again` has other draws than the first. Raises VariantFailure where eager
        fails, and what says so where the GPU has no memory left (`gpu_memory.lacks_memory`)."""
        key = variant.variant_hash, again
        if key not in self._made:
            self._made.pop(self._beyond, None)
            self._beyond = None
            try:
                self._made[key] = self._in_eager(variant, again)
            except (RuntimeError, IndexError, ValueError, TypeError, BadOutput) as error:
                if lacks_memory(error):
                    raise
                self._caller.synchronize()  # raises where the GPU works no more
                self._made[key] = f"{type(error).__name__}: {error}"
            if sum(one.bytes for one in self._made.values() if isinstance(one, EagerReference)) > self._most:
                self._beyond = key
        found = self._made[key]
        if isinstance(found, str):
            raise VariantFailure("runtime_error", f"{EAGER_FAILED}: {found}", eager=True)
        return found

    def drawn(self, variant: Variant, reference: EagerReference, number: int) -> tuple[Row, list[Any]]:
        """The inputs of the draw of this number, whose distribution goes by it, and what eager returns and leaves for
        them."""
        how = distribution(number)
        row = tuple(make_inputs(variant.inputs, self._caller.seed, number, self._caller.device, how))
        return row, self._expected(reference, row)

    def drawn_together(
        self, variant: Variant, reference: EagerReference, number: int, calls: int
    ) -> Iterator[tuple[Row, list[Any]]]:
        """As `drawn`, of each call of the batch of this number."""
        for row in rows_together(variant.inputs, self._caller.seed, number, calls, self._caller.device):
            yield row, self._expected(reference, row)

    def _expected(self, reference: EagerReference, row: Row) -> list[Any]:
        """What eager returns for inputs, which stay as they are, and what it leaves of those that it writes to."""
        given = tuple(map(copied, row)) if reference.written else row
        expected = [*self._caller.issued(reference.call, given), *(given[n] for n in reference.written)]
        return _apart(expected, row)

    def release(self) -> None:
        """Keep none of those that were made, but what their calls took."""
        self._made.clear()
        self._beyond = None

    def forget(self) -> None:
        """Keep nothing of those that were made."""
        self.release()
        self._took.clear()

    def _in_eager(self, variant: Variant, again: bool) -> EagerReference:
        caller, device = self._caller, self._caller.device
        call = to_module(variant.graph, device).forward
        size = input_bytes(variant)
        draws = next((few for least, few in _FEWER if size > least), len(_DRAWS[again]))
        hows, seed = _DRAWS[again][: min(draws, self._draws)], caller.seed + again
        rows = [tuple(make_inputs(variant.inputs, seed, n, device, how)) for n, how in enumerate(hows)]
        row = tuple(map(copied, rows[0]))
        outputs = caller.called(call, row)  # also loads what the libraries need
        pairs = enumerate(zip(rows[0], row, strict=True))
        written = tuple(n for n, (a, b) in pairs if isinstance(a, torch.Tensor) and not same_memory(a, b))
        took = self._took.setdefault((variant.variant_hash, again), {})
        reference = EagerReference(call, rows, row, [], written, describe_all(outputs, row, device), took)
        with self._turn():
            for draw in range(len(rows)):
                row = reference.row(draw)
                reference.expected.append(_apart([*caller.called(call, row), *(row[n] for n in written)], row))
        return reference


def input_bytes(variant: Variant) -> int:
    """What the memory of all tensors among a variant's inputs takes, gaps included."""
    tensors = [given for given in variant.inputs if given.dtype != PYTHON_INT]
    return sum(extent(given.shape, given.stride) * dtype_of(given.dtype).itemsize for given in tensors)


def same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the memory of two tensors holds the same bytes."""
    return torch.equal(all_bytes(a), all_bytes(b))


def _apart(values: list[Any], row: Row) -> list[Any]:
    """Values of which none lies in the memory of an input."""
    inputs = {y.untyped_storage().data_ptr() for y in row if isinstance(y, torch.Tensor)}
    lies_there = lambda x: isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() in inputs  # noqa: E731
    return [x.clone() if lies_there(x) else x for x in values]
