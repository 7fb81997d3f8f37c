"""Addresses in kernels: a kernel makes no address of a number and no number of an address.

With either it could read and write all memory that the device, or Triton's interpreter, can reach. An address comes in
as a tensor argument and goes through arithmetic into a load or a store; its type is of no use for anything else.
"""

import ast
from collections.abc import Callable, Iterable, Iterator

from passbench.policy.kernels.assembly import ASSEMBLY, fault
from passbench.policy.modules import Module, Report
from passbench.policy.nodes import children, names_by_place, quoted, walk, written_name
from passbench.policy.scopes import parameters
from passbench.policy.steps import Steps

_TL = "triton.language."
_SAME = frozenset(
    f"{_TL}{n}"
    for n in """where broadcast broadcast_to reshape view expand_dims multiple_of max_contiguous max_constancy trans
    permute ravel join cat interleave split flip advance add sub gather make_block_ptr maximum minimum max min
    sum""".split()
)
"""Functions whose result is an address if an argument is one."""
_ACCESS = frozenset(
    f"{_TL}{n}"
    for n in """load store atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor
    make_block_ptr make_tensor_descriptor load_tensor_descriptor store_tensor_descriptor""".split()
)
"""Functions whose first argument is an address."""
_ALIKE = {f"{_TL}where": ("condition",), **{f"{_TL}{n}": () for n in ("join", "cat", "interleave")}}
"""Functions whose arguments become one block, of the type of one of them, but for the first ones that have these
names."""
_SHOWS = frozenset(f"{_TL}{n}" for n in "device_print static_print static_assert".split())
_TYPED = frozenset(("dtype", "type"))
_HARMLESS = {"dtype": ("element_ty", "primitive_bitwidth"), "type": ("primitive_bitwidth",)}
"""Attributes of these types that are none of an address: `type` of a block of addresses has their type as its
`element_ty`. `element_ty` of `type` of a parameter that a launch alone fills is none either: it is one address."""
Key = tuple[ast.FunctionDef, str]


class Addresses:
    """Variables of all kernels that may be addresses: parameters that `launched` says are launched with tensors, what
    is computed of them, and parameters of helpers that get such."""

    def __init__(
        self, modules: dict[str, Module], launched: Callable[[ast.FunctionDef, str], bool], steps: Steps
    ) -> None:
        self._modules, self._steps = modules, steps
        kernels = [(module, k) for module in modules.values() for k in module.kernels.values()]
        self._returns: set[ast.FunctionDef] = set()
        self._found: set[Key] = set()
        self._readers: dict[object, list[tuple[Module, ast.FunctionDef, ast.AST]]] = {}
        for _, kernel in kernels:
            self._found |= {(kernel, p.arg) for p in parameters(kernel) if launched(kernel, p.arg)}
        self._handed = {
            called
            for module, kernel in kernels
            for node in _inside(kernel)
            if isinstance(node, ast.Name | ast.Attribute) and (called := callee(modules, module, node)) is not None
        }
        self._follow(kernels)

    def _follow(self, kernels: list[tuple[Module, ast.FunctionDef]]) -> None:
        """Grow `_found` until nothing changes; a statement is looked at again where a name in it has become an
        address, or a kernel that it calls returns one."""
        waiting = []
        for module, kernel in kernels:
            for node in _inside(kernel):
                if not isinstance(node, _BINDING):
                    continue
                entry = (module, kernel, node)
                waiting.append(entry)
                for part in walk(node.iter if isinstance(node, ast.For | ast.comprehension) else node):
                    self._steps.take()
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                        self._readers.setdefault((kernel, part.id), []).append(entry)
                    elif isinstance(part, ast.Call) and (called := callee(self._modules, module, part.func)):
                        self._readers.setdefault(called, []).append(entry)
                if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                    self._readers.setdefault((kernel, node.target.id), []).append(entry)
        while waiting:
            waiting.extend(self._look(*waiting.pop()))

    def _look(self, module: Module, kernel: ast.FunctionDef, node: ast.AST) -> Iterable:
        if isinstance(node, ast.Call):
            called = callee(self._modules, module, node.func)
            if called is None:
                return []
            new = [(called, name) for name, value in _given(called, node) if self._is_address(module, kernel, value)]
        elif isinstance(node, ast.Return):
            if node.value is None or kernel in self._returns or not self._is_address(module, kernel, node.value):
                return []
            self._returns.add(kernel)
            return self._readers.get(kernel, [])
        else:
            value = node.iter if isinstance(node, ast.For | ast.comprehension) else node.value
            if value is None or not self._is_address(module, kernel, value):
                return []
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound = [n.id for t in targets for n in walk(t) if isinstance(n, ast.Name)]
            self._steps.take(len(bound))
            new = [(kernel, name) for name in bound]
        again: list = []
        for key in new:
            if key not in self._found:
                self._found.add(key)
                again += self._readers.get(key, [])
        return again

    def _is_address(self, module: Module, kernel: ast.FunctionDef, node: ast.expr) -> bool:
        """Whether an expression of a kernel may be an address, or a block or tuple of such."""
        waiting = [node]
        while waiting:
            part = waiting.pop()
            self._steps.take()
            if isinstance(part, ast.Name):
                if (kernel, part.id) in self._found:
                    return True
            elif isinstance(part, ast.BinOp):
                waiting += [part.left, part.right]
            elif isinstance(part, ast.IfExp):
                waiting += [part.body, part.orelse]
            elif isinstance(part, ast.Tuple | ast.List):
                waiting += part.elts
            elif isinstance(part, ast.BoolOp):
                waiting += part.values
            elif isinstance(part, ast.Subscript):  # an instance of the pass may hand out what it is indexed by
                waiting += [part.value, part.slice]
            elif isinstance(part, ast.Slice):
                waiting += filter(None, (part.lower, part.upper, part.step))
            elif isinstance(part, ast.Starred):
                waiting.append(part.value)
            elif isinstance(part, ast.Attribute):  # `.T`, or a field of a named tuple
                if part.attr not in _TYPED and module.dotted(part) is None:
                    waiting.append(part.value)
            elif isinstance(part, ast.ListComp | ast.GeneratorExp):
                waiting.append(part.elt)
            elif isinstance(part, ast.UnaryOp):
                waiting.append(part.operand)
            elif isinstance(part, ast.Call):
                dotted, called = module.dotted(part.func), callee(self._modules, module, part.func)
                if called is not None:
                    if called in self._returns:
                        return True
                elif dotted in _SAME:
                    waiting += [*part.args, *(k.value for k in part.keywords)]
                elif dotted is None and isinstance(part.func, ast.Attribute) and part.func.attr != "to":
                    waiting.append(part.func.value)
        return False

    def check(self, module: Module, function: ast.FunctionDef, report: Report) -> None:
        """Report addresses that are used as numbers, types of addresses that are used as such, and assembly that does
        more than compute."""
        self.check_types(module, function, report)
        for node in _inside(function):
            if isinstance(node, ast.Call):
                self._check_call(module, function, node, report)
            elif self._asks_for_address(module, function, node):
                message = f"{quoted(node)} hands an address to what may be host code; compare numbers"
                report.at("address", module, node, message)

    def _asks_for_address(self, module: Module, kernel: ast.FunctionDef, node: ast.AST) -> bool:
        """Whether an expression is `x_ptr in C`, where an instance of the pass may keep what it is asked for."""
        if not isinstance(node, ast.Compare) or not any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            return False
        return any(self._is_address(module, kernel, side) for side in (node.left, *node.comparators[:-1]))

    def check_types(self, module: Module, function: ast.FunctionDef, report: Report) -> None:
        """Report types of addresses to which a number could be converted."""
        nodes = _inside(function)
        parents = {id(child): node for node in nodes for child in children(node)}
        bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        plain = {p.arg for p in parameters(function)} - bound if function not in self._handed else set()
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr in _TYPED and module.dotted(node) is None:
                above = parents.get(id(node))
                single = isinstance(node.value, ast.Name) and node.value.id in plain
                harmless = isinstance(above, ast.Compare) or (
                    isinstance(above, ast.Attribute)
                    and (above.attr in _HARMLESS[node.attr] or (single and above.attr == "element_ty"))
                )
                if not harmless and self._is_address(module, function, node.value):
                    instead = f"{quoted(node.value)}.dtype.element_ty"
                    message = f"{quoted(node)} is the type of an address; write {instead}"
                    report.at("address", module, node, message)

    def _check_call(self, module: Module, function: ast.FunctionDef, node: ast.Call, report: Report) -> None:
        dotted = module.dotted(node.func)
        if dotted == ASSEMBLY and (message := fault(node)) is not None:
            report.at("assembly", module, node, message)
        given = [*node.args, *(k.value for k in node.keywords)]
        if dotted in _ALIKE and self._mixes(module, function, node, _ALIKE[dotted]):
            message = f"{quoted(node)} would take a number for an address; give it addresses alone or numbers"
            report.at("address", module, node, message)
        if callee(self._modules, module, node.func) is not None or dotted in _SAME | _SHOWS:
            given = []
        elif dotted in _ACCESS:
            given = given[1:] if node.args else [k.value for k in node.keywords if k.arg not in ("pointer", "base")]
        elif dotted is None and isinstance(node.func, ast.Attribute) and f"{_TL}{node.func.attr}" not in _SAME:
            given.append(node.func.value)
        for value in given:
            if self._is_address(module, function, value):
                message = f"{quoted(value)} may be an address, which is no number; use it in tl.load and tl.store, or"
                message += " launch the kernel by its name with each argument written out"
                report.at("address", module, node, message)
                return

    def _mixes(self, module: Module, function: ast.FunctionDef, node: ast.Call, aside: tuple[str, ...]) -> bool:
        """Whether arguments of a call, but for those that are put `aside`, may be addresses beside numbers."""
        named = [k.value for k in node.keywords if k.arg not in aside]
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            return any(self._is_address(module, function, value) for value in (*node.args, *named))
        left = len([name for name in aside if all(k.arg != name for k in node.keywords)])
        return len({self._is_address(module, function, value) for value in (*node.args[left:], *named)}) > 1


def _inside(kernel: ast.FunctionDef) -> list[ast.AST]:
    """Nodes of a kernel's body. Its decorators and defaults are host code, with names of their own."""
    return [node for statement in kernel.body for node in walk(statement)]


_BINDING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.comprehension, ast.Return, ast.Call)


def callee(modules: dict[str, Module], module: Module, node: ast.expr) -> ast.FunctionDef | None:
    """The kernel of the pass that an expression in a kernel names."""
    dotted = module.dotted(node)
    place = module.sibling_function(dotted) if dotted else None
    if place is not None:
        other = modules.get(place[0])
        return other.kernels.get(place[1]) if other else None
    return module.kernels.get(node.id) if isinstance(node, ast.Name) else None


def _given(kernel: ast.FunctionDef, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The parameters of a kernel and what a call in another hands to each. What is unpacked from `*values` or
    `**values` may go to any, and what no parameter is left for goes to the one that collects."""
    order = names_by_place(kernel)
    names = {p.arg for p in parameters(kernel)}
    starred = False
    for number, value in enumerate(call.args):
        starred |= isinstance(value, ast.Starred)
        if starred:
            yield from ((name, value) for name in names)
        elif number < len(order):
            yield order[number], value
        elif kernel.args.vararg is not None:
            yield kernel.args.vararg.arg, value
    for keyword in call.keywords:
        if keyword.arg in names:
            yield keyword.arg, keyword.value
        elif keyword.arg is None:
            yield from ((name, keyword.value) for name in names)
        elif kernel.args.kwarg is not None:
            yield kernel.args.kwarg.arg, keyword.value


def base_parameters(
    modules: dict[str, Module], module: Module, kernel: ast.FunctionDef, known: dict[ast.FunctionDef, set[str]]
) -> set[str]:
    """Parameters of a kernel that it, or a kernel that it calls, adds up to an address; `known` holds those found
    before."""
    if kernel in known:
        return known[kernel]
    known[kernel] = set()
    assigned: dict[str, list[ast.expr]] = {}
    waiting: list[ast.expr] = []
    for node in _inside(kernel):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in (n.id for n in walk(target) if isinstance(n, ast.Name)):
                    assigned.setdefault(name, []).append(node.value)
        elif isinstance(node, ast.Call):
            called = callee(modules, module, node.func)
            if module.dotted(node.func) in _ACCESS:
                waiting += node.args[:1] or [k.value for k in node.keywords if k.arg in ("pointer", "base")]
            elif called is not None:
                home = next(m for m in modules.values() if m.kernels.get(called.name) is called)
                inside = base_parameters(modules, home, called, known)
                waiting += [value for name, value in _given(called, node) if name in inside]
    names = {p.arg for p in parameters(kernel)}
    seen: set[str] = set()
    met: set[ast.expr] = set()  # several names may be bound to one expression
    while waiting:
        part = waiting.pop()
        if part in met:
            continue
        met.add(part)
        if isinstance(part, ast.Name) and part.id not in seen:
            seen.add(part.id)
            waiting += assigned.get(part.id, [])
        elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add | ast.Sub):
            waiting += [part.left, part.right]
        elif isinstance(part, ast.IfExp):
            waiting += [part.body, part.orelse]
        elif isinstance(part, ast.Tuple | ast.List):
            waiting += part.elts
        elif isinstance(part, ast.Subscript):
            waiting.append(part.value)
        elif isinstance(part, ast.Call) and module.dotted(part.func) in _SAME:
            waiting += part.args
    known[kernel] = seen & names
    return known[kernel]


def is_constant(parameter: ast.arg) -> bool:
    """Whether a kernel's parameter is a `tl.constexpr`; `kernels.py` refuses what only looks like one."""
    node = parameter.annotation
    text = node.value if isinstance(node, ast.Constant) else written_name(node) if node is not None else ""
    return text in CONSTEXPR


CONSTEXPR = frozenset(("constexpr", "tl.constexpr", "triton.language.constexpr"))
