"""The static policy on names: what is bound to them, what containers hold, and what Triton hands in."""

import ast

from passbench.policy.modules import Module, Report, is_builtin
from passbench.policy.scopes import Kinds, Scope, ValueKind, defaults, open_scope, parameters

COMPUTE_ADVICE = "do it in a @triton.jit kernel"


class Bindings:
    """Kinds of variables over all modules; reports only once `report` is set, when the kinds are final."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.modules = modules
        self.kinds = Kinds()
        self.report: Report | None = None
        self.scopes = {name: open_scope(module, module.tree, None) for name, module in modules.items()}
        for name, module in modules.items():
            module.globals |= self.scopes[name].names
        self.escaped: set[ast.FunctionDef] = set()  # host functions used as values: they may get tensors
        self.hooks: set[ast.FunctionDef | ast.Lambda] = set()  # called by Triton, with a launch's arguments
        self.special: set[ast.FunctionDef] = set()  # `pattern` and the like, which have rules of their own
        self.shared: set[tuple[ast.AST, str]] = set()  # variables that may be another name of another's container

    def find(self, rule: str, module: Module, node: ast.AST, message: str) -> None:
        """Note a breach."""
        if self.report is not None:
            self.report.at(rule, module, node, message)

    def check_free(self, name: str, node: ast.AST, scope: Scope) -> None:
        """An import keeps its meaning throughout the module."""
        if name in scope.module.imports:
            self.find("rebinding", scope.module, node, f"{name} is an import; choose another name")

    def assign(self, target: ast.expr, kind: ValueKind, scope: Scope, value: ast.expr | None) -> None:
        """Bind a target; tuples element by element where both sides are written out."""
        if isinstance(target, ast.Name):
            self.check_free(target.id, target, scope)
            owner = scope.find(target.id) or self.scopes[scope.module.name]
            module_level = isinstance(owner.node, ast.Module)
            taken = target.id in owner.functions or (module_level and target.id in scope.module.kernels)
            fixed = owner.hook and target.id in {p.arg for p in parameters(owner.node)}
            if taken or fixed or (module_level and is_builtin(target.id)):
                message = f"{target.id} is a function, a built-in or what Triton hands in; choose another name"
                self.find("rebinding", scope.module, target, message)
            if value is None or not _is_new(value, scope):
                self.shared.add((owner.node, target.id))
            self.kinds.join(owner.node, target.id, kind)
        elif isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for number, element in enumerate(target.elts):
                item = value.elts[number] if same else None
                self.assign(element, self.kind(item, scope) if same else kind.item(), scope, item)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.holder([kind]), scope, None)
        elif isinstance(target, ast.Subscript):
            self.index(target, scope)
            if self.kind(target.value, scope) is ValueKind.TENSOR or scope.hook:
                message = f"writing into a tensor in host code; {COMPUTE_ADVICE}"
                self.find("tensor_operator", scope.module, target, message)
            else:
                self.put_into(target.value, kind, scope)
        else:
            message = "a pass assigns to its own names only, not to attributes of other objects"
            self.find("attribute_assignment", scope.module, target, message)

    def put_into(self, container: ast.expr, kind: ValueKind, scope: Scope) -> None:
        """Something of this kind is put into a container. Tensors only into one that has a single name to begin with:
        what is read through its other names is then known to hold tensors too."""
        if not kind:
            return
        owner = scope.find(container.id) if isinstance(container, ast.Name) else None
        if owner is not None:
            self.kinds.join(owner.node, container.id, ValueKind.HOLDER)
            handed_in = not isinstance(owner.node, ast.Module) and container.id in {
                p.arg for p in parameters(owner.node)
            }
            if not handed_in and (owner.node, container.id) not in self.shared:
                return
        advice = "put tensors into a list or dict of this module by the name under which it was made"
        self.find("container", scope.module, container, f"{ast.unparse(container)} may be another's; {advice}")

    def enter(self, node: ast.FunctionDef | ast.Lambda, scope: Scope, kind: ValueKind) -> None:
        """What parameters can be at least: of this kind, their defaults, and what Triton hands in if it is a hook."""
        for parameter, default in defaults(node):
            self.kinds.join(node, parameter.arg, self.kind(default, scope))
        for number, parameter in enumerate(parameters(node)):
            starred = parameter in (node.args.vararg, node.args.kwarg)
            if node in self.hooks:  # a dict of arguments, configurations and one, or keywords
                kind = ValueKind.HOLDER if starred or number < 2 else ValueKind.TENSOR
            self.kinds.join(node, parameter.arg, max(kind, ValueKind.HOLDER) if starred else kind)

    def mark_hook(self, function: ast.FunctionDef | ast.Lambda) -> None:
        if function not in self.hooks:
            self.hooks.add(function)
            self.kinds.changed = True

    def iterate(self, target: ast.expr, iterable: ast.expr, scope: Scope) -> None:
        """Bind what a loop takes from an iterable; `enumerate` and `zip` are seen through."""
        call = iterable if isinstance(iterable, ast.Call) and not iterable.keywords else None
        name = call.func.id if call is not None and isinstance(call.func, ast.Name) else None
        if name not in ("enumerate", "zip") or scope.find(name) is not None or not isinstance(target, ast.Tuple):
            self.assign(target, self.kind(iterable, scope).item(), scope, None)
            return
        items = [self.kind(a, scope).item() for a in call.args]
        parts = items if name == "zip" else [ValueKind.SCALAR, *items[:1]]
        plain = len(parts) == len(target.elts) and not any(isinstance(a, ast.Starred) for a in call.args)
        for number, element in enumerate(target.elts):
            self.assign(element, parts[number] if plain else max([*items, ValueKind.SCALAR]), scope, None)

    def launched(self, name: str) -> ValueKind:
        """What kernels of the pass may get as the argument of this name."""
        kernels = [kernel for module in self.modules.values() for kernel in module.kernels.values()]
        return max((self.kinds.get(kernel, name) for kernel in kernels), default=ValueKind.SCALAR)

    @staticmethod
    def holder(kinds: list[ValueKind]) -> ValueKind:
        return ValueKind.HOLDER if any(kinds) else ValueKind.SCALAR

    def kind(self, node: ast.expr, scope: Scope, *, hook: bool = False, bound: bool = False) -> ValueKind:
        """The kind of an expression; see `passbench.policy.expressions`."""
        raise NotImplementedError

    def index(self, node: ast.Subscript, scope: Scope) -> None:
        """Check a subscript; see `passbench.policy.expressions`."""
        raise NotImplementedError


def _is_new(value: ast.expr, scope: Scope) -> bool:
    """Whether an expression's value has no other name."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in ("list", "dict", "set", "tuple") and scope.find(value.func.id) is None
    displays = ast.List | ast.Dict | ast.Set | ast.Tuple | ast.ListComp | ast.DictComp | ast.SetComp
    return isinstance(value, displays | ast.Constant | ast.BinOp)
