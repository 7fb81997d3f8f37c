"""What the policy asks of a class at every use of it, told once from the class and those that it derives from."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from passbench.policy import allowlists as names
from passbench.policy.host.classes import is_enumeration, own_fields
from passbench.policy.modules import Module

_WITH_KEYS = frozenset(("typing.NamedTuple", "typing.TypedDict"))


@dataclass(frozen=True)
class ClassFacts:
    """`initial`: the `__init__` of the pass that makes instances; `fields`: what they are made with otherwise, in
    order; `defaults` of these; `methods` of the class itself by name. `compares`: instances are equal where their
    fields are, as those of data classes and tuples; `has_text`: their text has no address; `is_error` and
    `is_enumeration`: which kind of class it is."""

    initial: ast.FunctionDef | None
    fields: tuple[str, ...]
    defaults: tuple[ast.expr, ...]
    methods: dict[str, tuple[ast.FunctionDef, ...]]
    compares: bool
    has_text: bool
    is_error: bool
    is_enumeration: bool


def facts_of(
    own: ast.ClassDef, ancestors: Sequence[ast.ClassDef], home: Callable[[ast.ClassDef], Module]
) -> ClassFacts:
    """The facts of a class; `ancestors` are it and those of the pass that it derives from, `home` their modules."""
    statements = [s for one in ancestors for s in one.body]
    functions = [s for s in statements if isinstance(s, ast.FunctionDef)]
    bases = {home(one).dotted(base) or "" for one in ancestors for base in one.bases}
    written = {base.id for one in ancestors for base in one.bases if isinstance(base, ast.Name)}
    decorators = [(home(one), d) for one in ancestors for d in one.decorator_list]
    methods: dict[str, tuple[ast.FunctionDef, ...]] = {}
    for s in own.body:
        if isinstance(s, ast.FunctionDef):
            methods[s.name] = (*methods.get(s.name, ()), s)
    return ClassFacts(
        initial=next((s for s in functions if s.name == "__init__"), None),
        fields=tuple(own_fields(statements)),
        defaults=tuple(s.value for s in statements if isinstance(s, ast.AnnAssign) and s.value is not None),
        methods=methods,
        compares=bool(bases & _WITH_KEYS) or any(_is_dataclass(module, d) for module, d in decorators),
        has_text=any(s.name in ("__str__", "__repr__") for s in functions)
        or bool(bases & names.BASES_WITH_TEXT)
        or bool(written & names.ERRORS)
        or any(_gives_text(module, d) for module, d in decorators),
        is_error=bool(written & names.ERRORS),
        is_enumeration=is_enumeration(bases),
    )


def _is_dataclass(module: Module, decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return module.dotted(target) == "dataclasses.dataclass"


def _gives_text(module: Module, decorator: ast.expr) -> bool:
    """Whether a decorator of a class gives its instances a text of their fields."""
    if isinstance(decorator, ast.Call):
        return not any(keyword.arg in ("repr", None) for keyword in decorator.keywords)
    return _is_dataclass(module, decorator)
