"""Which ops of a graph a pass replaces together: maximal convex groups of ops that need no library call.

A region may become several kernels: TorchInductor's scheduler decides that.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

from agent.distill.eager.op_effects import OpEffects, TensorLayout
from storage.graph.record import Graph, Op, Ref, map_refs, refs
from storage.records import Input

_NARROW = ("uint8", "int8", "int16")


@dataclass(frozen=True)
class Region:
    """Ops of a graph that are replaced together; `graph` has the same ops as a graph of its own.

    `ops` are op numbers, ascending. `inputs` are value numbers of the whole graph in the order of their first use,
    `outputs` in the order of their definition. `whole` is how many inputs the whole graph has.
    """

    ops: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    graph: Graph
    whole: int

    def value(self, number: int) -> int:
        """The whole graph's number of a value of the region's graph."""
        own = len(self.inputs)
        return self.inputs[number] if number < own else self.whole + self.ops[number - own]


def find_regions(graph: Graph, known: OpEffects, excluded: Collection[int], joined: bool = False) -> list[Region]:
    """The maximal convex groups of ops outside `excluded` whose boundary values are tensors, in order. The ops of a
    group are connected, or read the same value, or read nothing from outside. `joined`: they are those of one level,
    connected or not, and need no library call of each other.

    An op stays outside if its result is a view of an input of the group and is read outside of the group. A group that
    eager runs without any launch is left out.
    """
    before = dependencies(graph, known)
    supported = _supported(graph, known, excluded)
    taken_apart = {op for op in range(len(graph.ops)) if _takes_apart(graph, known, op)}
    levels = _levels(before, supported, taken_apart)
    found = []
    groups = _with_factories(graph, _components(graph, levels, supported, before), levels)
    for ops in _of_one_level(groups, levels) if joined else groups:
        region = region_of(graph, _with_an_input(graph, known, _without_input_views(graph, known, ops)))
        if region and _has_tensor_boundary(region, known) and sum(known.launches[op] for op in region.ops):
            found.append(region)
    return found


def region_of(graph: Graph, ops: Collection[int]) -> Region | None:
    """The region of these ops; None if there are none or nothing reads their results."""
    ops = sorted(ops)
    inside = {graph.inputs + op for op in ops}
    used = dict.fromkeys(r.index for op in ops for r in refs((graph.ops[op].args, graph.ops[op].kwargs)))
    inputs = [number for number in used if number not in inside]
    outputs = sorted(inside & _read_outside(graph, ops))
    if not outputs:
        return None
    renumbered = {old: Ref(new) for new, old in enumerate([*inputs, *(graph.inputs + op for op in ops)])}

    def renumber(ref: Ref) -> Ref:
        return renumbered[ref.index]

    kept = (graph.ops[op] for op in ops)
    new_ops = tuple(Op(o.kind, o.target, map_refs(o.args, renumber), map_refs(o.kwargs, renumber)) for o in kept)
    output = tuple(renumbered[number] for number in outputs)
    return Region(tuple(ops), tuple(inputs), tuple(outputs), Graph(len(inputs), new_ops, output), graph.inputs)


def inputs_of(region: Region, known: OpEffects) -> list[Input]:
    """The region's inputs, as the effects of the whole graph have them."""
    return [known.values[number].as_input(f"in_{n}") for n, number in enumerate(region.inputs)]


def _read_outside(graph: Graph, ops: Collection[int]) -> set[int]:
    inside = set(ops)
    read = {r.index for r in refs(graph.output)}
    for number, op in enumerate(graph.ops):
        if number not in inside:
            read.update(r.index for r in refs((op.args, op.kwargs)))
    return read


def dependencies(graph: Graph, known: OpEffects) -> list[set[int]]:
    """For each op the earlier ops that must run before it: what it reads, and the order around writes in place."""
    before: list[set[int]] = []
    written = set().union(*known.writes) if known.writes else set()
    touched: dict[int, list[int]] = {}
    wrote: dict[int, int] = {}
    for number, op in enumerate(graph.ops):
        needs = {r.index - graph.inputs for r in refs((op.args, op.kwargs)) if r.index >= graph.inputs}
        for storage in known.reads[number] & written:
            if storage in known.writes[number]:
                needs.update(touched.get(storage, ()))
                wrote[storage] = number
            elif storage in wrote:
                needs.add(wrote[storage])
            touched.setdefault(storage, []).append(number)
        before.append(needs)
    return before


def _supported(graph: Graph, known: OpEffects, excluded: Collection[int]) -> list[bool]:
    """Whether each op may be in a group. What makes a tuple may not if something that may not reads the tuple."""
    excluded = set(excluded)
    while True:
        supported = _supported_alone(graph, known, excluded)
        inside = [op for op, fine in enumerate(supported) if fine]
        read = _read_outside(graph, inside)
        makers = {op for op in inside if isinstance(known.values[graph.inputs + op], tuple)}
        makers = {op for op in makers if graph.inputs + op in read}
        if not makers:
            return supported
        excluded |= makers


def _supported_alone(graph: Graph, known: OpEffects, excluded: Collection[int]) -> list[bool]:
    supported: list[bool] = []
    # TorchInductor computes what follows from `torch.arange` in integers that do not wrap around as these do.
    wraps = any(isinstance(value, TensorLayout) and value.dtype in _NARROW for value in known.values[graph.inputs :])
    for number, op in enumerate(graph.ops):
        used = list(refs((op.args, op.kwargs)))
        made = isinstance(known.values[graph.inputs + number], TensorLayout | tuple)
        fine = number not in excluded and (made or op.target == "operator.setitem")
        fine = fine and graph.inputs + number not in known.on_host  # such as a factory that names no device
        fine = fine and (bool(used) or not wraps)
        for ref in used:
            value = known.values[ref.index]
            fine = fine and value is not None and ref.index not in known.on_host  # no kernel reads the CPU's memory
            if isinstance(value, tuple) and ref.index >= graph.inputs:
                fine = fine and supported[ref.index - graph.inputs]
        supported.append(fine)
    return supported


def _levels(before: list[set[int]], supported: list[bool], taken_apart: Collection[int]) -> list[int]:
    """A level for each op such that supported ops of one level never depend on each other through unsupported ones.

    Levels grow by one wherever a path changes between supported and unsupported; an op then moves to the latest level
    that its users allow, so that it joins the group that needs it. Those in `taken_apart` stay with what they read, a
    tuple that no other group can read.
    """
    levels = []
    for number, needs in enumerate(before):
        steps = (levels[n] + (supported[n] != supported[number]) for n in needs)
        levels.append(max(steps, default=0))
    latest: dict[int, int] = {}
    for number in reversed(range(len(before))):
        if supported[number] and number in latest and number not in taken_apart:
            levels[number] = max(levels[number], latest[number])
        for needed in before[number]:
            allowed = levels[number] - (supported[needed] != supported[number])
            latest[needed] = min(latest.get(needed, allowed), allowed)
    return levels


def _components(graph: Graph, levels: list[int], supported: list[bool], before: list[set[int]]) -> list[set[int]]:
    """Supported ops of one level that are connected or read the same value, in order of their first op.

    What reads the same value may become one kernel, and is one call in any case.
    """
    group: dict[int, set[int]] = {}
    readers: dict[tuple[int, int], int] = {}  # level and value from outside → the first op that reads it
    for number, needs in enumerate(before):
        if not supported[number]:
            continue
        near = [needed for needed in needs if supported[needed] and levels[needed] == levels[number]]
        read = {r.index for r in refs((graph.ops[number].args, graph.ops[number].kwargs))}
        outside = read - {graph.inputs + needed for needed in near}
        near += [readers.setdefault((levels[number], value), number) for value in sorted(outside)]
        merged = {number}.union(*(group[other] for other in near if other != number))
        for member in merged:
            group[member] = merged
    unique = {id(ops): ops for ops in group.values()}
    return sorted(unique.values(), key=min)


def _with_factories(graph: Graph, groups: list[set[int]], levels: list[int]) -> list[set[int]]:
    """The groups, of which those that read nothing from outside join the first one of their level that does: they have
    its inputs, and are no call of their own."""

    def reads(ops: set[int]) -> bool:
        used = (refs((graph.ops[op].args, graph.ops[op].kwargs)) for op in ops)
        return any(ref.index - graph.inputs not in ops for each in used for ref in each)

    made = [ops for ops in groups if not reads(ops)]
    joined = []
    for ops in groups:
        if reads(ops):
            alike = [other for other in made if levels[min(other)] == levels[min(ops)]]
            made = [other for other in made if other not in alike]
            joined.append(ops.union(*alike))
    return sorted([*joined, *made], key=min)


def _of_one_level(groups: list[set[int]], levels: list[int]) -> list[set[int]]:
    """Groups of one level as one."""
    joined: dict[int, set[int]] = {}
    for ops in groups:
        joined.setdefault(levels[min(ops)], set()).update(ops)
    return list(joined.values())


def _without_input_views(graph: Graph, known: OpEffects, ops: set[int]) -> set[int]:
    """`ops` without those whose result shares memory with an input of the group and is read outside of the group, and
    without those that take apart a tuple from outside."""
    ops = set(ops)
    while True:
        read = _read_outside(graph, ops)
        own = {s for op in ops for s in known.writes[op]}
        for op in sorted(ops):
            outer = {
                known.values[r.index].storage
                for other in ops
                for r in refs((graph.ops[other].args, graph.ops[other].kwargs))
                if r.index - graph.inputs not in ops and isinstance(known.values[r.index], TensorLayout)
            }
            result = known.values[graph.inputs + op]
            made = result if isinstance(result, tuple) else (result,)
            shares = any(isinstance(x, TensorLayout) and x.storage in outer and x.storage not in own for x in made)
            if (shares and graph.inputs + op in read) or _takes_apart(graph, known, op, ops):
                ops.remove(op)
                break
        else:
            return ops


def _takes_apart(graph: Graph, known: OpEffects, op: int, inside: Collection[int] = ()) -> bool:
    """Whether an op reads a tuple that an op which is not `inside` has made."""
    read = (ref.index for ref in refs((graph.ops[op].args, graph.ops[op].kwargs)))
    made = (n for n in read if n >= graph.inputs and n - graph.inputs not in inside)
    return any(isinstance(known.values[n], tuple) for n in made)


def _with_an_input(graph: Graph, known: OpEffects, ops: set[int]) -> set[int]:
    """`ops`, which must read something from outside: a kernel without inputs would not know its device.

    If they read nothing, the factory of the smallest tensor is left out, and its result is an input.
    """
    read = {op: {r.index - graph.inputs for r in refs((graph.ops[op].args, graph.ops[op].kwargs))} for op in ops}
    made = [op for op in sorted(ops) if not read[op]]
    if not made or not all(numbers <= ops for numbers in read.values()):
        return ops
    return ops - {min(made, key=lambda op: math.prod(known.values[graph.inputs + op].shape))}


def _has_tensor_boundary(region: Region, known: OpEffects) -> bool:
    boundary = [known.values[number] for number in region.inputs + region.outputs]
    return bool(region.inputs) and all(isinstance(value, TensorLayout) for value in boundary)
