"""How two calls that should be the same differ, and what to write in the pattern instead."""

from typing import Any, NamedTuple

from torch import fx

from passbench.matching.describe import describe, target_text, value_text
from passbench.matching.op_signature import argument, op_name
from passbench.matching.operations import INPLACE, same_operation
from passbench.matching.same_call import Difference, compare

_NAMES = {"truediv": "div", "and_": "and", "or_": "or", "xor": "xor", "neg": "neg", "invert": "bitwise_not"}
_AUGMENTED = frozenset("iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor".split())

_TURNED = "the operands are the other way round"


class Mismatch(NamedTuple):
    """A pattern's operation, the graph's node that should match it, and how they differ; `alike` says that both
    compute the same, spelled differently."""

    pattern_node: fx.Node
    graph_node: fx.Node | None
    expected: str
    found: str
    alike: bool = False


def target_mismatch(
    p: fx.Node, g: fx.Node, reader: fx.Node | None, g_reader: fx.Node | None, rule_of: dict[fx.Node, str]
) -> Mismatch:
    """`g` does not call what `p` does; `reader` reads `p` in the pattern, `g_reader` reads `g` in the graph."""
    expected, found = target_text(p), target_text(g)
    if g in rule_of:
        return Mismatch(p, g, expected, f"the result of pass {rule_of[g]}, which came first")
    if reader is not None and g_reader is not None and _swapped(p, reader, g_reader):
        return Mismatch(reader, g_reader, expected, f"{found}; {_TURNED}")
    (name, in_place), (other, other_in_place) = _plain(p), _plain(g)
    if name != other:
        return Mismatch(p, g, expected, found)
    if in_place != other_in_place:
        how = "in place" if other_in_place else "not in place"
        return Mismatch(p, g, expected, f"{found}, which is the same {how}", True)
    return Mismatch(p, g, expected, f"{found}, another spelling of the same; write it as the graph does", True)


def other_value(p: fx.Node, reader: fx.Node, expected: fx.Node, g_reader: fx.Node, found: Any) -> Mismatch:
    """`g_reader` reads `found` where it should read `expected`, the counterpart of `p`, which `reader` reads."""
    if _swapped(p, reader, g_reader) and expected in g_reader.args:
        return Mismatch(reader, g_reader, expected.name, f"{value_text(found)}; {_TURNED}")
    return Mismatch(reader, g_reader, f"the same value as elsewhere, {expected.name}", value_text(found))


def _swapped(p: fx.Node, reader: fx.Node, g_reader: fx.Node) -> bool:
    if len(reader.args) != 2 or len(g_reader.args) != 2 or reader.args[0] is reader.args[1]:
        return False
    turned = g_reader.args[1 - reader.args.index(p)] if p in reader.args else None
    return isinstance(turned, fx.Node) and same_operation(p, turned)


def _plain(node: fx.Node) -> tuple[str, bool]:
    """The operation's name without its spelling, and whether it works in place."""
    name = op_name(node)
    in_place = name in _AUGMENTED or (name.endswith("_") and name not in _NAMES) or argument(node, "inplace") is True
    name = name[1:] if name in _AUGMENTED else name
    name = _NAMES.get(name, name.rstrip("_"))
    return name, in_place


def call_mismatch(p: fx.Node, g: fx.Node, difference: Difference) -> Mismatch:
    """Both call the same, with other arguments."""
    name, expected, found = difference
    if name is None:
        return Mismatch(p, g, f"arguments as in {describe(p)}", describe(g))
    if name == INPLACE and p.target is not g.target:
        how = "in place" if found else "not in place"
        return Mismatch(p, g, target_text(p), f"{target_text(g)}, which is the same {how}", True)
    if name == INPLACE:
        return Mismatch(p, g, f"inplace={expected}", f"inplace={found}")
    if len(p.args) == 2 and len(g.args) == 2 and not p.kwargs and not g.kwargs:
        turned = compare(p, _Turned(g))
        if turned.difference is None and _fits(turned.pairs):
            return Mismatch(p, g, _written(name, expected), f"{value_text(found)}; {_TURNED}")
    return Mismatch(p, g, _written(name, expected), _written("" if isinstance(name, int) else name, found))


class _Turned:
    """A call with its two operands exchanged."""

    def __init__(self, node: fx.Node) -> None:
        self.op, self.target, self.kwargs = node.op, node.target, node.kwargs
        self.args = node.args[::-1]


def _fits(pairs: list[tuple[fx.Node, Any]]) -> bool:
    return all(p.op == "placeholder" or (isinstance(g, fx.Node) and same_operation(p, g)) for p, g in pairs)


def _written(name: str | int, value: Any) -> str:
    if isinstance(name, int):
        return f"argument {value_text(value)}"
    return f"{name}={value_text(value)}" if name else value_text(value)


def missing_user(user: fx.Node, g: fx.Node, rule_of: dict[fx.Node, str]) -> Mismatch:
    """The pattern has an operation that reads the counterpart of `g`; nothing that reads `g` is the same."""
    for node in g.users:
        mismatch = target_mismatch(user, node, None, None, rule_of)
        if mismatch.alike or len(g.users) == 1:
            return mismatch
    uses = ", ".join(target_text(n) for n in g.users) or "nothing"
    return Mismatch(user, g, f"{g.name} to be used by {target_text(user)}", f"uses by {uses}")
