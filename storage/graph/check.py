"""What makes a graph record well formed: checked on everything read, and again before it is rebuilt.

Source text is generated from a record (by torch.fx, and by `storage.graph.render`), so every name in one must be a name
and every call must have the form that its target's syntax needs.
"""

import keyword
import re

from storage.graph import targets
from storage.graph.record import Graph, GraphError, Op, Ref, Value, refs

MAX_INPUTS = 1 << 20
MAX_DEPTH = 24
"""How deep the values of an argument may nest; Python's own parser gives up at 200."""

_QUALIFIED = re.compile(r"[a-zA-Z_]\w*(\.[a-zA-Z_]\w*)+", re.ASCII)
_IDENTIFIER = re.compile(r"[a-zA-Z_]\w*", re.ASCII)
_UNARY = frozenset("abs index invert neg not_ pos truth".split())
_TERNARY = frozenset(["setitem"])


def check(graph: Graph) -> None:
    """Raises GraphError if the graph refers to values before they exist, or has a malformed call.

    Targets are not looked up: that is up to the torch that rebuilds the graph.
    """
    if type(graph.inputs) is not int or not 0 <= graph.inputs <= MAX_INPUTS:
        raise GraphError("the graph record has no valid input count")
    for number, op in enumerate(graph.ops):
        try:
            _check_call(op)
            _check_depth(op.args)
            _check_depth(op.kwargs)
        except GraphError as error:
            raise GraphError(f"op {number} of the graph record {error}") from None
        if any(not 0 <= ref.index < graph.inputs + number for ref in refs((op.args, op.kwargs))):
            raise GraphError(f"op {number} of the graph record refers to a value before it exists")
    _check_depth(graph.output)
    if any(not 0 <= ref.index < graph.inputs + len(graph.ops) for ref in refs(graph.output)):
        raise GraphError("the output of the graph record refers to a value that does not exist")


def _check_call(op: Op) -> None:
    for key in op.kwargs:
        if not _IDENTIFIER.fullmatch(key) or keyword.iskeyword(key):
            raise GraphError(f"has a keyword {key[:40]!r} that is not a name")
    if op.kind == "method":
        if not _IDENTIFIER.fullmatch(op.target):
            raise GraphError(f"calls a method {op.target[:40]!r} that is not a name")
        if not op.args or not isinstance(op.args[0], Ref):
            raise GraphError(f"calls method {op.target} on something other than a value")
    elif op.kind != "function" or not _QUALIFIED.fullmatch(op.target):
        raise GraphError(f"calls {op.target[:80]!r}, which is not a qualified name")
    elif op.target == targets.GETATTR:
        allowed = len(op.args) == 2 and not op.kwargs and isinstance(op.args[0], Ref) and isinstance(op.args[1], str)
        if not allowed or op.args[1] not in targets.ATTRIBUTES:
            raise GraphError(f"reads attribute {str(op.args[1:])[:80]}, which is outside the allowlist")
    elif op.target.startswith("operator."):
        name = op.target.removeprefix("operator.")
        arity = 1 if name in _UNARY else 3 if name in _TERNARY else 2
        if len(op.args) != arity or op.kwargs:
            raise GraphError(f"calls {op.target} with {len(op.args)} arguments in place of {arity}")
        if name in targets.AUGMENTED and not isinstance(op.args[0], Ref):
            raise GraphError(f"calls {op.target} on something other than a value")


def _check_depth(value: Value, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise GraphError(f"nests values deeper than {MAX_DEPTH}")
    if isinstance(value, tuple | list):
        for item in value:
            _check_depth(item, depth + 1)
    elif isinstance(value, dict):
        for item in value.values():
            _check_depth(item, depth + 1)
    elif isinstance(value, slice):
        for item in (value.start, value.stop, value.step):
            _check_depth(item, depth + 1)
