"""Random graphs of some two hundred operators, and what distill-static's passes for them compute, beside eager.

    python -m tests.agent.distill.wide_graphs --device cuda --count 2000 --processes 14 --budget 90 --out wide.txt

Each number gives one graph of two tensors, whatever machine it is made on. Its pass is compared with eager on its own
inputs, on those of another dtype and on larger ones, as outputs, layouts, shared memory and what is left in the inputs,
at t = -5. `--device cpu` runs the passes under the Triton interpreter.
"""

import argparse
import random
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from agent.distill.static import Distill
from passbench.policy.check import check_dir
from storage.records import Input, Variant
from tests.agent.compared import problems
from tests.agent.support import ANY, HALVES, Interpreter, sample, tensor, variant


def _listed(text: str) -> list[str]:
    """Python's source, separated by semicolons, one by one."""
    return [one.strip() for one in text.split(";")]


POINTWISE = _listed("""torch.relu({x}); torch.tanh({x}); torch.sigmoid({x}); F.gelu({x});
F.gelu({x}, approximate='tanh'); F.silu({x}); -{x}; {x}.abs(); {x} * 0.5 + 1.0; {x}.clamp(-1.0, 0.5);
{x}.clamp(min=0.3); F.hardswish({x});
F.leaky_relu({x}, 0.2); F.elu({x}); F.softplus({x}); F.mish({x}); F.hardtanh({x}, 0.0, 6.0); F.relu6({x});
F.hardsigmoid({x}); F.softsign({x}); F.logsigmoid({x}); {x}.square(); {x}.exp(); ({x}.abs() + 0.5).log();
({x}.abs() + 0.1).sqrt(); ({x}.abs() + 0.1).rsqrt(); torch.sin({x}); torch.cos({x}); {x} / 3;
1.0 / ({x}.abs() + 1.0); {x}.pow(2); {x} ** 3; {x}.float(); {x}.to(torch.float16); {x}.to(torch.bfloat16);
torch.erf({x}); {x}.round(); {x}.floor(); {x}.sign(); {x}.masked_fill({x} > 0.3, -1.0);
{x}.masked_fill({x} < 0.2, 0.3); torch.tile({x}, (2,)); torch.where({x} > 0, {x}, 0.1 * {x});
torch.where({x} > 0.1, {x}, 0.3); {x}.contiguous(); {x}.clone(); F.dropout({x}, 0.1, False); torch.expm1({x});
torch.log1p({x}.abs()); {x}.reciprocal().clamp(-5, 5); torch.nan_to_num({x}); {x} % 0.7; {x} // 0.5;
torch.remainder({x}, 0.3); torch.fmod({x}, 0.3); ({x} > 0).float(); ({x} > 0.2) * {x}; {x}.type_as({x});
F.threshold({x}, 0.1, 0.3); F.hardshrink({x}, 0.3); F.softshrink({x}, 0.3); {x} - 0.1; 0.7 - {x};
{x}.sub(0.3, alpha=0.5); torch.addcdiv({x}, {x}, {x}.abs() + 1, value=0.3); {x}.lerp({x} * 2, 0.3);
{x}.log_softmax(-1); {x}.int() // 2; ({x} * 3).long() % 2; {x}.double() * 0.1; {x}.bool().float(); ~({x} > 0);
{x}.frac(); {x}.trunc(); {x}.ceil(); {x}.sigmoid().logit(); torch.bucketize({x}, {x}.new_tensor([-1.0, 0.0, 0.5]));
F.celu({x}, 0.7); F.selu({x}); F.tanhshrink({x}); {x}.clamp_min(0.3) ** 0.5; {x}.exp2();
{x}.abs().clamp_min(0.1).log2(); {x}.isnan() | ({x} > 0)""")
"""Expressions of a tensor."""

ALONG = _listed("""torch.softmax({x}, dim={d}); {x}.mean({d}, keepdim=True); {x}.sum({d}, keepdim=True);
{x} - {x}.mean({d}, keepdim=True); {x}.amax({d}, keepdim=True); {x}.sum({d}); {x}.mean({d}); {x}.amin({d});
F.log_softmax({x}, dim={d}); {x}.cumsum({d}); {x}.flip({d}); torch.roll({x}, 1, {d}); {x}.var({d}, keepdim=True);
{x}.std({d}, unbiased=False, keepdim=True); F.layer_norm({x}, ({x}.shape[-1],));
{x} * torch.rsqrt({x}.pow(2).mean(-1, keepdim=True) + 1e-6); F.normalize({x}, dim={d});
torch.cat(({x}, {x} * 2), dim={d}); torch.stack(({x}, -{x}), dim={d}); {x}.chunk(2, dim={d})[0];
{x}.chunk(2, dim={d})[-1]; {x}.narrow({d}, 0, 1); {x}.norm(dim={d}, keepdim=True);
{x}.logsumexp({d}, keepdim=True); {x}.argmax({d}); {x}.select({d}, 0); F.pad({x}, (1, 2));
F.pad({x}, (1, 0), value=0.3); {x}[..., ::2]; {x}[..., 1:]; {x}[..., None]; {x}.unbind({d})[0]; {x}.flatten();
{x}.prod({d}, keepdim=True); torch.sort({x}, dim={d})[0]; {x}.topk(1, dim={d})[0];
{x}.repeat_interleave(2, dim={d}); {x}.max({d})[0]; {x}.any({d}); F.glu(torch.cat(({x}, {x}), -1)); {x}.mean();
{x}.sum(); {x}.softmax(-1, dtype=torch.float32); {x}.unsqueeze({d}); {x}.var(-1, correction=0);
{x}.index_select({d}, {x}.new_zeros(2).long()); {x}.gather(-1, {x}.argmax(-1, keepdim=True));
{x}.float().mean({d}).to({x}.dtype); {x}.square().sum({d}, keepdim=True).sqrt(); {x}.cumprod({d});
{x}.index_add({d}, {x}.argmax({d}).flatten()[:1] * 0, {x}.narrow({d}, 0, 1)); F.one_hot({x}.argmax({d}), 40);
{x}.scatter({d}, {x}.argmax({d}, keepdim=True), 0.3); {x}.argmin({d}, keepdim=True) + 1;
{x}.scatter_add({d}, {x}.argmin({d}, keepdim=True), {x}.narrow({d}, 0, 1)); {x}.aminmax(dim={d})[1];
{x}.nansum({d}); {x}.unfold(-1, 2, 1).sum(-1); torch.var_mean({x}, {d})[1]; {x}.double().mean({d});
{x} / {x}.norm(dim={d}, keepdim=True).clamp_min(1e-6);
torch.ops.aten._softmax_backward_data.default({x}, torch.softmax({x}, {d}), {d}, {x}.dtype);
torch.ops.aten._log_softmax_backward_data.default({x}, torch.log_softmax({x}, {d}), {d}, {x}.dtype);
{x}.logcumsumexp({d}); {x}.diff(dim={d})""")
"""Those of a tensor along a dimension `d`."""

OF_TWO = _listed("""{x}.transpose(-1, -2); {x}.transpose(0, {d}); {x}.flatten(0, 1); {x}.mean((0, 1), keepdim=True);
{x}.sum((-1, -2)); {x}.reshape({x}.shape[0], -1); {x}.tril(); {x}.triu(1); {x}.tril(-1); {x}.diagonal();
F.pad({x}, (0, 1, 1, 0)); torch.matmul({x}, {x}.transpose(-1, -2)); {x}.amax((0, -1)); {x}.movedim(0, -1);
{x}.swapaxes(0, 1).contiguous(); F.linear({x}, {x}.flatten(0, -2)[:3]);
F.scaled_dot_product_attention({x}, {x}, {x}); torch.bmm({x}.flatten(0, -3), {x}.flatten(0, -3).transpose(-1, -2));
F.scaled_dot_product_attention({x}, {x} + 1, {x}, is_causal=True);
torch.softmax({x} @ {x}.transpose(-1, -2) * 0.3, -1) @ {x};
F.linear({x}, {x}.flatten(0, -2)[:3], {x}.flatten()[:3]).relu();
torch.addmm({x}.flatten(0, -2)[:1, :1], {x}.flatten(0, -2), {x}.flatten(0, -2).t());
F.embedding({x}.argmax(-1), {x}.flatten(0, -2).contiguous()); torch.einsum('...ij,...kj->...ik', {x}, {x})""")
"""Those of a tensor of two dimensions and more."""

OF_RANK = {
    3: _listed("""F.avg_pool1d({x}, 2, 1, 1); F.max_pool1d({x}, 2); F.interpolate({x}, scale_factor=2);
    F.instance_norm({x}); F.batch_norm({x}, None, None, training=True); F.adaptive_avg_pool1d({x}, 1);
    {x}.permute(2, 0, 1)"""),
    4: _listed("""F.conv2d({x}, {x}[:1, :, :3, :3].contiguous(), padding=1);
    F.conv2d({x}, {x}[:1, :, :2, :2].contiguous()).relu(); F.max_pool2d({x}, 2) + 1; F.unfold({x}, 2);
    F.local_response_norm({x}, 2); F.channel_shuffle({x}, 2); F.avg_pool2d({x}, 2, 1, 1);
    F.max_pool2d({x}, 3, 2, 1); F.interpolate({x}, scale_factor=2.0, mode='bilinear');
    F.interpolate({x}, scale_factor=2, mode='nearest'); F.adaptive_avg_pool2d({x}, (1, 1));
    F.pixel_shuffle({x}, 2); F.group_norm({x}, 2); F.pad({x}, (1, 1, 1, 1), mode='reflect');
    {x}.mean((2, 3), keepdim=True); {x}.permute(0, 2, 3, 1)"""),
}
"""Those of a tensor of so many dimensions."""

OF_BOTH = _listed("""{x} + {y}; {x} - {y}; {x} * {y}; torch.maximum({x}, {y}); torch.minimum({x}, {y});
{x} / ({y}.abs() + 1.0); torch.where({y} > 0, {x}, {y}); torch.add({x}, {y}, alpha=0.5);
{x}.masked_fill({y} > 0, 0.3); torch.addcmul({x}, {x}, {y}, value=0.3); torch.lerp({x}, {y}, 0.3);
({x} < {y}).to({x}.dtype); torch.cat(({x}, {y}), dim=-1); torch.cat(({x}, {y}), dim=0); {x} * torch.sigmoid({y});
torch.matmul({x}, {y}); torch.stack(({x}, {y})); F.mse_loss({x}, {y}); {x}.copysign({y});
F.mse_loss({x}, {y}, reduction='none'); {x}.expand_as({y}) + 1; F.cosine_similarity({x}, {y}, dim=-1);
{x} * {y} + {x}; F.smooth_l1_loss({x}, {y}, reduction='none'); {x}.type_as({y}) + 1; ({x} > {y}) & ({y} > 0);
F.l1_loss({x}, {y}); F.silu({x}) * {y}; torch.ops.aten.gelu_backward.default({x}, {y});
torch.ops.aten.silu_backward.default({x}, {y}); torch.ops.aten.tanh_backward.default({x}, {y});
torch.ops.aten.sigmoid_backward.default({x}, {y}); torch.ops.aten.threshold_backward.default({x}, {y}, 0);
torch.ops.aten.hardswish_backward.default({x}, {y});
torch.ops.aten.leaky_relu_backward.default({x}, {y}, 0.1, False);
torch.ops.aten.mse_loss_backward.default({x}, {y}, {x}, 1); {x} ** {y}.clamp(0, 2);
torch.ops.aten.native_layer_norm.default({x}, {x}.shape[-1:], None, None, 1e-5)[0] + {y};
{x}.index_put(({y}.argmax({d}).flatten()[:1] * 0,), {x}[0], True); F.layer_norm({x} + {y}, {x}.shape[-1:]);
torch.softmax({x} + {y}, -1); F.binary_cross_entropy_with_logits({x}, {y}); F.huber_loss({x}, {y});
F.kl_div({x}, {y}, reduction='none'); torch.logaddexp({x}, {y}); {x}.fmod({y}.abs() + 0.3); torch.fmax({x}, {y});
{x}.clamp({y} - 1, {y} + 1)""")
"""Those of two tensors."""

IN_PLACE = _listed("""{x} += 1; {x}.mul_(0.5); {x}.relu_(); {x}.add_({y}); {x}.clamp_(-1, 1); {x}[..., 0] = 0.5;
F.relu({x}, inplace=True); {x}.copy_({y}); {x}.masked_fill_({x} > 0, 0.3); {x}[0] = {y}[0]; {x}[..., 1:] += 1;
{x}.zero_(); {x} *= {y}; {x}.sigmoid_(); {x}.div_(2); {x}.sub_({y}, alpha=0.5); {x}.t_(); {x}.unsqueeze_(0);
{x}.fill_(0.3); {x}.select(0, 0).add_(1); {x}.transpose(0, -1).mul_(2); {x}.flatten().add_(1);
{x}.view(-1)[:1].zero_(); {x}.chunk(2, -1)[0].neg_(); {x}[..., 0].copy_({y}[..., 0]);
{x}.index_fill_(0, {x}.argmax(0).flatten()[:1] * 0, 0.3); {x}.masked_fill_({y} > 0, 0.7);
{x}.addcmul_({y}, {y}, value=0.3); {x}.lerp_({y}, 0.3)""")
"""Statements that write to a tensor."""

RANKS = (1, 2, 2, 3, 3, 3, 4, 4)
SIZES = (1, 2, 3, 4, 5, 6, 8, 16, 17, 33)
MOST = 20_000
"""Elements of a value."""
REFUSALS = (RuntimeError, IndexError, ValueError, TypeError)
"""What torch raises for values that do not fit."""


@dataclass(frozen=True)
class WideGraph:
    """A function as source, and the inputs that it was made for."""

    source: str
    inputs: tuple[Input, ...]

    @property
    def function(self) -> Callable:
        """The graph in eager."""
        names = _libraries()
        exec(self.source, names)
        return names["f"]

    def variant(self, inputs: tuple[Input, ...] | None = None) -> Variant:
        """The graph on these inputs, or on its own."""
        return variant(self.function, *(self.inputs if inputs is None else inputs))

    def others(self) -> Iterator[tuple[Input, ...]]:
        """Its inputs in another dtype, and larger ones; neither need suit the graph."""
        turned = {"float32": "float16", "float16": "float32", "bfloat16": "float32"}
        yield tuple(tensor(*i.shape, dtype=turned.get(i.dtype, i.dtype), stride=i.stride) for i in self.inputs)
        yield tuple(tensor(*(n if n == 1 else n + 2 for n in i.shape), dtype=i.dtype) for i in self.inputs)

    def runs(self, inputs: tuple[Input, ...], device: str = "cpu") -> bool:
        """Whether eager accepts these."""
        try:
            self.function(*(_made(one).to(device) for one in inputs))
        except REFUSALS:
            return False
        return True


def wide_graph(number: int, dtypes: tuple[str, ...] = ("float32", "float32", *HALVES)) -> WideGraph:
    """The graph of this number, of these dtypes."""
    dice = random.Random(number)
    while True:
        found = _drawn(dice, dtypes)
        if found is not None:
            return found


def _libraries() -> dict[str, Any]:
    """What the sources name."""
    return {"torch": torch, "F": torch.nn.functional}


def _drawn(dice: random.Random, dtypes: tuple[str, ...]) -> WideGraph | None:
    """A graph; None if what was drawn is none."""
    inputs = _inputs(dice, dtypes)
    writes = dice.random() < 0.25 and not any(0 in i.stride for i in inputs)
    lines, values = _body(dice, inputs, writes)
    if not lines:
        return None
    outputs = [name for name in values[-dice.choice((1, 1, 2)) :] if name not in "ab"]
    if not outputs or not _uses_both(lines, outputs):
        return None
    body = "".join(f"    {line}\n" for line in lines)
    return WideGraph(f"def f(a, b):\n{body}    return ({', '.join(outputs)},)\n", inputs)


def _inputs(dice: random.Random, dtypes: tuple[str, ...]) -> tuple[Input, ...]:
    """Two tensors, the second of which broadcasts to the first."""
    rank = dice.choice(RANKS)
    shape = tuple(dice.choice(SIZES) for _ in range(rank))
    if rank == 4:
        shape = dice.choice((1, 2)), dice.choice((2, 4, 3)), dice.choice((4, 5, 7)), dice.choice((4, 6, 7))
    dtype = dice.choice(dtypes)
    other = dice.choice(("float32", "float16", "int64", "bool")) if dice.random() < 0.1 and len(dtypes) > 1 else dtype
    shapes = shape, _broadcast(dice, shape)
    return tuple(
        tensor(*size, dtype=kind, stride=_stride(dice, size)) for size, kind in zip(shapes, (dtype, other), strict=True)
    )


def _body(dice: random.Random, inputs: tuple[Input, ...], writes: bool) -> tuple[list[str], list[str]]:
    """Lines that run one after another, and the names of inputs and values. No lines where one that writes fails: it
    may have written a part."""
    names = _libraries() | dict(zip("ab", map(_made, inputs), strict=True))
    lines: list[str] = []
    steps, values = dice.randrange(2, 8), ["a", "b"]
    for _ in range(8 * steps):
        if len(lines) == steps:
            break
        x, y = (values[max(0, len(values) - 1 - int(dice.expovariate(0.8)))] for _ in range(2))
        made, in_place = f"v{len(lines)}", writes and dice.random() < 0.25
        if in_place:
            line = dice.choice(IN_PLACE).format(x=x, y=y)
        else:
            line = f"{made} = {_expression(dice, names[x].dim()).format(x=x, y=y, d=_dimension(dice, names[x]))}"
        after = dict(names)
        try:
            exec(line, after)
        except REFUSALS:
            if in_place:
                return [], values
            continue
        if not in_place:
            if not isinstance(after[made], torch.Tensor) or not 0 < after[made].numel() <= MOST:
                continue
            values.append(made)
        names = {name: value for name, value in after.items() if name != "__builtins__"}
        lines.append(line)
    return lines, values


def _expression(dice: random.Random, rank: int) -> str:
    """One for a tensor of so many dimensions."""
    if dice.random() < 0.35:
        return dice.choice(OF_BOTH)
    return dice.choice([*POINTWISE, *ALONG * (rank > 0), *OF_TWO * (rank > 1), *OF_RANK.get(rank, ())])


def _dimension(dice: random.Random, value: torch.Tensor) -> int:
    return dice.randrange(-value.dim(), value.dim()) if value.dim() else 0


def _broadcast(dice: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    kind = dice.random()
    if kind < 0.6:
        return shape
    if kind < 0.8:
        return tuple(1 if dice.random() < 0.4 else size for size in shape)
    return shape[dice.randrange(len(shape)) :]


def _stride(dice: random.Random, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Mostly none; else of a tensor that is turned, has gaps, or repeats its first dimension."""
    kind, plain = dice.random(), torch.empty(shape, device="meta").stride()
    if len(shape) > 1 and kind < 0.15:
        order = dice.sample(range(len(shape)), len(shape))
        turned = torch.empty([shape[d] for d in order], device="meta")
        return turned.permute([order.index(d) for d in range(len(shape))]).stride()
    if kind < 0.22:
        return tuple(2 * step for step in plain)
    return (0, *plain[1:]) if kind < 0.27 else None


def _made(one: Input) -> torch.Tensor:
    length = 1 + sum((n - 1) * step for n, step in zip(one.shape, one.stride, strict=True))
    flat = torch.linspace(-2, 2, length).to(getattr(torch, one.dtype))
    return flat.as_strided(one.shape, one.stride)


def _uses_both(lines: list[str], outputs: list[str]) -> bool:
    """Whether the outputs depend on both inputs: a pattern has no parameter that it does not use."""
    needed = set(outputs)
    for line in reversed(lines):
        name, _, value = line.partition(" = ")
        if name in needed or not (name.startswith("v") and value):
            needed |= {word for word in _words(line) if word in ("a", "b") or word[0] == "v"}
    return {"a", "b"} <= needed


def _words(line: str) -> list[str]:
    plain = "".join(c if c.isalnum() or c == "_" else " " for c in line)
    return [word for word in plain.split() if word in ("a", "b") or (word[0] == "v" and word[1:].isdigit())]


def checked(number: int, device: str, interpreter: Interpreter | None = None) -> tuple[str, str]:
    """What becomes of a graph: "right", "declined", "wrong" or "error", and what there is to say about it."""
    graph = wide_graph(number)
    with tempfile.TemporaryDirectory() as place:
        directory, own = Path(place) / "pass", graph.variant()
        submission = Distill(margin=ANY).write(sample(own), directory)
        if submission.declined:
            return "declined", submission.reason
        if not graph.runs(own.inputs, device):
            return "declined", "eager cannot run it on this device"
        found = [f"refused: {finding}" for finding in check_dir(directory)]
        compare = partial(problems, device=device) if interpreter is None else interpreter.problems
        found += compare(directory, own, draws=2)
        for inputs in graph.others():
            if graph.runs(inputs, device):
                found += [f"on other inputs: {one}" for one in compare(directory, graph.variant(inputs), draws=2)]
    return ("wrong", "\n".join([*found[:4], graph.source, str(graph.inputs)])) if found else ("right", "")


def _some(numbers: list[int], device: str, end: float) -> list[tuple[int, str, str]]:
    """As `checked`, of these graphs, until `end` of `time.time`."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    interpreter, found = Interpreter() if device == "cpu" else None, []
    for number in numbers:
        if time.time() > end:
            break
        try:
            outcome = checked(number, device, interpreter)
        except Exception:
            outcome = "error", f"{traceback.format_exc()}\n{wide_graph(number).source}"
        found.append((number, *outcome))
    if interpreter is not None:
        interpreter.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--first", type=int, default=0, help="the first number")
    parser.add_argument("--count", type=int, default=200, help="so many graphs")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--budget", type=float, default=3600.0, metavar="SECONDS", help="after these none is begun")
    parser.add_argument("--out", type=Path, required=True, help="the file that is written")
    given = parser.parse_args()
    numbers, end = list(range(given.first, given.first + given.count)), time.time() + given.budget
    shares = [numbers[n :: given.processes] for n in range(given.processes)]
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        found = sorted(one for some in pool.map(partial(_some, device=given.device, end=end), shares) for one in some)
    kinds = dict(Counter(kind for _, kind, _ in found))
    head = f"{kinds} of {given.count} graphs from number {given.first}, {given.device}"
    texts = [f"{number} {kind}: {text}" for number, kind, text in found if kind in ("wrong", "error")]
    given.out.write_text("\n\n".join([head, *texts]) + "\n", "utf-8")
    print(head)
    for reason, count in Counter(text for _, kind, text in found if kind == "declined").most_common(8):
        print(count, reason[:150])


if __name__ == "__main__":
    main()
