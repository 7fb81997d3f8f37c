"""Straight-line Python, as torch.fx writes it, as a graph record. The source is read, never run.

Each statement is evaluated symbolically: a name stands for a value of the graph or for a constant. Python's order of
evaluation and its rules for names hold, so that the record computes what the source would.

`x += y` in Python gives `x` a new value; torch.fx writes `x += y; z = x`, where `z` is the result and `x` the value
before. For a tensor both are one object, and the wiring is kept as fx means it; for a number Python's reading holds.
"""

import ast
from collections.abc import Callable, Mapping, Sequence

from storage.graph import targets
from storage.graph.check import check
from storage.graph.record import RUN_DEVICE, Graph, GraphError, Op, Ref, Value
from storage.graph.targets import TargetError
from storage.layout.errors import LayoutError, short
from storage.layout.forward import Forward
from storage.layout.names import DEVICE, NO_EFFECT, TENSOR, callable_name, constant, operator_of
from storage.layout.syntax import dotted, line_of, number_from, outside

MAX_OPS = 100_000
MAX_VALUE = 20_000
"""Most items of one argument, nested ones included. A short source can name a huge value: `b = (a, a); c = (b, b)`."""
MAX_ITEMS = 1_000_000
"""Most items of all arguments of a graph."""

_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor",
    ast.LShift: "lshift", ast.RShift: "rshift",
}  # fmt: skip
_COMPARE = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Is: "is_",
    ast.IsNot: "is_not", ast.In: "contains",
}  # fmt: skip
_UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert", ast.Not: "not_"}
_BUILTINS = frozenset(name.rpartition(".")[2] for name in targets.functions() if name.startswith("builtins."))


def graph_of(forward: Forward, constants: Mapping[str, int] | None = None) -> Graph:
    """The graph of a `forward`; its inputs are the arguments, less those that `constants` gives a number for.

    Raises LayoutError with file, line and construct where the source is no straight-line code over the allowlist.
    """
    return _Builder(forward, constants or {}).graph()


class _Builder:
    def __init__(self, forward: Forward, constants: Mapping[str, int]) -> None:
        self.file = forward.file
        self.body = forward.body
        self.imports = forward.imports
        self.names: dict[str, Value] = {}
        self.inputs = 0
        for argument in forward.arguments:
            if argument.name in constants:
                self.names[argument.name] = constants[argument.name]
            else:
                self.names[argument.name] = Ref(self.inputs)
                self.inputs += 1
        self.ops: list[Op] = []
        self.numbers: set[int] = set()  # values that are known to be no tensors
        self.sizes: dict[int, tuple[int, Value]] = {}  # of containers, by id; held here, so that ids stay theirs
        self.items = 0

    def graph(self) -> Graph:
        number = 0
        while number < len(self.body):
            statement = self.body[number]
            if isinstance(statement, ast.Return):
                if number + 1 < len(self.body):
                    raise outside(self.body[number + 1], self.file, "stands behind the return")
                result = None if statement.value is None else self.value(statement.value)
                self._count(result, statement)
                return self._checked(Graph(self.inputs, tuple(self.ops), result), statement)
            following = self.body[number + 1] if number + 1 < len(self.body) else None
            number += 1 + self.statement(statement, following)
        raise LayoutError("construct", "`forward` has no return", self.file)

    # Statements

    def statement(self, node: ast.stmt, following: ast.stmt | None) -> int:
        """Take one statement, and the one after it where the two are one op; how many more than one were taken."""
        if isinstance(node, ast.Assign):
            value = self.value(node.value)
            taken = 0
            for target in node.targets:
                taken = self.assign(target, value, following if len(node.targets) == 1 else None)
            return taken
        if isinstance(node, ast.AugAssign):
            return self.augmented(node, following)
        if isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            self.names[node.target.id] = self.value(node.value)
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.Delete) and all(isinstance(t, ast.Name) and t.id in self.names for t in node.targets):
            for target in node.targets:
                self.names.pop(target.id, None)
        elif not isinstance(node, ast.Pass):
            raise outside(node, self.file)
        return 0

    def assign(self, target: ast.expr, value: Value, following: ast.stmt | None) -> int:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Subscript):
            result = self.set_item(target, value)
            name = _renamed(following, None)
            if name is not None and name not in self.names:  # as storage.graph.render writes the op's own result
                self.names[name] = result
                return 1
        elif isinstance(target, ast.Tuple | ast.List):
            known = isinstance(value, tuple | list) and len(value) == len(target.elts)
            for number, item in enumerate(target.elts):
                each = value[number] if known else self.call("operator.getitem", (value, number), target)
                self.assign(item, each, None)
        else:
            raise outside(target, self.file, "cannot be assigned to here")
        return 0

    def set_item(self, target: ast.Subscript, value: Value) -> Ref:
        base = self.value(target.value)
        return self.call("operator.setitem", (base, self.value(target.slice), value), target)

    def augmented(self, node: ast.AugAssign, following: ast.stmt | None) -> int:
        name = "i" + _BINARY[type(node.op)].removesuffix("_")
        if isinstance(node.target, ast.Subscript):
            base, index = self.value(node.target.value), self.value(node.target.slice)
            item = self.call("operator.getitem", (base, index), node)
            result = self.call(f"operator.{name}", (item, self.value(node.value)), node)
            self.call("operator.setitem", (base, index, result), node)
            return 0
        if not isinstance(node.target, ast.Name):
            raise outside(node.target, self.file, "cannot be assigned to here")
        target, old = node.target.id, self.value(node.target)
        if not isinstance(old, Ref):  # Python's numbers are not changed in place
            name = _BINARY[type(node.op)]
        result = self.call(f"operator.{name}", (old, self.value(node.value)), node)
        alias = _renamed(following, target)
        if alias is None or alias == target or not isinstance(old, Ref) or old.index in self.numbers:
            self.names[target] = result
            return 0
        self.names[alias] = result
        return 1

    # Expressions

    def value(self, node: ast.expr) -> Value:
        number = number_from(node)
        if number is not None and not (isinstance(node, ast.Call) and "float" in self.names):
            return number
        method = _EXPRESSIONS.get(type(node))
        if method is None:
            raise outside(node, self.file)
        value = method(self, node)
        if isinstance(value, tuple | list | dict | slice) and self._size(value) > MAX_VALUE:
            raise LayoutError("too large", f"a value of more than {MAX_VALUE} items", self.file, line_of(node))
        return value

    def constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, bytes):
            raise outside(node, self.file, "of bytes is not a value of a graph")
        return node.value

    def name(self, node: ast.Name) -> Value:
        if node.id in self.names:
            return self.names[node.id]
        return self.torch_constant(self.imports.get(node.id, node.id), node)

    def attribute(self, node: ast.Attribute) -> Value:
        name = self.global_name(node)
        if name is not None:
            return self.torch_constant(name, node)
        return self.call(targets.GETATTR, (self.value(node.value), node.attr), node)

    def torch_constant(self, name: str, node: ast.expr) -> Value:
        try:
            return constant(name)
        except KeyError:
            message = f"{short(name)} is neither a value of this graph nor a constant of torch"
            raise LayoutError("target", message, self.file, line_of(node)) from None

    def global_name(self, node: ast.expr) -> str | None:
        """The dotted name of a global; None if the expression starts from a value of the graph, or is no such name."""
        name = dotted(node)
        if name is None:
            return None
        root, dot, rest = name.partition(".")
        if root in self.names:
            return None
        return self.imports.get(root, root) + dot + rest

    def called(self, node: ast.Call) -> Value:
        if any(keyword.arg is None for keyword in node.keywords):
            raise outside(node, self.file, "with ** does not say what it is given")
        name = self.global_name(node.func)
        if name is None and not isinstance(node.func, ast.Attribute):
            raise outside(node.func, self.file, "cannot be called")
        receiver = [] if name is not None else [self.value(node.func.value)]
        args = (*receiver, *(self.value(arg) for arg in node.args))
        kwargs = {keyword.arg: self.value(keyword.value) for keyword in node.keywords}
        if name in NO_EFFECT:
            return None
        if name == DEVICE:
            return RUN_DEVICE
        if name == "torch.Size" and len(args) == 1 and isinstance(args[0], list | tuple) and not kwargs:
            return tuple(args[0])
        if name == "slice" and 1 <= len(args) <= 3 and not kwargs:
            return slice(*args)
        if isinstance(kwargs.get("device"), str):
            kwargs["device"] = RUN_DEVICE
        if name is not None and not name.startswith(TENSOR):
            return self.call(f"builtins.{name}" if name in _BUILTINS else name, args, node, kwargs)
        method = node.func.attr if name is None else name.removeprefix(TENSOR)
        operator = operator_of(method)
        if operator is not None:
            return self.call(operator, args, node, kwargs)
        if method == "to" and len(args) > 1 and isinstance(args[1], str):
            args = (args[0], RUN_DEVICE, *args[2:])
        return self.call(method, args, node, kwargs, kind="method")

    def binary(self, node: ast.BinOp) -> Value:
        return self.call(f"operator.{_BINARY[type(node.op)]}", (self.value(node.left), self.value(node.right)), node)

    def unary(self, node: ast.UnaryOp) -> Value:
        operand = self.value(node.operand)
        if isinstance(node.op, ast.USub) and type(operand) in (int, float, complex):
            return -operand
        return self.call(f"operator.{_UNARY[type(node.op)]}", (operand,), node)

    def compare(self, node: ast.Compare) -> Value:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARE:
            raise outside(node, self.file, "of several, or with `not in`, is not one operation")
        name = _COMPARE[type(node.ops[0])]
        operands = (self.value(node.left), self.value(node.comparators[0]))
        return self.call(f"operator.{name}", operands[::-1] if name == "contains" else operands, node)

    def subscript(self, node: ast.Subscript) -> Value:
        return self.call("operator.getitem", (self.value(node.value), self.value(node.slice)), node)

    def slice(self, node: ast.Slice) -> Value:
        return slice(*(None if part is None else self.value(part) for part in (node.lower, node.upper, node.step)))

    def dictionary(self, node: ast.Dict) -> Value:
        if not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys):
            raise outside(node, self.file, "with keys other than strings is not a value of a graph")
        return {key.value: self.value(value) for key, value in zip(node.keys, node.values, strict=True)}

    # Ops

    def call(
        self,
        target: str,
        args: tuple,
        node: ast.AST,
        kwargs: dict[str, Value] | None = None,
        kind: str = "function",
    ) -> Ref:
        """Adds an op, and gives its result."""
        try:
            target = targets.check_method(target) if kind == "method" else callable_name(target)
        except TargetError as error:
            raise LayoutError("target", str(error), self.file, line_of(node)) from None
        for each in (*args, *(kwargs or {}).values()):
            self._count(each, node)
        op = Op(kind, target, args, kwargs or {})
        here = self.inputs + len(self.ops)
        self._checked(Graph(here, (op,), None), node)
        if len(self.ops) == MAX_OPS:
            raise LayoutError("too large", f"there are more than {MAX_OPS} ops", self.file, line_of(node))
        if self._is_number(op):
            self.numbers.add(here)
        self.ops.append(op)
        return Ref(here)

    def _size(self, value: Value) -> int:
        """Items of a value, from those of the containers in it, which were counted before."""
        if isinstance(value, str):
            return 1 + len(value) // 16
        if not isinstance(value, tuple | list | dict | slice):
            return 1
        if id(value) not in self.sizes:
            if isinstance(value, slice):
                parts = (value.start, value.stop, value.step)
            else:
                parts = value.values() if isinstance(value, dict) else value
            self.sizes[id(value)] = (1 + sum(self._size(part) for part in parts), value)
        return self.sizes[id(value)][0]

    def _count(self, value: Value, node: ast.AST) -> None:
        self.items += self._size(value)
        if self.items > MAX_ITEMS:
            raise LayoutError("too large", f"arguments of more than {MAX_ITEMS} items", self.file, line_of(node))

    def _is_number(self, op: Op) -> bool:
        """Whether the result is surely a Python number: a size, and arithmetic on sizes."""
        first = op.args[0] if op.args else None
        if op.kind == "method":
            return op.target in ("dim", "numel", "item") or (op.target == "size" and len(op.args) + len(op.kwargs) > 1)
        if op.target == "operator.getitem" and isinstance(first, Ref):
            made_by = self.ops[first.index - self.inputs] if first.index >= self.inputs else None
            return made_by is not None and (made_by.target == "size" or made_by.args[1:] == ("shape",))
        if op.target.startswith("operator.") and op.target not in ("operator.getitem", "operator.setitem"):
            return all(isinstance(a, int | float) or (isinstance(a, Ref) and a.index in self.numbers) for a in op.args)
        numbers = ("builtins.len", "builtins.int", "builtins.float", *targets.SYMBOLIC)
        return op.target.startswith("math.") or op.target in numbers

    def _checked(self, graph: Graph, node: ast.AST) -> Graph:
        try:
            check(graph)
        except GraphError as error:
            message = str(error).removeprefix("op 0 of the graph record ")
            cause = "too large" if "deeper" in message else "construct"
            raise LayoutError(cause, f"this {message}", self.file, line_of(node)) from None
        return graph


def _renamed(statement: ast.stmt | None, name: str | None) -> str | None:
    """The target of a statement `TARGET = name`, or `TARGET = None` for name None; None for any other statement."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    fits = isinstance(value, ast.Name) and value.id == name if name is not None else _is_none(value)
    return target.id if fits and isinstance(target, ast.Name) else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _several(make: Callable[[Sequence[Value]], Value]) -> Callable[[_Builder, ast.Tuple | ast.List], Value]:
    return lambda builder, node: make([builder.value(item) for item in node.elts])


_EXPRESSIONS: dict[type, Callable[[_Builder, ast.expr], Value]] = {
    ast.Constant: _Builder.constant,
    ast.Name: _Builder.name,
    ast.Attribute: _Builder.attribute,
    ast.Call: _Builder.called,
    ast.BinOp: _Builder.binary,
    ast.UnaryOp: _Builder.unary,
    ast.Compare: _Builder.compare,
    ast.Subscript: _Builder.subscript,
    ast.Slice: _Builder.slice,
    ast.Dict: _Builder.dictionary,
    ast.Tuple: _several(tuple),
    ast.List: _several(list),
}
