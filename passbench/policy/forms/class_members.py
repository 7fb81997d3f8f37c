"""Members of classes that are kernels, or another name of a method, as the rest of the policy knows them.

A kernel in a class is one at the top of the module, of a name that no source can spell, which the class has as a field.
`__call__ = forward` is a method that calls the other. A `torch.nn.Module` that only has a `forward` is a class with
`__call__ = forward`.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable

from passbench.policy.nodes import bound_by

_TORCH_MODULES = frozenset(("torch.nn.Module", "torch.nn.modules.Module"))
_IN_CLASS = "{} of {}"
_MOST_WRITTEN = 20_000
"""Parameters of all methods of a module that are written for another name of one."""


def plain_name(kernel: str) -> str:
    """The name of a kernel as its source has it, which is what Triton calls it."""
    return kernel.partition(" ")[0]


def lift_class_kernels(tree: ast.Module, is_kernel: Callable[[ast.FunctionDef], bool]) -> None:
    """Put kernels that are members of a class before the class, in place. One stays where its decorators or defaults
    read what the class holds, and where a name in it means another one within a class."""
    body: list[ast.stmt] = []
    for own in tree.body:
        if isinstance(own, ast.ClassDef):
            bound = _bound(own)
            for number, member in enumerate(own.body):
                if not isinstance(member, ast.FunctionDef) or not is_kernel(member):
                    continue
                others = [d for d in member.decorator_list if not _is_static(d)]
                first_alone = others == member.decorator_list or _is_static(member.decorator_list[0])
                run = [*others, *member.args.defaults, *member.args.kw_defaults, *_annotations(member)]
                if bound[member.name] != 1 or not first_alone or bound.keys() & _read(run) or _has_private(member):
                    continue
                name = member.name
                member.name, member.decorator_list = _IN_CLASS.format(name, own.name), others
                value = ast.copy_location(ast.Name(member.name, ast.Load()), member)
                target = ast.copy_location(ast.Name(name, ast.Store()), member)
                own.body[number] = ast.copy_location(ast.Assign([target], value), member)
                member.__dict__.pop("_children", None)
                own.__dict__.pop("_children", None)
                body.append(member)
        body.append(own)
    tree.body = body


def call_by_other_names(tree: ast.Module) -> None:
    """`OTHER = METHOD` in a class whose method stands above, as `def OTHER(self, …): return self.METHOD(…)`, in place.
    Both names are bound once in the class."""
    left = _MOST_WRITTEN
    for own in tree.body:
        if not isinstance(own, ast.ClassDef):
            continue
        bound = _bound(own)
        methods: dict[str, ast.FunctionDef] = {}
        for number, member in enumerate(own.body):
            if isinstance(member, ast.FunctionDef) and not member.decorator_list and bound[member.name] == 1:
                methods[member.name] = member
            target = member.targets[0] if isinstance(member, ast.Assign) and len(member.targets) == 1 else None
            if not isinstance(target, ast.Name) or not isinstance(member.value, ast.Name) or bound[target.id] != 1:
                continue
            method = methods.get(member.value.id)
            made = None
            if method is not None and {method.name, target.id} == {"__repr__", "__str__"}:
                made = copy.deepcopy(method)  # of which nobody else writes a call
                made.name = target.id
            elif method is not None:
                left -= len(method.args.args)
                made = _calling(target.id, method, member) if left >= 0 else None
            if made is not None:
                own.body[number] = made
                own.__dict__.pop("_children", None)


def write_lambdas_as_methods(tree: ast.Module) -> None:
    """`__repr__ = lambda self: …` in a class as `def __repr__(self): return …`, in place."""
    for own in tree.body:
        for number, member in enumerate(own.body if isinstance(own, ast.ClassDef) else ()):
            match member:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as given) if name.startswith("__"):
                    returned = ast.copy_location(ast.Return(given.body), member)
                    made = ast.FunctionDef(name, given.args, [returned], [], None, None)
                    own.body[number] = ast.copy_location(made, member)
                    own.__dict__.pop("_children", None)


def write_bases(tree: ast.Module, dotted: Callable[[ast.expr], str | None]) -> None:
    """`class Cache(Generic[K, V])` as `class Cache`, and `Protocol[T]` as `Protocol`, in place: a base that says which
    types there are gives a class no members but those with two underscores, and so does `metaclass=ABCMeta`."""
    for own in (s for s in tree.body if isinstance(s, ast.ClassDef)):
        bases: list[ast.expr] = []
        for base in own.bases:
            named = dotted(base.value) if isinstance(base, ast.Subscript) and _are_names(base.slice) else None
            if named in ("typing.Protocol", "typing_extensions.Protocol"):
                bases.append(base.value)
            elif named not in ("typing.Generic", "typing_extensions.Generic"):
                bases.append(base)
        own.bases = bases
        if [k.arg for k in own.keywords] == ["metaclass"] and dotted(own.keywords[0].value) == "abc.ABCMeta":
            own.keywords = []
        own.__dict__.pop("_children", None)


def name_properties(tree: ast.Module, dotted: Callable[[ast.expr], str | None], imports: dict[str, str]) -> None:
    """`@cached`, where that stands for `functools.cached_property`, by that name, in place: the decorator's name
    tells what is read as an attribute."""
    for own in (s for s in tree.body if isinstance(s, ast.ClassDef)):
        for method in (s for s in own.body if isinstance(s, ast.FunctionDef)):
            for number, decorator in enumerate(method.decorator_list):
                if dotted(decorator) == _CACHED_PROPERTY:
                    imports[_CACHED_PROPERTY] = _CACHED_PROPERTY
                    named = ast.Name(_CACHED_PROPERTY, ast.Load())  # which no source can spell
                    method.decorator_list[number] = ast.copy_location(named, decorator)
                    method.__dict__.pop("_children", None)


_CACHED_PROPERTY = "functools.cached_property"


def _are_names(node: ast.expr) -> bool:
    return all(isinstance(part, ast.Name) for part in (node.elts if isinstance(node, ast.Tuple) else [node]))


def plain_torch_modules(tree: ast.Module, dotted: Callable[[ast.expr], str | None]) -> set[str]:
    """Write classes of the one base `torch.nn.Module` as classes without a base, in place, where they have a plain
    `forward`. Returns their names. `dotted` says what a name stands for that starts at an import."""
    found: set[str] = set()
    for own in tree.body:
        if not isinstance(own, ast.ClassDef) or len(own.bases) != 1 or own.keywords or own.decorator_list:
            continue
        if dotted(own.bases[0]) not in _TORCH_MODULES:
            continue
        methods = [s for s in own.body if isinstance(s, ast.FunctionDef)]
        forward = [s for s in methods if s.name == "forward" and not s.decorator_list]
        bound = _bound(own)
        stored = {n.attr for n in ast.walk(own) if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load)}
        if bound["forward"] != 1 or not forward or "forward" in stored or "__call__" in bound:
            continue
        called = _calling("__call__", forward[0], forward[0])
        if called is not None:
            own.bases, own.body = [], [*own.body, called]
            own.__dict__.pop("_children", None)
            found.add(own.name)
    return found


def _calling(name: str, method: ast.FunctionDef, place: ast.stmt) -> ast.FunctionDef | None:
    """A method of this name that hands on all of its arguments; None where they are not all plain parameters."""
    given = method.args
    order = [a.arg for a in given.args]
    constant = all(isinstance(default, ast.Constant) for default in given.defaults)
    if not order or given.posonlyargs or given.vararg or given.kwarg or given.kwonlyargs or not constant:
        return None
    called = ast.Attribute(ast.Name(order[0], ast.Load()), method.name, ast.Load())
    value = ast.Call(called, [ast.Name(p, ast.Load()) for p in order[1:]], [])
    defaults = [ast.Constant(default.value) for default in given.defaults]
    arguments = ast.arguments([], [ast.arg(p) for p in order], None, [], [], None, defaults)
    made = ast.FunctionDef(name, arguments, [ast.Return(value)], [], None, None)
    for node in ast.walk(made):
        if isinstance(node, ast.expr | ast.stmt | ast.arg):
            ast.copy_location(node, place)
    return made


def _bound(own: ast.ClassDef) -> Counter[str]:
    """How often each name is bound by the statements of a class."""
    return Counter(name for member in own.body for name in bound_by(member))


def _annotations(function: ast.FunctionDef) -> list[ast.expr | None]:
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    return [a.annotation for a in every if a is not None] + [function.returns]


def _read(nodes: list[ast.AST | None]) -> set[str]:
    return {n.id for node in nodes if node is not None for n in ast.walk(node) if isinstance(n, ast.Name)}


def _is_static(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id == "staticmethod"


def _has_private(kernel: ast.FunctionDef) -> bool:
    """Whether a name in a kernel begins with two underscores: Python has another one for it in a class."""
    fields = ("id", "attr", "arg", "name", "asname")
    named = (getattr(node, field, None) for node in ast.walk(kernel) for field in fields)
    return any(isinstance(name, str) and name.startswith("__") for name in named)
