"""Which ops must stay in order because of memory: a change to a value, and every use of what may share its memory.

The record alone tells. Where an op may return its argument's memory (a view, an identity), argument and result count as
one piece of memory. So an order may be kept that does not matter; then two equal graphs keep two hashes, and nothing
worse happens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from storage.graph.effects import is_context, is_random, makes_new_memory, writes
from storage.graph.record import Graph, Ref, Value, refs


@dataclass
class MemoryOrder:
    """For each op: `after[n]` are the ops whose changes it sees, in a canonical order; `unread[n]` are the ops that
    must read before op n changes what they read. `final` are the last changes to each input, by input, and `at_end`
    those that a value sees once all ops ran."""

    after: list[tuple[int, ...]]
    unread: list[tuple[int, ...]]
    final: list[tuple[int, ...]]
    at_end: dict[int, tuple[int, ...]]
    contexts: tuple[int, ...]


@dataclass
class _Piece:
    """A piece of memory: the ops that changed it last, and those that read it since."""

    changed: dict[int, None] = field(default_factory=dict)
    readers: list[int] = field(default_factory=list)


class _Pieces:
    """Union-find over values."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.piece: list[_Piece] = []

    def new(self) -> int:
        self.parent.append(len(self.parent))
        self.piece.append(_Piece())
        return len(self.parent) - 1

    def find(self, value: int) -> int:
        root = value
        while self.parent[root] != root:
            root = self.parent[root]
        while self.parent[value] != root:
            self.parent[value], value = root, self.parent[value]
        return root

    def join(self, values: Iterable[int]) -> int:
        first, *others = dict.fromkeys(self.find(v) for v in values)
        target = self.piece[first]
        for other in others:
            piece = self.piece[other]
            target.changed.update(piece.changed)
            if len(piece.readers) > len(target.readers):
                target.readers, piece.readers = piece.readers, target.readers
            target.readers.extend(piece.readers)
            self.parent[other] = first
        return first


def reads(graph: Graph) -> list[list[int]]:
    """For each op the numbers of the values that it reads, in the order of its arguments; repeated ones repeatedly.

    The same as `storage.graph.record.refs`, as lists and faster: it is half of the time that hashing takes, and every
    subgraph of a corpus is hashed.
    """
    result = []
    for op in graph.ops:
        found: list[int] = []
        _collect(op.args, found)
        if op.kwargs:
            _collect(op.kwargs, found)
        result.append(found)
    return result


def _collect(value: Value, found: list[int]) -> None:
    kind = type(value)
    if kind is Ref:
        found.append(value.index)
    elif kind is tuple or kind is list:
        for item in value:
            item_kind = type(item)
            if item_kind is Ref:
                found.append(item.index)
            elif item_kind in _NESTED:
                _collect(item, found)
    elif kind is dict:
        _collect(list(value.values()), found)
    elif kind is slice:
        _collect((value.start, value.stop, value.step), found)


_NESTED = frozenset((tuple, list, dict, slice))


def order(graph: Graph, read: Sequence[Sequence[int]]) -> MemoryOrder | None:
    """What in the graph must stay in order beyond what the ops pass to one another; None if nothing must.

    `read` is `reads(graph)`.
    """
    written = [writes(op) for op in graph.ops]
    contexts = [is_context(op) for op in graph.ops]
    random = [is_random(op) for op in graph.ops]
    if not (any(written) or any(contexts) or any(random)):
        return None
    pieces = _Pieces()
    for _ in range(graph.inputs):
        pieces.new()
    has_contexts = any(contexts)
    state = _Piece()  # the random generator and the contexts
    after: list[tuple[int, ...]] = []
    unread: list[tuple[int, ...]] = []
    for number, op in enumerate(graph.ops):
        arguments = list(dict.fromkeys(read[number]))
        changed = [r.index for r in written[number]]
        result = pieces.new()
        if changed:  # what an in-place op returns is what it changed; what it reads is another matter
            pieces.join([*changed, result])
        elif arguments and not makes_new_memory(op):
            pieces.join([*arguments, result])
        touched = dict.fromkeys(pieces.find(a) for a in arguments)
        changes = {pieces.find(w) for w in changed}
        seen: dict[int, None] = {}
        before: list[int] = []
        for root in touched:
            _touch(pieces.piece[root], number, root in changes, seen, before)
        if has_contexts or random[number]:
            _touch(state, number, contexts[number] or random[number], seen, before)
        after.append(tuple(seen))
        unread.append(tuple(before))
    final = [tuple(pieces.piece[pieces.find(i)].changed) for i in range(graph.inputs)]
    at_end = {r.index: tuple(pieces.piece[pieces.find(r.index)].changed) for r in refs(graph.output)}
    return MemoryOrder(after, unread, final, at_end, tuple(state.changed) if has_contexts else ())


def _touch(piece: _Piece, op: int, changes: bool, seen: dict[int, None], before: list[int]) -> None:
    seen.update(piece.changed)
    if changes:
        before.extend(reader for reader in piece.readers if reader != op)
        piece.changed, piece.readers = {op: None}, []
    else:
        piece.readers.append(op)
