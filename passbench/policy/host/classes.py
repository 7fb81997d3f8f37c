"""The static policy on classes of a pass: plain data and helpers, whose members no other object has by name."""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from passbench.policy import allowlists as names
from passbench.policy.flow.class_parts import (
    assigned_to_self,
    class_fields,
    decorator_names,
    is_plain,
    is_property,
    is_setter,
    members_of,
)
from passbench.policy.forms import comparisons, decorators
from passbench.policy.library_members import is_of_plain_objects, is_taken, is_usable, may_be_both
from passbench.policy.modules import Module, Report, is_builtin
from passbench.policy.nodes import assigned_by, bound_by, quoted, walk, written_name
from passbench.policy.scopes import parameters
from passbench.policy.steps import Steps
from passbench.policy.suggestions import advice_on


class Lineages:
    """Classes of a pass with those that each derives from, as far as they are the pass's, in the order in which Python
    looks for a member."""

    def __init__(self, modules: dict[str, Module], steps: Steps) -> None:
        self._modules, self._steps = modules, steps
        self._known: dict[ast.ClassDef, list[ast.ClassDef]] = {}

    def of(self, home: Module, own: ast.ClassDef) -> list[ast.ClassDef]:
        """The class itself comes first. Each that is found is a step."""
        waiting, begun = [(home, own)], set()
        while waiting:
            home, one = waiting.pop()
            if one in self._known:
                continue
            bases = list(self._bases(home, one))
            unknown = [base for base in bases if base[1] not in self._known]
            if unknown and one not in begun:
                begun.add(one)
                waiting += [(home, one), *unknown]
                continue
            orders = [self._known.get(base, [base]) for _, base in bases]  # one may derive from itself
            self._known[one] = [one, *self._merged([*orders, [base for _, base in bases]])]
            self._steps.take(len(self._known[one]))
        return self._known[own]

    def _bases(self, home: Module, own: ast.ClassDef) -> Iterator[tuple[Module, ast.ClassDef]]:
        for base in own.bases:
            place = home.sibling_function(home.dotted(base) or "")
            if place is not None and place[0] in self._modules:
                home_of_base, name = self._modules[place[0]], place[1]
            else:
                home_of_base, name = home, base.id if isinstance(base, ast.Name) else ""
            if name in home_of_base.classes:
                yield home_of_base, home_of_base.classes[name]

    def _merged(self, orders: list[list[ast.ClassDef]]) -> list[ast.ClassDef]:
        """The first class that is no later one of any order, again and again. Without such a one Python makes no
        class."""
        if len(orders) == 2:
            return orders[0]
        found: list[ast.ClassDef] = []
        while orders := [order for order in orders if order]:
            self._steps.take(sum(map(len, orders)))
            later = {one for order in orders for one in order[1:]}
            first = next((order[0] for order in orders if order[0] not in later), orders[0][0])
            found.append(first)
            orders = [[one for one in order if one is not first] for order in orders]
        return found


def is_enumeration(bases: Iterable[str]) -> bool:
    """Whether a class with these bases, by full names, is an enumeration."""
    return any(base.startswith("enum.") for base in bases)


def members(
    modules: dict[str, Module],
) -> tuple[frozenset[str], dict[str, list[ast.FunctionDef]], dict[str, list[ast.FunctionDef]]]:
    """Names of fields and methods of all classes, and the methods by name. Then those names of which other objects have
    members, too, with the methods of that name: what is known to be an instance has them."""
    fields: set[str] = set()
    methods: dict[str, list[ast.FunctionDef]] = {}
    for module in modules.values():
        for own in module.classes.values():
            for statement in own.body:
                if isinstance(statement, ast.FunctionDef):
                    methods.setdefault(statement.name, []).append(statement)
                    fields |= set(assigned_to_self(statement))
            fields |= set(class_fields(own))
    named = fields | methods.keys()
    allowed = {n for n in named if not is_taken(n, field=n not in methods) and not n.startswith("__")}
    others = {n for n in named - allowed if not n.startswith("__") and (may_be_both(n) or not is_usable(n))}
    shared = {n: methods.get(n, []) for n in others}
    known = {n: found for n, found in methods.items() if n in allowed or n in names.CLASS_METHODS}
    return frozenset(allowed), known, shared


def kernels_of_classes(modules: dict[str, Module]) -> dict[str, ast.FunctionDef]:
    """Fields that one class binds once, to a kernel of its module by its name, and that nothing else binds: wherever an
    instance or a class of the pass has the field, it is the kernel."""
    bound: Counter[str] = Counter()
    found: dict[str, ast.FunctionDef] = {}
    for module in modules.values():
        for own in module.classes.values():
            names_in_class = Counter(name for _, name in members_of(own))
            bound.update(names_in_class)
            for s in own.body:
                value = s.value if isinstance(s, ast.Assign) and len(s.targets) == 1 else None
                kernel = module.kernels.get(value.id) if isinstance(value, ast.Name) else None
                if kernel is not None and isinstance(s.targets[0], ast.Name) and value.id not in names_in_class:
                    found[s.targets[0].id] = kernel
    return {name: kernel for name, kernel in found.items() if bound[name] == 1}


def check_class(module: Module, own: ast.ClassDef, report: Report, *, inherits: bool) -> None:
    """A class has plain bases, fields and methods, and names that host code uses on no other object. `inherits`: it has
    members of a library's class, so that its fields have no name of those either."""
    mixes = _mixes_in(module, own)
    for base in own.bases:
        dotted = module.dotted(base) or written_name(base)
        place = module.sibling_function(dotted)
        of_python = isinstance(base, ast.Name) and base.id not in module.names_bound  # or a variable of the pass
        mixed_in = mixes and of_python and base.id in _MIXED_IN
        if getattr(own, "is_unused", False) and dotted in names.BASES_OF_UNUSED - module.globals:
            continue
        listed = dotted in names.CLASS_BASES and (of_python or module.dotted(base) is not None)
        if not listed and dotted not in module.classes and place is None and not mixed_in:
            advice = advice_on(dotted) or "write a function or a dataclass"
            message = f"a class of a pass may not derive from {dotted or quoted(base)}; {advice}"
            report.at("module_statement", module, own, message)
    total = [k.arg for k in own.keywords] == ["total"] and isinstance(own.keywords[0].value, ast.Constant)
    of_keys = total and [module.dotted(base) for base in own.bases] == ["typing.TypedDict"]
    if (own.keywords and not of_keys) or getattr(own, "type_params", None):
        report.at("module_statement", module, own, "a class of a pass has no metaclass and no keywords")
    for decorator in own.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if module.dotted(target) not in names.CLASS_DECORATORS:
            advice = advice_on(module.dotted(target) or "") or "leave it out, or write a function that makes instances"
            message = f"decorator {quoted(target)} is not allowed on a class; {advice}"
            report.at("decorator", module, own, message)
        elif fault := decorators.fault_of_call(decorator, module.dotted(target) or "", module.literals):
            report.at("decorator", module, own, fault)
    for statement in own.body:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not (docstring or isinstance(statement, ast.FunctionDef | ast.Assign | ast.AnnAssign | ast.Pass)):
            report.at("module_statement", module, statement, "a class holds fields and methods; write others beside it")
    if any(module.dotted(base) == names.FUNCTION for base in own.bases):
        _check_function(module, own, report)
    foreign = "" if not inherits else f"{own.name} has members of a library's class, which says what is equal"
    for statement in own.body:
        for name in filter(_is_called_by_python, bound_by(statement)):
            if not isinstance(statement, ast.FunctionDef) and not _leaves_out_hash(statement):
                message = f"Python calls {name}, and makes of what it returns what it likes; write def {name}(self, …)"
                report.at("private_name", module, statement, message)
        if not isinstance(statement, ast.FunctionDef):
            continue
        if statement.name == "__post_init__" and len(parameters(statement)) > 1:
            message = "__post_init__ takes self alone; read what the fields hold"
            report.at("module_statement", module, statement, message)
        if statement.name in ("__eq__", "__hash__"):
            own_names = "isinstance and type are Python's" if module.names_bound & {"isinstance", "type"} else ""
            if fault := comparisons.fault(statement, own) or own_names or foreign:
                report.at("private_name", module, statement, fault)
        if statement.name in names.CLASS_METHODS and not is_plain(statement):
            message = f"Python calls {statement.name} on an instance; leave its decorators out"
            report.at("decorator", module, statement, message)
    defined = [s for s in own.body if isinstance(s, ast.FunctionDef) and not is_setter(s)]
    bound = Counter([*class_fields(own), *(s.name for s in defined)])
    for name in sorted({s.name for s in defined if bound[s.name] > 1}):
        report.at("rebinding", module, own, f"{own.name} has {name} twice; choose another name")
    for node in walk(own):
        for name in filter(_is_renamed, _written(node)):
            message = f"Python has another name for {name} in a class; choose one without two underscores before it"
            report.at("private_name", module, node, message)
    others = (module.imports, module.globals, module.declared_global)
    for name in sorted(_bound_in(own) & _read_in(own)):
        if any(name in known for known in others) or is_builtin(name):
            message = f"{name} means something outside of the class, too; choose another name for what the class holds"
            report.at("rebinding", module, own, message)
    for node in (n for part in _run_in(own) for n in walk(part) if isinstance(n, ast.NamedExpr)):
        report.at("module_statement", module, node, "a class binds its fields by assignments; write NAME = … for each")
    methods = {s.name for s in own.body if isinstance(s, ast.FunctionDef)}
    for name in own_fields(own.body):
        if name.startswith(("_dflt_", "_HAS_DEFAULT")):  # names in the text of the `__init__` that Python writes for it
            report.at("rebinding", module, own, f"a data class has a {name} of its own; choose another name")
    for node, name in members_of(own):
        special = name.startswith("_") and name.endswith("_")
        if special and name not in names.CLASS_METHODS | {"__slots__"}:
            advice = advice_on(name) or "write a method of another name, and call that"
            report.at("private_name", module, node, f"{name} may not be defined in a pass; {advice}")
        elif (
            not special
            and is_taken(name, field=name not in methods)
            and (
                (is_usable(name) and (inherits or not may_be_both(name)))
                or (inherits and name not in methods and is_of_plain_objects(name))
            )
        ):
            report.at("rebinding", module, node, f"objects of libraries have a member {name}; choose another name")


def _is_called_by_python(name: str) -> bool:
    """Whether Python calls a member of this name unseen. Whatever `__call__` holds is called where an instance is."""
    return name in names.CLASS_METHODS - {"__call__"}


def _leaves_out_hash(statement: ast.stmt) -> bool:
    """`__hash__ = None`: instances are no keys."""
    value = getattr(statement, "value", None)
    named = [t.id for t in assigned_by(statement) if isinstance(t, ast.Name)]
    return named == ["__hash__"] and isinstance(value, ast.Constant) and value.value is None


_MIXED_IN = frozenset(("str", "int"))
"""Built-in types that an enumeration may derive from, as in `class Route(str, Enum)`."""


def _mixes_in(module: Module, own: ast.ClassDef) -> bool:
    """Whether a class is an enumeration whose members are constants: of anything else one of `_MIXED_IN` would make a
    text or a number."""
    values = (s.value for s in own.body if isinstance(s, ast.Assign | ast.AnnAssign) and s.value is not None)
    constant = all(isinstance(v, ast.Constant) or _is_auto(module, v) for v in values)
    return constant and is_enumeration(module.dotted(base) or "" for base in own.bases)


def _is_auto(module: Module, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and module.dotted(value.func) == "enum.auto"


def _bound_in(own: ast.ClassDef) -> set[str]:
    """Names that the statements of a class bind; within the class each means that from there on."""
    bound = {s.name for s in own.body if isinstance(s, ast.FunctionDef)}
    rest = (n for s in own.body if not isinstance(s, ast.FunctionDef) for n in walk(s))
    return bound | {n.id for n in rest if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _run_in(own: ast.ClassDef) -> Iterator[ast.expr]:
    """What runs where the class is made: values of fields, decorators and defaults of methods."""
    for s in own.body:
        if isinstance(s, ast.FunctionDef):
            yield from (*s.decorator_list, *s.args.defaults, *(d for d in s.args.kw_defaults if d is not None))
        elif isinstance(s, ast.Assign | ast.AnnAssign) and s.value is not None:
            yield s.value


def _read_in(own: ast.ClassDef) -> set[str]:
    """Names that are read where the class is made."""
    nodes = (n for part in _run_in(own) for n in walk(part))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _check_function(module: Module, own: ast.ClassDef, report: Report) -> None:
    """A `torch.autograd.Function` has a static `forward` that gets a context, and a `backward` that nobody calls: what
    else torch looks for in it would get arguments that the policy has not followed."""
    for statement in own.body:
        if isinstance(statement, ast.FunctionDef):
            static = decorator_names(statement) <= {"staticmethod"}
            fits = statement.name in ("forward", "backward") and static
        else:
            bound = {n.id for n in walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            fits = not any(hasattr(torch.autograd.Function, name) for name in bound)
        if not fits:
            message = "an autograd function has a static forward(ctx, ...) and backward; write a function for the rest"
            report.at("module_statement", module, statement, message)


def _written(node: ast.AST) -> Iterator[str]:
    """The names that a node of the syntax tree has."""
    for field in ("id", "attr", "arg", "name", "asname"):
        if isinstance(found := getattr(node, field, None), str):
            yield found


def _is_renamed(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def own_fields(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """Names of the fields that a dataclass or a named tuple with these statements is made with, in order."""
    annotated = (s.target for s in statements if isinstance(s, ast.AnnAssign))
    return (target.id for target in annotated if isinstance(target, ast.Name))


def names_stored(modules: dict[str, Module]) -> Iterator[str]:
    """Names that the pass binds to an attribute of anything, or in the statements of a class to what is no method, or
    to a property."""
    for module in modules.values():
        for node in walk(module.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.attr
            elif isinstance(node, ast.ClassDef):
                yield from class_fields(node)
                yield from (s.name for s in node.body if isinstance(s, ast.FunctionDef) and is_property(s))


def fields_of(own: ast.ClassDef) -> set[str]:
    """Names that the statements of a class bind to a value and to no method."""
    valued = (s for s in own.body if not isinstance(s, ast.AnnAssign) or s.value is not None)
    named = {name for s in valued for name in class_fields(ast.ClassDef(own.name, [], [], [s], []))}
    return named - {s.name for s in own.body if isinstance(s, ast.FunctionDef)}


MAKING = frozenset(("__init__", "__post_init__"))
"""Methods that Python calls on a new instance. A pass calls them on `self` alone."""


def bound_by_methods(own: ast.ClassDef) -> set[str]:
    """Names of the fields that methods of a class bind, those aside that make an instance."""
    methods = (s for s in own.body if isinstance(s, ast.FunctionDef) and s.name not in MAKING)
    return {name for method in methods for name in assigned_to_self(method)}


_WITH_KEYS = frozenset(("typing.NamedTuple", "typing.TypedDict"))


@dataclass(frozen=True)
class ClassFacts:
    """`initial`: the `__init__` of the pass that makes instances; `by_fields`: what they are made with is what their
    `fields` hold, of the bases too; `defaults` of these; `methods` of the class itself by name. `compares`: instances
    are equal where their fields are, as those of data classes and tuples; `has_text`: their text has no address, nor
    has what `repr` makes of them; `is_error` and `is_enumeration`: which kind of class it is."""

    initial: ast.FunctionDef | None
    by_fields: bool
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
    """The facts of a class; `ancestors` are it and those of the pass that it derives from, in Python's order, `home`
    their modules."""
    statements = [s for one in ancestors for s in one.body]
    functions = [s for s in statements if isinstance(s, ast.FunctionDef)]
    bases = {home(one).dotted(base) or "" for one in ancestors for base in one.bases}
    built_in = ((one, base.id) for one in ancestors for base in one.bases if isinstance(base, ast.Name))
    written = {name for one, name in built_in if name not in home(one).names_bound}
    decorators = [(home(one), d) for one in ancestors for d in one.decorator_list]
    methods: dict[str, tuple[ast.FunctionDef, ...]] = {}
    for s in own.body:
        if isinstance(s, ast.FunctionDef):
            methods[s.name] = (*methods.get(s.name, ()), s)
    initial, generated = _initial(ancestors, home)
    return ClassFacts(
        initial=initial,
        by_fields=initial is None or generated or bool(bases & _WITH_KEYS),
        fields=tuple(own_fields(statements)),
        defaults=tuple(s.value for s in statements if isinstance(s, ast.AnnAssign) and s.value is not None),
        methods=methods,
        compares=bool(bases & _WITH_KEYS) or any(_is_dataclass(module, d) for module, d in decorators),
        has_text=any(s.name == "__repr__" for s in functions)
        or bool(bases & names.BASES_WITH_TEXT)
        or bool(written & names.ERRORS)
        or any(_gives_text(module, d) for module, d in decorators),
        is_error=bool(written & names.ERRORS),
        is_enumeration=is_enumeration(bases),
    )


def _initial(
    ancestors: Sequence[ast.ClassDef], home: Callable[[ast.ClassDef], Module]
) -> tuple[ast.FunctionDef | None, bool]:
    """The `__init__` that Python finds first, and whether it may find one before that a decorator has made."""
    generated = False
    for one in ancestors:
        written = next((s for s in one.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None)
        if written is not None:
            return written, generated
        made = [d for d in one.decorator_list if _is_dataclass(home(one), d)]
        generated |= bool(made)
        if any(not isinstance(d, ast.Call) or all(k.arg not in ("init", None) for k in d.keywords) for d in made):
            break
    return None, generated


def _is_dataclass(module: Module, decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return module.dotted(target) == "dataclasses.dataclass"


def _gives_text(module: Module, decorator: ast.expr) -> bool:
    """Whether a decorator of a class gives its instances a text of their fields."""
    if isinstance(decorator, ast.Call):
        return not any(keyword.arg in ("repr", None) for keyword in decorator.keywords)
    return _is_dataclass(module, decorator)
