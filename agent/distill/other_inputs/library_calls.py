"""A region as library calls: what a pass does for inputs of which it has no kernels.

A pass has kernels for the dtypes, shapes and strides of the sample's variants. For all other inputs it calls torch's
operators, as eager does. So it computes whatever eager computes, for every input of the family.

Host code of a pass may not write to its inputs. An op that writes in place to memory which the region has not made
itself becomes an op out of place and a kernel that copies its result there (`WRITE_INTO`).
"""

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from agent.distill.eager.op_effects import OpEffects, TensorLayout
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.other_inputs.assigned_parts import (
    dims_of_part,
    holds_a_list,
    holds_a_switch,
    is_beyond_halves,
    text_of,
)
from passbench.policy import operators
from passbench.policy.allowlists import TENSOR_ATTRIBUTES, VIEW_ATTRIBUTES, VIEW_METHODS
from storage.graph import effects, targets
from storage.graph.record import Graph, Op, Ref, RunDevice, refs
from storage.graph.render import statements, value_name

_MOST_DIMS = 6
_COPIES = ("copy_", "fill_", "zero_")
_AS_CALLS = {
    f"operator.{name}": f"torch.{call}"
    for name, call in (("truediv", "div"), *((name, name) for name in ("add", "sub", "mul", "pow", "neg", "matmul")))
}
"""Operators, whose results the policy takes for tensors only where an operand surely is one, as calls of torch."""

WRITE_INTO = '''
@triton.jit
def write_into_kernel(
    value_ptr, target_ptr, n, size_1, size_2, size_3, size_4, size_5,
    step_0, step_1, step_2, step_3, step_4, step_5, IN_ORDER: tl.constexpr, BLOCK: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    value = tl.load(value_ptr + index, mask=inside)
    place = index
    if not IN_ORDER:
        place = index % size_5 * step_5
        index = index // size_5
        place += index % size_4 * step_4
        index = index // size_4
        place += index % size_3 * step_3
        index = index // size_3
        place += index % size_2 * step_2
        index = index // size_2
        place += index % size_1 * step_1 + index // size_1 * step_0
    tl.store(target_ptr + place, value, mask=inside)


WRITES = {}  # dtype, shape and stride of a target -> what writes there


def write_into(target, value):
    """Writes `value` where eager writes it in place: to the elements of `target`."""
    if value.dtype != target.dtype or value.shape != target.shape or not value.is_contiguous():
        value = value.to(target.dtype).expand(target.shape).contiguous()
    key = (target.dtype, target.shape, target.stride())
    launch = WRITES.get(key)
    if launch is None:
        size = (1,) * (6 - target.dim()) + tuple(target.shape)
        step = (0,) * (6 - target.dim()) + tuple(target.stride())
        launch = Launch(
            write_into_kernel, (triton.cdiv(value.numel(), 1024),), n=value.numel(),
            size_1=size[1], size_2=size[2], size_3=size[3], size_4=size[4], size_5=size[5],
            step_0=step[0], step_1=step[1], step_2=step[2], step_3=step[3], step_4=step[4], step_5=step[5],
            IN_ORDER=target.is_contiguous(), BLOCK=1024,
        )
        if len(WRITES) == 64:
            WRITES.clear()
        WRITES[key] = launch
    if value.numel() > 0:
        launch(value, target)
'''


@dataclass(frozen=True)
class LibraryBody:
    """The lines of a function's body that compute a region by library calls; `writes`: they call `write_into`."""

    lines: tuple[str, ...]
    writes: bool


def library_body(graph: Graph, known: OpEffects) -> LibraryBody:
    """The region as library calls; `known` are the effects of its ops in one of its variants.

    Raises Unsupported if an op cannot be written in a pass's host code.
    """
    writer = LibraryWriter(graph, known)
    for number in range(len(graph.ops)):
        writer.add(number)
    returned = ", ".join(value_name(ref.index, graph.inputs) for ref in graph.output)
    return LibraryBody(tuple(freed([*writer.lines, f"return {returned}"])), writer.writes)


def call_lines(graph: Graph) -> list[str]:
    """The lines of ops that write to nothing and take no tuples apart. Raises Unsupported as `library_body` does."""
    names = [value_name(graph.inputs + number, graph.inputs) for number in range(len(graph.ops))]
    written = (statements(name, _spelled(op), graph.inputs) for name, op in zip(names, graph.ops, strict=True))
    return [line for lines in written for line in lines]


def freed(lines: Sequence[str]) -> list[str]:
    """The lines of a function's body, which let go of each value behind its last use, as a graph's own code does.

    Otherwise all intermediate results would live until the function returns, in more memory than eager's.
    """
    used = [{node.id for node in ast.walk(ast.parse(line.replace("return ", "", 1))) if isinstance(node, ast.Name)}
            for line in lines]  # fmt: skip
    last = {name: number for number, names in enumerate(used) for name in names if name.startswith("tmp_")}
    result = []
    for number, line in enumerate(lines):
        over = sorted(name for name in used[number] if last.get(name) == number)
        result += [line, *([f"del {', '.join(over)}"] if over and number + 1 < len(lines) else [])]
    return result


def replayable(graph: Graph, known: OpEffects) -> bool:
    """Whether the region's library calls are safe to replay as a CUDA graph: they write to no input, return no view of
    one, and the host neither computes nor waits."""
    given = {layout.storage for layout in known.values[: graph.inputs] if isinstance(layout, TensorLayout)}
    outputs = [known.values[ref.index] for ref in refs(graph.output)]
    if known.on_host or given & set().union(*known.writes) or host_waits(graph, known):
        return False
    return all(isinstance(layout, TensorLayout) and layout.storage not in given for layout in outputs)


def host_waits(graph: Graph, known: OpEffects) -> bool:
    """Whether the host waits for the device in some library call: CUDA records no such call."""
    return any(_as_fill(graph.ops[number]) is graph.ops[number] for number in known.waits)


def without_library_call(graph: Graph, known: OpEffects) -> set[int]:
    """The numbers of the ops that cannot be written in a pass's host code."""
    found = set()
    writer = LibraryWriter(graph, known)
    for number in range(len(graph.ops)):
        try:
            writer.add(number)
        except Unsupported:
            found.add(number)
    return found


@dataclass
class LibraryWriter:
    """Writes ops of a graph, one after another, as the `lines` of a function's body.

    The function knows the device from input `device_of`. `writes`: a line calls `write_into`.
    """

    graph: Graph
    known: OpEffects
    device_of: int = 0
    lines: list[str] = field(default_factory=list)
    writes: bool = False
    own: set[int] = field(default_factory=set)  # values whose memory the policy sees that this function has made

    def add(self, number: int) -> None:
        """Writes the op of this number."""
        op = self.graph.ops[number]
        name = value_name(self.graph.inputs + number, self.graph.inputs)
        if effects.is_random(op) or effects.is_context(op):
            raise Unsupported(f"{op.target} is no call that a pass may make")
        written = effects.writes(op)
        if not written:
            self._call(number, name, op)
        elif written != tuple(refs(op.args[:1])) or "out" in op.kwargs:
            raise Unsupported(f"{op.target} writes to other values than its first")
        elif op.target == "operator.setitem":
            self._assign(f"{name}_part", op)
        elif written[0].index in self.own:
            self._lines(statements(name, _spelled(op), self.graph.inputs))
            self.own.add(self.graph.inputs + number)
        else:
            self._write(number, name, op, written[0])

    def _call(self, number: int, name: str, op: Op) -> None:
        if any(self.known.writes) and op.args and isinstance(op.args[0], Ref) and self._is_tensor(op.args[0]):
            op = replace(op, target=_AS_CALLS.get(op.target, op.target))
        spelled = _spelled(op)
        if self._reads_by_mask(op):
            raise Unsupported("an index that is a mask")
        self._lines(statements(name, spelled, self.graph.inputs))
        if self._makes_own(spelled):
            self.own.add(self.graph.inputs + number)

    def _write(self, number: int, name: str, op: Op, target: Ref) -> None:
        """An op that writes to memory that is not the function's own."""
        layout = self.known.values[target.index]
        if not isinstance(layout, TensorLayout) or len(layout.shape) > _MOST_DIMS:
            raise Unsupported(f"{op.target} writes to what is no tensor of up to {_MOST_DIMS} dimensions")
        place = value_name(target.index, self.graph.inputs)
        self._lines(self._out_of_place(f"{name}_value", op))
        self._lines([f"write_into({place}, {name}_value)", f"{name} = {place}"])
        self.writes = True

    def _assign(self, name: str, op: Op) -> None:
        """An assignment to a part of a tensor, as a view `name` that is written to.

        A mask as the index is an op in place of its own. A number beyond a half type's becomes infinite in it, where
        a fill raises. Raises Unsupported for other indices that are tensors.
        """
        target, index, value = op.args
        layout, given = self.known.values[target.index], None
        if isinstance(value, Ref):
            given = self.known.values[value.index]
            if value.index in self.known.on_host or not isinstance(given, TensorLayout):
                raise Unsupported("an assignment of what is no tensor on the device")
        if not isinstance(layout, TensorLayout):
            raise Unsupported("an assignment to what is no tensor")
        whole, own = value_name(target.index, self.graph.inputs), target.index in self.own
        text = text_of(value, self.graph.inputs)
        wide = given is None and "float" in layout.dtype and is_beyond_halves(value)
        if isinstance(index, Ref):
            mask = self.known.values[index.index]
            fits = isinstance(mask, TensorLayout) and mask.dtype == "bool" and len(mask.shape) == len(layout.shape)
            if not own or given is not None or not fits:
                raise Unsupported("an assignment by an index that is a tensor")
            at, full = value_name(index.index, self.graph.inputs), _in_double(whole, text)
            filled = f"{whole}.copy_(torch.where({at}, {full}, {whole}))"
            self._lines([filled if wide else f"{whole}.masked_fill_({at}, {text})"])
            return
        if _reads_tensors((index,)) or holds_a_list(index) or holds_a_switch(index):
            raise Unsupported("an assignment by an index that is a tensor")
        dims = dims_of_part(index, len(layout.shape))
        if (given is not None and len(given.shape) > dims) or dims > _MOST_DIMS:
            raise Unsupported("an assignment of a value with more dimensions than the part has")
        taken = Op("function", "operator.getitem", (target, index), {})
        self._lines(statements(name, taken, self.graph.inputs))
        full = _in_double(name, text) if wide else f"torch.full_like({name}, {text})"
        if own:
            self._lines([f"{name}.copy_({full if wide else text})" if wide or given else f"{name}.fill_({text})"])
            return
        self._lines([f"write_into({name}, {full if given is None else text})"])
        self.writes = True

    def _out_of_place(self, name: str, op: Op) -> list[str]:
        """The lines that give `name` what the op writes to its first operand."""
        base = effects.base_name(op)
        place = value_name(op.args[0].index, self.graph.inputs)
        if base in _COPIES:
            value = effects.argument(op, 1, "src" if base == "copy_" else "value", 0)
            if isinstance(value, Ref):
                return [f"{name} = {value_name(value.index, self.graph.inputs)}"]
            return [f"{name} = torch.full_like({place}, {text_of(value, self.graph.inputs)})"]
        return statements(name, _spelled(out_of_place(op)), self.graph.inputs)

    def _makes_own(self, op: Op) -> bool:
        """Whether the policy sees that the result has memory of its own."""
        first_own = bool(op.args) and isinstance(op.args[0], Ref) and op.args[0].index in self.own
        if op.target == "operator.getitem":
            layout = self.known.values[op.args[0].index] if isinstance(op.args[0], Ref) else None
            return first_own and isinstance(layout, TensorLayout) and not _reads_tensors(op.args[1:])
        if op.target.startswith("operator."):
            return any(ref.index in self.own for ref in refs(op.args))
        if op.target == targets.GETATTR:
            return False
        stored = f".{op.target}" if op.kind == "method" else op.target
        if op.kind == "method" and op.target in VIEW_METHODS:
            return first_own or op.target.startswith("new_")
        call = operators.library_call(stored, [ast.Constant(0) for _ in op.args], {})
        return first_own if call.views else call.fresh

    def _is_tensor(self, ref: Ref) -> bool:
        return isinstance(self.known.values[ref.index], TensorLayout)

    def _reads_by_mask(self, op: Op) -> bool:
        if op.target != "operator.getitem":
            return False
        masks = (self.known.values[r.index] for r in refs(op.args[1:2]))
        return any(isinstance(m, TensorLayout) and m.dtype in ("bool", "uint8") for m in masks)

    def _lines(self, lines: Sequence[str]) -> None:
        first = value_name(self.device_of, self.graph.inputs)
        self.lines += [line.replace('torch.device("cuda")', f"{first}.device") for line in lines]


def out_of_place(op: Op) -> Op:
    """The op that computes what an op in place writes to its first operand.

    Raises Unsupported where there is none.
    """
    base = effects.base_name(op)
    if op.target.startswith("operator.i"):
        return replace(op, target=op.target.replace("operator.i", "operator.", 1))
    if effects.argument(op, effects.inplace_position(op), "inplace", None) not in (None, False):
        args = tuple(False if n == effects.inplace_position(op) else a for n, a in enumerate(op.args))
        return replace(op, args=args, kwargs={k: v for k, v in op.kwargs.items() if k != "inplace"})
    if not base.endswith("_"):
        raise Unsupported(f"{op.target} writes in place")
    if op.target.startswith("torch.ops."):
        head, _, overload = op.target.rpartition(".")
        name = f"{head.removesuffix('_')}.{overload}"
    else:
        name = op.target.removesuffix("_")
    known = name in targets.methods() if op.kind == "method" else _resolves(name)
    if not known:
        raise Unsupported(f"{op.target} has no form out of place")
    return replace(op, target=name)


def _resolves(name: str) -> bool:
    try:
        targets.resolve(name)
    except targets.TargetError:
        return False
    return True


def _spelled(op: Op) -> Op:
    """The op under a name that host code may use. Raises Unsupported if there is none."""
    op = _as_fill(op)
    if op.kind == "method":
        if not operators.is_method(op.target) or op.target.startswith("_"):
            raise Unsupported(f"method {op.target}")
        stored = f".{op.target}"
    elif op.target == targets.GETATTR:
        if op.args[1] not in VIEW_ATTRIBUTES | TENSOR_ATTRIBUTES:
            raise Unsupported(f"attribute {op.args[1]}")
        return op
    elif op.target.startswith("operator."):
        return op
    else:
        op = replace(op, target=_name_in_host_code(op.target))
        stored = op.target
    given = [_argument(a) for a in op.args], {name: _argument(a) for name, a in op.kwargs.items()}
    call = operators.library_call(stored, *given)
    if call.reading or call.scalar:
        raise Unsupported(f"{op.target} reads values")
    return op


def _argument(value: Any) -> ast.expr:
    """An argument as the policy reads it: numbers and switches are known."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return ast.Constant(value) if plain else ast.Name("value")


def _as_fill(op: Op) -> Op:
    """A number that is copied to the device as a fill, which has the same result and does not wait; any other op as it
    is."""
    number = op.args[0] if op.target == "torch.tensor" and len(op.args) == 1 else None
    plain = type(number) in (bool, int, float) and op.kwargs.keys() <= {"device", "dtype"}
    on_device = plain and isinstance(op.kwargs.get("device"), RunDevice)
    return replace(op, target="torch.full", args=((), number)) if on_device else op


def _name_in_host_code(target: str) -> str:
    """A name under which host code may call what a record calls `target`."""
    if operators.stored_name(target) is not None:
        return target
    for name, stored in targets.spellings().items():
        if stored == target and operators.stored_name(name) is not None:
            return name
    last = target.rpartition(".")[2]
    if target.startswith("torch._C._nn.") and hasattr(torch.nn.functional, last):
        return f"torch.nn.functional.{last}"
    raise Unsupported(f"{target} is not for host code")


def _in_double(like: str, number: str) -> str:
    """A tensor of this number. Where it is beyond a half type, a fill raises, and a copy makes it infinite."""
    return f"torch.full_like({like}, {number}, dtype=torch.float64)"


def _reads_tensors(values: Collection[Any]) -> bool:
    return any(True for _ in refs(tuple(values)))
