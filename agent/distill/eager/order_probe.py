"""Whether eager adds as `sum_order` expects, found out on the device at hand before a kernel relies on it.

Eager's result of one sum, mean, norm or softmax, or of a backward, is compared with the emulated one, bit by bit, on
numbers whose sums depend on the order in which they are added. The shape, strides and dtype are those of the
task: they decide how ATen's kernels split the work.
"""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from agent.ahead.gpu_memory import free_cached
from agent.distill.eager.eager_sums import EPSILON, Draw, EagerSums
from agent.distill.eager.op_effects import Addition
from agent.distill.eager.sum_order import SumOrder
from storage.disk import write_json
from storage.versions.code_version import CODE_VERSIONS

_NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm")
_COMPARED = 2**22
"""Elements that emulation adds in one draw, at most. Eager adds all rows; only so many of them are compared."""
_SUMS, _DRAWS = 256, (4, 64)
"""How many results are compared in all, and the least and most draws to get so many."""
_STEPS = 2**12
"""How many steps of one block are emulated in all, beyond the least draws: each is a few launches."""
_MEMORY = 8
"""The memory that a probe needs, in multiples of what is added."""


def wide_rows(rows: int, length: int, dtype: torch.dtype, cancelling: bool, generator: torch.Generator) -> torch.Tensor:
    """(`rows`, `length`) numbers over as many powers of two as the dtype takes, whose sums depend on the order.

    In `cancelling` rows each number has its negative somewhere. What is left of their sum is rounding alone, so that a
    result in a half type shows the order, too.
    """
    device, spread = generator.device, 6 if dtype == torch.float16 else 9

    def wide(columns: int) -> torch.Tensor:
        size = torch.randn(rows, columns, generator=generator, device=device).clamp(-2, 2)
        return torch.randn(rows, columns, generator=generator, device=device).clamp(-4, 4) * torch.exp2(spread * size)

    if not cancelling:
        return wide(length).to(dtype)
    half = wide(length // 2)
    row = torch.cat([half, -half, torch.zeros(rows, length % 2, device=device)], 1)
    return row[:, torch.randperm(length, generator=generator, device=device)].to(dtype)


def _rows(addition: Addition, rows: int, length: int, number: int, generator: torch.Generator) -> torch.Tensor:
    """What is added in the draw of this number. The exponentials of a softmax are to be of a few powers of two, and so
    are the squares of a weight norm: of half types' numbers few bits would be lost else. Every fourth draw of a norm
    has a variance of about `EPSILON`: what is added to the variance shows there alone."""
    small = addition.op in _NORMS and number % 4 == 3
    if addition.op not in ("softmax", "weight_norm") and not small:
        return wide_rows(rows, length, addition.dtype, number % 2 == 0, generator)
    size = math.sqrt(EPSILON) if small else 3.0
    return (size * torch.randn(rows, length, generator=generator, device=generator.device)).to(addition.dtype)


def differing_share(addition: Addition, order: SumOrder, device: torch.device, eager: EagerSums | None = None) -> float:
    """The share of results that differ from those of this order; 0 if eager gives the same bits in all.

    Draws inputs of the addition's shape, strides and dtype on the device. Raises what torch raises where the device
    lacks memory.
    """
    shape, reduced = addition.shape, addition.reduced
    kept = [d for d in range(len(shape)) if d not in reduced]
    length = math.prod(shape[d] for d in reduced)
    rows = math.prod(shape[d] for d in kept)
    generator = torch.Generator(device).manual_seed(0)
    compared = max(1, min(rows, _SUMS, _COMPARED // length))
    chosen = torch.linspace(0, rows - 1, compared, device=device).long()
    draws = min(math.ceil(_SUMS / compared), _DRAWS[1], _STEPS * order.step // length)
    different = total = 0
    for number in range(max(_DRAWS[0], draws)):
        plain = _rows(addition, rows, length, number, generator)
        x = torch.empty_strided(shape, addition.stride, dtype=addition.dtype, device=device)
        x.permute(*kept, *reduced).copy_(plain.view([shape[d] for d in (*kept, *reduced)]))
        for have, want in Draw(x, addition, order, chosen, eager or EagerSums()).pairs():
            same = (have == want) | (have.isnan() & want.isnan())
            different += same.numel() - int(torch.count_nonzero(same))
            total += same.numel()
    return different / total


def tolerated(order: SumOrder) -> float:
    """The share of results that may differ although the order is eager's: none of sums. Those of norms are emulated
    with fused multiply-adds in double precision, of which one in millions is rounded twice."""
    return 0.0 if order.kind in ("sum", "rounded") else 1e-3


@dataclass(eq=False)
class ProbedOrders:
    """Says of orders whether they are eager's on one device.

    Each order is probed once. Answers are kept in this process, and in `directory`, if there is one, by device and
    torch version. `say` is told what differs.
    """

    device: str
    say: Callable[[str], None]
    directory: Path | None = None
    known: dict[str, bool] = field(default_factory=dict)

    def __call__(self, order: SumOrder) -> bool:
        """Whether eager adds in this order here. False if that cannot be found out."""
        if order.addition is None:
            return False
        key = self._key(order.addition, order)
        if key not in self.known:
            kept = self.directory / f"{key}.json" if self.directory is not None else None
            if kept is not None and kept.exists():
                self.known[key] = json.loads(kept.read_text("utf-8"))["same"]
            else:
                self.known[key] = self._probed(order.addition, order, kept)
        return self.known[key]

    def _probed(self, addition: Addition, order: SumOrder, kept: Path | None) -> bool:
        what = f"{addition.op} of {tuple(addition.shape)} over {addition.reduced} in {_name(addition.dtype)}"
        device = torch.device(self.device)
        if device.type == "cuda":
            free_cached()  # what torch keeps is free, too
            free, _ = torch.cuda.mem_get_info(device)
            if _MEMORY * math.prod(addition.shape) * 4 > free:
                self.say(f"{what} is too large for a probe of its order here: it is left to eager")
                return False
        try:
            share = differing_share(addition, order, device)
        except torch.OutOfMemoryError:  # others have taken it meanwhile
            self.say(f"there is no memory for a probe of the order of {what}: it is left to eager")
            return False
        same = share <= tolerated(order)
        if not same:
            self.say(f"{what}: eager adds in another order than expected ({share:.1%} differ): it is left to eager")
        if kept is not None:
            write_json(kept, {**self._subject(addition, order), "differing": share, "same": same})
        return same

    def _key(self, addition: Addition, order: SumOrder) -> str:
        text = json.dumps(self._subject(addition, order), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def _subject(self, addition: Addition, order: SumOrder) -> dict[str, object]:
        """All that an answer depends on."""
        plain = {k: v for k, v in asdict(replace(order, addition=None)).items() if k != "addition"}
        plain["rounds"] = _name(order.rounds)
        return {
            "code": CODE_VERSIONS["evaluate"],
            "device": _device_name(self.device),
            "torch": torch.__version__,
            "addition": asdict(addition) | {"dtype": _name(addition.dtype)},
            "order": plain,
        }


def _device_name(device: str) -> str:
    one = torch.device(device)
    return torch.cuda.get_device_name(one) if one.type == "cuda" else "cpu"


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")
