"""Scopes of host code and what their variables can be, for the static policy."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from passbench.policy.modules import Module


class ValueKind(IntEnum):
    """What an expression can be; ordered, so that `max` joins."""

    SCALAR = 0  # no tensor, and none inside
    HOLDER = 1  # a container that may hold tensors
    TENSOR = 2

    def item(self) -> "ValueKind":
        """What comes out of it by subscript or iteration."""
        return ValueKind.TENSOR if self else ValueKind.SCALAR


class Kinds:
    """The kind of every variable, parameter and function result; they only grow."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[ast.AST, str], ValueKind] = {}
        self.changed = False

    def get(self, scope: ast.AST, name: str) -> ValueKind:
        """What is known so far; SCALAR for what is never assigned."""
        return self._kinds.get((scope, name), ValueKind.SCALAR)

    def join(self, scope: ast.AST, name: str, kind: ValueKind) -> None:
        """Take in one more value."""
        if kind > self._kinds.get((scope, name), ValueKind.SCALAR):
            self._kinds[scope, name] = kind
            self.changed = True


RETURN = "return"
"""The name under which `Kinds` keeps a function's result; no variable can be called so."""


@dataclass
class Scope:
    """A module, function or lambda. `functions`: host functions defined in it; `lambdas`: variables that are one;
    `clashes`: functions whose name is bound twice. `hook`: Triton calls it."""

    module: Module
    node: ast.Module | ast.FunctionDef | ast.Lambda
    parent: "Scope | None" = None
    names: set[str] = field(default_factory=set)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    lambdas: dict[str, list[ast.Lambda]] = field(default_factory=dict)
    clashes: list[ast.FunctionDef] = field(default_factory=list)
    hook: bool = False

    def find(self, name: str) -> "Scope | None":
        """The scope that a name belongs to, None if it is no variable of the module."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope
            scope = scope.parent
        return None


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run in the scope of `node`: of functions and lambdas within, their decorators and defaults alone."""
    for child in node.body if isinstance(node, ast.FunctionDef) else ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.FunctionDef | ast.Lambda | ast.AsyncFunctionDef):
            outer = [*child.args.defaults, *(d for d in child.args.kw_defaults if d is not None)]
            for part in [*outer, *getattr(child, "decorator_list", [])]:
                yield part
                yield from own_nodes(part)
        elif not isinstance(child, ast.ClassDef):
            yield from own_nodes(child)


def open_scope(
    module: Module, node: ast.Module | ast.FunctionDef | ast.Lambda, parent: Scope | None, *, hook: bool = False
) -> Scope:
    """The scope of a module, function or lambda with the names that it binds."""
    scope = Scope(module, node, parent, hook=hook)
    shared: set[str] = set()
    if not isinstance(node, ast.Module):
        scope.names |= {a.arg for a in parameters(node)}
    defined = {a.arg for a in parameters(node)} if not isinstance(node, ast.Module) else set()
    for child in own_nodes(node):
        if isinstance(child, ast.Global):
            shared |= set(child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            scope.names.add(child.id)
        elif isinstance(child, ast.FunctionDef):
            if child.name in defined:
                scope.clashes.append(child)
            defined.add(child.name)
            scope.names.add(child.name)
            if child.name not in module.kernels:
                scope.functions[child.name] = child
        elif isinstance(child, ast.Assign) and isinstance(child.value, ast.Lambda):
            for target in child.targets:
                if isinstance(target, ast.Name):
                    scope.lambdas.setdefault(target.id, []).append(child.value)
    scope.names -= shared
    for name in shared:
        scope.lambdas.pop(name, None)
    return scope


def defaults(node: ast.FunctionDef | ast.Lambda) -> list[tuple[ast.arg, ast.expr]]:
    """Parameters that have a default, with it."""
    a = node.args
    positional = [*a.posonlyargs, *a.args]
    ends = list(zip(positional[::-1], a.defaults[::-1], strict=False))
    return [*ends, *((p, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None)]


def parameters(node: ast.FunctionDef | ast.Lambda) -> list[ast.arg]:
    """All parameters, starred ones last."""
    a = node.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x is not None)]
