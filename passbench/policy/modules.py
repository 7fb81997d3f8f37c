"""A module of a pass as the static policy sees it: its syntax tree, imports, functions and classes."""

import ast
import builtins
import codecs
import io
import tokenize
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from passbench.contract import PACKAGE
from passbench.policy import allowlists as names
from passbench.policy.forms import class_makers, class_members, comparisons, decorators
from passbench.policy.forms.picked_arguments import literals
from passbench.policy.forms.plain_expressions import without_null_handlers, write_plainly
from passbench.policy.forms.plain_form import (
    lift_kernels,
    name_bases,
    write_branches_as_imports,
    write_mapped_arguments,
)
from passbench.policy.forms.unused_functions import NamesInUse, empty_unused, runs_as_a_script
from passbench.policy.nodes import bound_names, children, long_number, quoted, walk
from passbench.policy.suggestions import advice_on
from passbench.result import Finding
from storage.printable import printable

_LONGEST_MESSAGE = 2000


class Report:
    """Collects findings: of each rule one a line."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str, int], Finding] = {}
        self._said: set[tuple[str, str]] = set()

    def add(self, rule: str, file: str, line: int, message: str) -> None:
        """Note a breach of `rule`. A message quotes the pass: it is one line of letters that any table can hold."""
        message = printable(message)[:_LONGEST_MESSAGE]
        self._findings.setdefault((rule, file, line), Finding(rule, printable(file), line, message))

    def at(self, rule: str, module: "Module", node: ast.AST, message: str) -> None:
        """Note a breach at a syntax node."""
        self.add(rule, module.file, getattr(node, "lineno", 0), message)

    def once(self, rule: str, module: "Module", node: ast.AST, message: str) -> None:
        """Note a breach that would repeat itself, such as a missing import, where it is first met alone."""
        if (module.name, message) not in self._said:
            self._said.add((module.name, message))
            self.at(rule, module, node, message)

    def remove(self, findings: Iterable[Finding]) -> None:
        """Take findings back, for one that says why there are such."""
        for finding in findings:
            del self._findings[finding.rule, finding.file, finding.line]

    def sorted(self) -> list[Finding]:
        """All findings by file and line; on one line what does not exist comes first."""
        return sorted(self._findings.values(), key=lambda f: (f.file, f.line, f.rule != "unknown_name", f.rule))


@dataclass
class Module:
    """`imports`: local name → what it stands for, dotted; `siblings`: names of the pass's modules; `lines` of
    its text, the first at 0. `declared_global`: names in `global` statements, which functions may bind. `names_bound`:
    names that anything in it binds, in whatever scope. `namespaces`: classes that stand for a `SimpleNamespace`.
    `torch_modules`: those that derive from `torch.nn.Module`. `super_calls`: calls of `super()` that have been written
    with the name of the base. `literals`: variables that are a literal and nothing else. `of_patterns`: functions that
    patterns alone name."""

    name: str
    tree: ast.Module
    siblings: frozenset[str]
    lines: tuple[str, ...] = ()
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    kernels: dict[str, ast.FunctionDef] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    declared_global: set[str] = field(default_factory=set)
    names_bound: frozenset[str] = frozenset()
    namespaces: set[str] = field(default_factory=set)
    torch_modules: set[str] = field(default_factory=set)
    super_calls: list[ast.Call] = field(default_factory=list)
    literals: dict[str, ast.expr] = field(default_factory=dict)
    of_patterns: dict[str, ast.FunctionDef] = field(default_factory=dict)
    class_decorators: list[ast.expr] = field(default_factory=list)

    @property
    def file(self) -> str:
        return f"{self.name}.py"

    @property
    def kernel_names(self) -> list[str]:
        """What Triton calls the module's kernels, members of classes included."""
        return [class_members.plain_name(name) for name in self.kernels]

    def dotted(self, node: ast.expr) -> str | None:
        """What a name or attribute chain stands for if it starts at an import: `tl.load` → "triton.language.load"; a
        sibling's goes by its bare name, however it was imported: `pass_dir.helper.f` → "helper.f"."""
        parts: list[str] = []
        while type(node) is ast.Attribute:
            parts.append(node.attr)
            node = node.value
        if type(node) is not ast.Name or node.id not in self.imports:
            return None
        return ".".join([self.imports[node.id], *reversed(parts)]).removeprefix(f"{PACKAGE}.")

    def sibling_function(self, dotted: str) -> tuple[str, str] | None:
        """Module and name if `dotted` is something in a sibling: "helper.kernel" → ("helper", "kernel")."""
        module, _, name = dotted.partition(".")
        return (module, name) if module in self.siblings and name and "." not in name else None

    def is_private(self, dotted: str) -> bool:
        """Whether a part of a dotted name is private to a library, or Python's own. A sibling's name may begin with one
        underscore, and so may the name of something in it: both are the pass's."""
        parts = dotted.split(".")
        own = 2 if parts[0] in self.siblings else 0
        return any(p.startswith("__") for p in parts[:own]) or any(p.startswith("_") for p in parts[own:])

    def is_of_sibling(self, node: ast.Attribute) -> bool:
        """Whether an expression is an attribute of something in a sibling, of which the import says no more:
        `helper.TABLE.get`, or `TABLE.get` after `from helper import TABLE`."""
        module, _, rest = (self.dotted(node) or "").partition(".")
        return module in self.siblings and "." in rest


def syntax_tree(name: str, text: str, report: Report) -> ast.Module | None:
    """The tree of a module's text, without what runs as a script alone: nothing of it says what a name stands for.
    None if it is not Python."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode("utf-8")).readline)
        tree = ast.parse(text, f"{name}.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = getattr(error, "msg", error)  # without the file and line, which the finding has
        report.add("syntax", f"{name}.py", getattr(error, "lineno", 0) or 0, f"not Python: {what}")
        return None
    if (number := long_number(text, tree)) is not None:
        report.add("syntax", f"{name}.py", number.lineno, "Python writes no number of so many digits; compute it")
        return None
    if codecs.lookup(encoding).name != "utf-8":  # Python would read another text than this policy
        report.add("encoding", f"{name}.py", 1, f"a pass is UTF-8; remove the declaration of {encoding}")
    tree.body = [s for s in tree.body if not runs_as_a_script(s)]
    return tree


def read_module(
    name: str, text: str, tree: ast.Module, siblings: frozenset[str], report: Report, used: NamesInUse | None = None
) -> Module | None:
    """Collect the names of a module; checks imports wherever they are. None if an expression has too many attributes in
    a row. `tree` is that of `text`, and is changed, once: what Python writes in several ways has the form that the
    policy knows afterwards (`passbench.policy.forms`), and what does not run is left out.

    `used`: names in use in all modules of the pass; what functions of other names do is left out. A function that calls
    Triton's language without `@triton.jit` is a kernel, with one finding.
    """
    decorators.inline_decorator_tables(tree)
    if _has_long_chain(tree):
        report.add("syntax", f"{name}.py", 0, f"more than {_LONGEST_CHAIN} attributes in a row; write shorter ones")
        return None
    module = Module(name, tree, siblings, tuple(text.split("\n")))
    for node in walk(tree):  # of unused functions, too: an import takes its name for the whole module
        if isinstance(node, ast.Import):
            _import(module, node, report)
        elif isinstance(node, ast.ImportFrom):
            _import_from(module, node, report)
        elif isinstance(node, ast.Global):
            module.declared_global.update(node.names)
    module.of_patterns = empty_unused(name, tree, used) if used is not None else {}
    for node in write_branches_as_imports(tree, module.dotted):
        _import_from(module, node, report)
    bound = bound_names(tree)
    _bind_types(module, bound, report)
    write_mapped_arguments(tree, bound)
    write_plainly(tree, module.dotted, bound, lambda function: _is_kernel(module, function))
    without_null_handlers(tree, module.dotted, bound)
    decorators.write_at_kernels(tree, module.dotted, bound, lambda function: _is_kernel(module, function))
    lift_kernels(tree, lambda function: _is_kernel(module, function))
    if "hash" not in bound:
        comparisons.write_hashes(tree)
    class_members.write_bases(tree, module.dotted)
    class_members.name_properties(tree, module.dotted, module.imports)
    module.torch_modules = class_members.plain_torch_modules(tree, module.dotted)
    class_members.lift_class_kernels(tree, lambda function: _is_kernel(module, function))
    class_members.write_lambdas_as_methods(tree)
    class_members.call_by_other_names(tree)
    decorators.wrap_in_place(tree, module.dotted)
    module.class_decorators = decorators.apply_own_decorators(tree, module.dotted, siblings)
    bound = bound_names(tree)
    module.names_bound = frozenset(bound)
    module.literals = literals(tree, bound)
    tree.body = [_as_class(module, s, bound) for s in tree.body if not _is_alias(module, s, bound)]
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            is_kernel = _is_kernel(module, statement)
            if not is_kernel and (call := _device_call(module, statement)) is not None:
                is_kernel = True
                message = f"{statement.name} calls {call}, so it is a kernel; write @triton.jit above it"
                report.at("missing_jit", module, statement, message)
            (module.kernels if is_kernel else module.functions)[statement.name] = statement
            module.globals.add(statement.name)
        elif isinstance(statement, ast.ClassDef):
            module.classes[statement.name] = statement
    for own in module.classes.values() if "super" not in module.names_bound else ():
        module.super_calls += name_bases(own, lambda base: is_own_class(module, base))
    return module


_LONGEST_CHAIN = 32


def _has_long_chain(tree: ast.AST) -> bool:
    """Whether `x.a.b.c…` is longer than any that people write. Each part of a chain is read from its beginning."""
    depth: dict[ast.AST, int] = {}
    for node in walk(tree):  # what is outside comes first
        if isinstance(node, ast.Attribute):
            depth[node.value] = depth.get(node, 0) + 1
            if depth[node.value] > _LONGEST_CHAIN:
                return True
    return False


_MOST_HOPS = 8
"""A name that goes through more modules stands for what it is in the last of these."""


def follow_imports(modules: Mapping[str, Module]) -> None:
    """Let a name that a module takes from a sibling, which has itself imported it, stand for what it is there."""
    for module in modules.values():
        for local, stands_for in module.imports.items():
            for _ in range(_MOST_HOPS):
                source, _, name = stands_for.removeprefix(f"{PACKAGE}.").partition(".")
                if source not in modules or name not in modules[source].imports:
                    break
                stands_for = modules[source].imports[name]
            module.imports[local] = stands_for


def check_siblings(module: Module, modules: dict[str, Module], report: Report) -> None:
    """Report names taken from a sibling that the sibling has itself imported."""
    for node in walk(module.tree):
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        dotted = module.dotted(node)
        source, _, rest = (dotted or "").partition(".")
        if source in modules and rest.partition(".")[0] in modules[source].imports:
            report.at("reexport", module, node, f"{dotted} is imported by {source}.py; import it from where it is")


def is_builtin(name: str) -> bool:
    """Whether a name means something where nothing has been assigned to it."""
    return hasattr(builtins, name)


def _is_alias(module: Module, node: ast.stmt, bound: Mapping[str, int]) -> bool:
    """Whether a statement is `NAME = tl.exp` or `NAME = torch.ops.aten`, the only one that binds the name. It is noted
    as an import."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return False
    name, dotted = node.targets[0].id, module.dotted(node.value) if isinstance(node.value, ast.Attribute) else None
    if (
        dotted not in names.ALIASED | names.ALIASED_MODULES | names.ALLOCATORS
        or bound[name] != 1
        or is_builtin(name)
        or name.startswith("__")
    ):
        return False
    module.imports[name] = dotted
    return True


def _as_class(module: Module, node: ast.stmt, bound: Mapping[str, int]) -> ast.stmt:
    """`NAME = namedtuple("NAME", ["a", "b"])` as the class that it makes, `NAME = SimpleNamespace(a=1)` as a class with
    this field; any other statement as it is."""
    if (made := class_makers.named_tuple(node, module.dotted)) is not None:
        module.imports[class_makers.NAMEDTUPLE] = "typing.NamedTuple"
        return made
    if (made := class_makers.namespace(node, module.dotted, bound)) is not None:
        module.namespaces.add(made.name)
        return made
    return node


def _device_call(module: Module, function: ast.FunctionDef) -> str | None:
    """A call in a function that only a kernel can make, as written. One in a kernel within it is the kernel's."""
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and module.dotted(node.func) in names.DEVICE_ONLY:
            return quoted(node.func)
        waiting += [c for c in children(node) if not (isinstance(c, ast.FunctionDef) and _is_kernel(module, c))]
    return None


def _is_kernel(module: Module, function: ast.FunctionDef) -> bool:
    return any(_decorates(module, d, names.JIT) for d in function.decorator_list)


def is_own_class(module: Module, base: ast.expr) -> bool:
    """Whether a base names a class of this module, or something in a sibling."""
    dotted = module.dotted(base)
    if dotted is not None:
        return module.sibling_function(dotted) is not None
    return isinstance(base, ast.Name) and base.id in module.classes


def _decorates(module: Module, decorator: ast.expr, name: str) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return module.dotted(target) == name


def _bind(module: Module, local: str, stands_for: str, node: ast.stmt, report: Report) -> None:
    """Note an import. Even inside a function it takes its name for the whole module: nothing else may have it."""
    if local.startswith("__"):
        report.at("private_name", module, node, f"{local} means something to Python; use another name")
    if is_builtin(local):
        report.at("rebinding", module, node, f"{local} is a built-in; import {stands_for} under another name")
    if module.imports.setdefault(local, stands_for) != stands_for:
        both = {module.imports[local], stands_for}
        there = {name for name in both if not names.is_missing(name)}
        one_name = len({name.rpartition(".")[2] for name in both}) == 1
        if there and there <= names.ALIASED and one_name:
            if module.imports[local] not in there:
                module.imports[local] = stands_for
        elif not both <= names.LIBDEVICES:
            report.at("rebinding", module, node, f"{local} is imported twice as different things; use another name")


def _import(module: Module, node: ast.Import, report: Report) -> None:
    for alias in node.names:
        name = alias.name
        sibling = name.removeprefix(f"{PACKAGE}.")
        if name == PACKAGE or sibling in module.siblings:
            stands_for = sibling if alias.asname else name.partition(".")[0]
        elif names.may_import(name):
            stands_for = name if alias.asname else name.partition(".")[0]
        else:
            report.at("import", module, node, _import_advice(name))
            stands_for = name if alias.asname else name.partition(".")[0]
        _bind(module, alias.asname or stands_for, stands_for, node, report)


def _import_from(module: Module, node: ast.ImportFrom, report: Report) -> None:
    source = node.module or ""
    if source == "__future__" and not node.level:
        return
    own = node.level == 1 or (not node.level and source.partition(".")[0] == PACKAGE)
    if node.level > 1:
        report.at("import", module, node, "a pass is one directory; write `from .NAME import …`")
        return
    if own:
        source = source if node.level else source.partition(".")[2]
    for alias in node.names:
        full = f"{source}.{alias.name}" if source else alias.name
        known = full in module.siblings if own and not source else source in module.siblings
        if alias.name == "*" and source == "typing":
            continue  # see _bind_types
        if alias.name == "*":
            report.at("import", module, node, f"import the names that you need from {source or PACKAGE}, not *")
        elif own and not known:
            missing = (source or alias.name).partition(".")[0]
            report.at("import", module, node, f"there is no {missing}.py in this pass")
        elif not known and not names.may_import(source) and full not in names.MODULES:
            report.at("import", module, node, _import_advice(source))
            _bind(module, alias.asname or alias.name, full, node, report)
        elif alias.name.startswith("__" if known else "_"):
            report.at("private_name", module, node, f"{full} is private; use what the module offers")
        else:
            _bind(module, alias.asname or alias.name, full, node, report)


def _bind_types(module: Module, own: Mapping[str, int], report: Report) -> None:
    """`from typing import *`: its names that the module mentions, and does not bind itself. `own`: names that it
    binds. Each of typing's among them is refused, also where other modules alone read it: what comes last decides
    which of the two they get."""
    nodes = walk(module.tree)
    imports = (n for n in nodes if isinstance(n, ast.ImportFrom) and n.module == "typing" and not n.level)
    node = next((n for n in imports if any(alias.name == "*" for alias in n.names)), None)
    mentioned = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    for name in typing.__all__ if node is not None else ():
        if name in own:
            report.at("rebinding", module, node, f"{name} is an import of typing, too; import the names that you need")
        elif name in mentioned:
            _bind(module, name, f"typing.{name}", node, report)


def _import_advice(name: str) -> str:
    usual = "a pass may import torch, triton, triton.language, libdevice, passbench.launch, the modules of its own"
    usual += " directory and harmless standard library such as math, functools and dataclasses"
    return f"{name} may not be imported; {advice_on(name) or usual}"
