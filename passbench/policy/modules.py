"""A module of a pass as the static policy sees it: its syntax tree, imports and functions."""

import ast
import builtins
import io
import tokenize
from dataclasses import dataclass, field

from passbench.policy import allowlists as names
from passbench.result import Finding


class Report:
    """Findings as they are made; one a place and rule."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str, int], Finding] = {}

    def add(self, rule: str, file: str, line: int, message: str) -> None:
        """Note a breach of `rule`."""
        self._findings.setdefault((rule, file, line), Finding(rule, file, line, message))

    def at(self, rule: str, module: "Module", node: ast.AST, message: str) -> None:
        """Note a breach at a syntax node."""
        self.add(rule, module.file, getattr(node, "lineno", 0), message)

    def sorted(self) -> list[Finding]:
        """All findings by file and line."""
        return sorted(self._findings.values(), key=lambda f: (f.file, f.line, f.rule))


@dataclass
class Module:
    """`imports`: local name → what it stands for, dotted; `siblings`: names of the pass's modules."""

    name: str
    tree: ast.Module
    siblings: frozenset[str]
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    kernels: dict[str, ast.FunctionDef] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)

    @property
    def file(self) -> str:
        return f"{self.name}.py"

    def dotted(self, node: ast.expr) -> str | None:
        """What a name or attribute chain stands for if it starts at an import: `tl.load` → "triton.language.load"."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.imports:
            return None
        return ".".join([self.imports[node.id], *reversed(parts)])

    def sibling_function(self, dotted: str) -> tuple[str, str] | None:
        """Module and name if `dotted` is something in a sibling: "helper.kernel" → ("helper", "kernel")."""
        module, _, name = dotted.partition(".")
        return (module, name) if module in self.siblings and name and "." not in name else None


def parse(name: str, text: str, siblings: frozenset[str], report: Report) -> Module | None:
    """Parse a module and collect its names; checks imports wherever they are. None if it is not Python."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode("utf-8")).readline)
        tree = ast.parse(text, f"{name}.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        report.add("syntax", f"{name}.py", getattr(error, "lineno", 0) or 0, f"not Python: {error}")
        return None
    if not encoding.startswith("utf-8"):  # Python would read another text than this policy
        report.add("encoding", f"{name}.py", 1, f"a pass is UTF-8; remove the declaration of {encoding}")
    module = Module(name, tree, siblings)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in tree.body:
            report.at("import", module, node, "import at the top of the module, not inside a function")
        if isinstance(node, ast.Import):
            _import(module, node, report)
        elif isinstance(node, ast.ImportFrom):
            _import_from(module, node, report)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            is_kernel = any(_decorates(module, d, names.JIT) for d in statement.decorator_list)
            (module.kernels if is_kernel else module.functions)[statement.name] = statement
            module.globals.add(statement.name)
    return module


def check_siblings(module: Module, modules: dict[str, Module], report: Report) -> None:
    """What is taken from a sibling is the sibling's own, not something that it has imported."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        dotted = module.dotted(node)
        source, _, rest = (dotted or "").partition(".")
        if source in modules and rest.partition(".")[0] in modules[source].imports:
            report.at("reexport", module, node, f"{dotted} is imported by {source}.py; import it from where it is")


def is_builtin(name: str) -> bool:
    """Whether a name means something where nothing has been assigned to it."""
    return hasattr(builtins, name)


def _decorates(module: Module, decorator: ast.expr, name: str) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return module.dotted(target) == name


def _bind(module: Module, local: str, stands_for: str, node: ast.stmt, report: Report) -> None:
    if is_builtin(local):
        report.at("rebinding", module, node, f"{local} is a built-in; import {stands_for} under another name")
    if module.imports.setdefault(local, stands_for) != stands_for:
        report.at("rebinding", module, node, f"{local} is imported twice as different things; use another name")


def _import(module: Module, node: ast.Import, report: Report) -> None:
    for alias in node.names:
        if alias.name in module.siblings or alias.name in names.MODULES:
            stands_for = alias.name if alias.asname else alias.name.partition(".")[0]
            _bind(module, alias.asname or stands_for, stands_for, node, report)
        else:
            report.at("import", module, node, _import_advice(alias.name))


def _import_from(module: Module, node: ast.ImportFrom, report: Report) -> None:
    source = node.module or ""
    if source == "__future__" and not node.level:
        return
    if node.level:
        report.at("import", module, node, "relative imports do not work in a pass; import the sibling by its name")
        return
    for alias in node.names:
        full = f"{source}.{alias.name}"
        if alias.name == "*":
            report.at("import", module, node, f"import the names that you need from {source}, not *")
        elif source not in module.siblings and source not in names.MODULES and full not in names.MODULES:
            report.at("import", module, node, _import_advice(source))
        elif alias.name.startswith("_"):
            report.at("private_name", module, node, f"{full} is private; use what the module offers")
        else:
            _bind(module, alias.asname or alias.name, full, node, report)


def _import_advice(name: str) -> str:
    return (
        f"{name} may not be imported; a pass may import torch, triton, triton.language, libdevice, math, "
        "passbench.launch and the modules of its own directory"
    )
