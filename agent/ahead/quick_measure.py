"""A pass beside eager in this process: whether it is right, and about how fast.

PassBench gives a pass processes of its own and believes nothing that they say. That takes a second or more. An author
that searches among passes of its own writing asks here, in hundredths of a second, and PassBench judges what it hands
in. A measurement disturbs no other: the GPU is used in turns, but for the first call of a pass, which compiles.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from passbench.checking.tolerance import t_min
from passbench.child.outputs import flatten
from passbench.contract import PassRule, load_rules, read_pass_dir
from passbench.inputs.draw import CORRECTNESS, PYTHON_INT, Distribution, fill, generator, integer_value
from passbench.ipc.shared_memory import extent
from passbench.matching.rewrite import apply_pass
from passbench.result import EAGER_FAILED, Times, Timing, VariantFailure, VariantResult, device_name
from storage.graph.as_fx import to_module
from storage.records import Sample, Variant, dtype_of

_DRAWS = (*CORRECTNESS, *(Distribution.VARIED,) * 3)
_FEWER = ((1 << 30, 1), (1 << 26, 3))
"""Of a variant with inputs of more bytes there are only so many draws."""
_TIMED = 3
"""Draws whose inputs are timed in turn."""

_ROUNDS = 4
_CALLS = (2, 8)
"""Calls of each side in a round, at least and at most."""
_ROUND_US = 1500.0
"""What a side's calls in a round should take."""

_CYCLES_A_US = 2000.0
"""Of the GPU's clock, or a few more than it has."""
_LONGEST_US = 20_000.0
"""The GPU waits no longer for the host: calls that take longer than that hide what the host takes."""
_REPLAYS = 3

Call = Callable[..., Any]
Row = tuple[torch.Tensor | int, ...]


@dataclass(frozen=True)
class _Reference:
    """A variant in eager: the call, and for each draw what it returns, and what it leaves of the inputs it writes to.
    `written` are the numbers of these inputs."""

    call: Call
    expected: list[list[Any]]
    written: tuple[int, ...]


class QuickMeasure:
    """`measure(sample, pass_dir)` gives a result per variant, with as much in it as a search asks for: status, reason,
    `t_min`, and times by both clocks (by "e2e" alone on a CPU).

    `turn` is a context in which nothing else uses the GPU. Raises what CUDA raises where the process is of no use
    after that, and ContractError on what is no pass.
    """

    def __init__(
        self, device: torch.device, turn: Callable[[], AbstractContextManager[None]] = nullcontext, seed: int = 0
    ) -> None:
        self.device, self.turn, self.seed = device, turn, seed
        self._sample = ""
        self._references: dict[str, _Reference | str] = {}

    def __call__(self, sample: Sample, pass_dir: Path) -> list[VariantResult]:
        """A result per variant, in order."""
        if sample.sample != self._sample:
            self._sample, self._references = sample.sample, {}
            if self.device.type == "cuda":
                torch.cuda.empty_cache()  # others need the memory
        results = []
        rules = load_rules(pass_dir, read_pass_dir(pass_dir).names)
        with torch.no_grad():
            for variant in sample.variants:
                status, reason, right, times = "ok", "", None, Times()
                try:
                    right, times = self._measured(variant, rules)
                    status = "ok" if right is not None else "wrong"
                except VariantFailure as failure:
                    status, reason = failure.status, str(failure)
                results.append(
                    VariantResult(
                        sample.sample,
                        sample.category,
                        variant.variant_hash,
                        "pass",
                        status,
                        reason,
                        t_min=right,
                        times=times,
                        times_meaningful=self.device.type == "cuda",
                        device=device_name(self.device),
                    )
                )
        return results

    def _measured(self, variant: Variant, rules: list[PassRule]) -> tuple[int | None, Times]:
        """At which level the variant is right, and its times where it is. Raises VariantFailure."""
        reference = self._reference(variant)
        module = to_module(variant.graph, self.device)
        with self._as_failure():
            if not apply_pass(module.graph, rules).total:
                raise VariantFailure("no_match", "the pass does not match")
            module.recompile()
            self._called(module.forward, self._drawn(variant, 0))  # compiles
            with self.turn():
                right = self._compared(variant, module.forward, reference)
                if right is None:
                    return None, Times()
                rows = [self._drawn(variant, draw) for draw in range(min(_TIMED, len(reference.expected)))]
                return right, self._times(reference.call, module.forward, rows)

    def _as_failure(self) -> "_AsFailure":
        return _AsFailure(self.device)

    def _compared(self, variant: Variant, call: Call, reference: _Reference) -> int | None:
        """The level at which all draws agree; None if one does not at any."""
        levels = []
        for draw, expected in enumerate(reference.expected):
            row = self._drawn(variant, draw)
            found = [*self._called(call, row), *(row[n] for n in reference.written)]
            if len(found) != len(expected) or not all(map(_alike, found, expected)):
                raise VariantFailure("runtime_error", "outputs of other dtypes, shapes or strides than eager's")
            pairs = [(a, b) for a, b in zip(found, expected, strict=True) if isinstance(a, torch.Tensor)]
            other = [(a, b) for a, b in pairs if not torch.equal(a, b)]  # equal ones need no closer look
            level = t_min([a for a, _ in other], [b for _, b in other])
            if level is None:
                return None
            levels.append(level)
        return max(levels)

    def _reference(self, variant: Variant) -> _Reference:
        """The variant in eager. Raises VariantFailure where eager fails."""
        if variant.variant_hash not in self._references:
            try:
                self._references[variant.variant_hash] = self._in_eager(variant)
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                self._synchronize()  # raises where the GPU works no more
                self._references[variant.variant_hash] = f"{type(error).__name__}: {error}"
        found = self._references[variant.variant_hash]
        if isinstance(found, str):
            raise VariantFailure("runtime_error", f"{EAGER_FAILED}: {found}", eager=True)
        return found

    def _in_eager(self, variant: Variant) -> _Reference:
        call = to_module(variant.graph, self.device).forward
        size = sum(extent(i.shape, i.stride) * dtype_of(i.dtype).itemsize for i in _tensors(variant))
        draws = next((few for bytes_, few in _FEWER if size > bytes_), len(_DRAWS))
        untouched, row = self._drawn(variant, 0), self._drawn(variant, 0)
        self._called(call, row)  # loads what the libraries need
        pairs = enumerate(zip(untouched, row, strict=True))
        written = tuple(n for n, (a, b) in pairs if isinstance(a, torch.Tensor) and not _same(a, b))
        with self.turn():
            expected = []
            for draw in range(draws):
                row = self._drawn(variant, draw)
                found = [*self._called(call, row), *(row[n] for n in written)]
                expected.append([x.clone() if isinstance(x, torch.Tensor) and _overlaps(x, row) else x for x in found])
        return _Reference(call, expected, written)

    def _drawn(self, variant: Variant, draw: int) -> Row:
        """The inputs of a draw: the same in each call."""
        gen = generator(self.seed, draw, self.device)
        row: list[torch.Tensor | int] = []
        for one in variant.inputs:
            if one.dtype == PYTHON_INT:
                row.append(integer_value(one))
                continue
            values = torch.empty(extent(one.shape, one.stride), dtype=dtype_of(one.dtype), device=self.device)
            fill(values, one, _DRAWS[draw], gen)
            row.append(values.as_strided(one.shape, one.stride))
        return tuple(row)

    def _called(self, call: Call, row: Row) -> list[Any]:
        torch.manual_seed(self.seed)
        found = flatten(call(*row))
        self._synchronize()
        return found

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _times(self, eager: Call, candidate: Call, rows: Sequence[Row]) -> Times:
        """Medians of both sides, measured in turn."""
        sides = {"eager": eager, "candidate": candidate}
        for call in sides.values():
            self._called(call, rows[0])
        first = median(self._alone(eager, rows, 3))
        least, most = _CALLS
        calls = int(min(max(_ROUND_US / first, least), most))
        found: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(_ROUNDS):
            for name, call in sides.items():
                found[name] += self._alone(call, rows, calls)
        e2e = {name: median(us) for name, us in found.items()}
        timings = [_timing("e2e", e2e, _ROUNDS * calls)]
        if self.device.type == "cuda":
            device = {name: self._on_device(call, rows, calls, e2e[name]) for name, call in sides.items()}
            timings.append(_timing("device", device, _REPLAYS * calls))
        return Times(tuple(timings))

    def _alone(self, call: Call, rows: Sequence[Row], calls: int) -> Iterator[float]:
        """Microseconds of so many calls, each waited for."""
        for number in range(calls):
            row = rows[number % len(rows)]
            begin = time.perf_counter()
            call(*row)
            self._synchronize()
            yield (time.perf_counter() - begin) * 1e6

    def _on_device(self, call: Call, rows: Sequence[Row], calls: int, e2e_us: float) -> float:
        """Microseconds of a call on the GPU: the host hands calls over while the GPU waits."""
        best = []
        for _ in range(_REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(int(_CYCLES_A_US * min(e2e_us * (calls + 1), _LONGEST_US)))
            begin.record()
            for number in range(calls):
                call(*rows[number % len(rows)])
            end.record()
            self._synchronize()
            best.append(1000.0 * begin.elapsed_time(end) / calls)
        return max(min(best), 0.001)


class _AsFailure:
    """What a pass raises becomes a VariantFailure, as long as the GPU still works."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, VariantFailure):
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            raise VariantFailure("runtime_error", f"{type(error).__name__}: {str(error)[:300]}") from error


def _timing(clock: str, us: dict[str, float], calls: int) -> Timing:
    speedup = us["eager"] / us["candidate"]
    return Timing(clock, us["eager"], us["candidate"], 0.0, 0.0, calls, 0, False, speedup, speedup)


def _tensors(variant: Variant) -> list[Any]:
    return [i for i in variant.inputs if i.dtype != PYTHON_INT]


def _alike(found: Any, expected: Any) -> bool:
    """Whether an output is what eager's is: a tensor of its dtype and shape, with its strides or contiguous."""
    if not (isinstance(found, torch.Tensor) and isinstance(expected, torch.Tensor)):
        return type(found) is type(expected) and found == expected
    same = (found.dtype, found.shape, found.device) == (expected.dtype, expected.shape, expected.device)
    return same and (found.is_contiguous() or found.stride() == expected.stride())


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the memory of two tensors holds the same bytes."""
    return torch.equal(*(torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage()) for x in (a, b)))


def _overlaps(x: torch.Tensor, row: Row) -> bool:
    own = x.untyped_storage().data_ptr()
    return any(isinstance(y, torch.Tensor) and y.untyped_storage().data_ptr() == own for y in row)
