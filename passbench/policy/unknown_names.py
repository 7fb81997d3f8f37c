"""Names that do not exist: `tl.laod`, `torch.empty_lik`, `return mean_of_tow`, `tl` without its import.

The other checks refuse what they do not know, by the rule of the place where it stands. Here each name that does not
exist becomes one finding, which says so, in place of theirs. A finding is replaced and never removed: what was refused
stays refused. Only an import at the top of a module of what its library lacks is refused here and nowhere else.
"""

import ast
import functools
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from types import ModuleType

from passbench.policy import allowlists as names
from passbench.policy.modules import Module, Report, is_builtin
from passbench.policy.nodes import children, quoted
from passbench.policy.suggestions import USUAL_IMPORTS, nearest
from passbench.result import Finding

_MOST = 20
"""Names that are explained in one pass, so that a text of nothing else takes no longer."""
_FOLLOWS = frozenset(
    """address annotation decorator dynamic_call expression forbidden_attribute forbidden_call forbidden_name
    function_as_value launch missing_jit module_as_value pattern replacement_args replacement_func
    tensor_method""".split()
)
"""Rules whose findings may follow from a name that does not exist, on the lines where it stands."""
_BUILTINS = names.HOST_BUILTINS | names.DEVICE_BUILTINS

Lines = dict[int, int]
"""Line of a finding that follows from a name → line of the name."""


def explain_unknown_names(modules: Mapping[str, Module], report: Report) -> None:
    """Put one finding for each name that does not exist in place of those that follow from it."""
    explained = 0
    by_line: dict[str, dict[int, list[Finding]]] = {}
    for finding in report.sorted():
        if finding.rule in _FOLLOWS:
            by_line.setdefault(finding.file, {}).setdefault(finding.line, []).append(finding)
    for module in modules.values():
        following = by_line.get(module.file, {})
        found = _unknown_imports(module, report)
        places: dict[str, tuple[ast.expr, Lines]] = {}
        for node, lines in _loads(module):
            key = _missing_of(module, node, modules)
            if key is not None:
                places.setdefault(key, (node, {}))[1].update(lines)
        for key, (node, lines) in sorted(places.items(), key=lambda item: min(item[1][1])):
            met = sorted(following.keys() & lines.keys())
            if not met:
                continue
            if explained == _MOST:
                return
            explained += 1
            for line in met:
                report.remove(following.pop(line))
            if key not in found:
                report.add("unknown_name", module.file, lines[met[0]], _message(module, key, node, modules))


def _unknown_imports(module: Module, report: Report) -> set[str]:
    """Report imports at the top of a module of what a library does not have; the full names of these. One in a `try`
    may fail. A sibling is no library, also where one of its name is loaded here."""
    found: set[str] = set()
    for statement in module.tree.body:
        for alias in statement.names if isinstance(statement, ast.ImportFrom) else ():
            if len(found) == _MOST:
                return found
            full = module.imports.get(alias.asname or alias.name)
            if full is None or full.partition(".")[0] in module.siblings:
                continue
            if full.rpartition(".")[2] == alias.name and missing(full) == full:
                found.add(full)
                spelled = nearest(alias.name, _members(full.rpartition(".")[0]))
                report.at("unknown_name", module, statement, _lacks(full, spelled))
    return found


def _loads(module: Module) -> Iterator[tuple[ast.expr, Lines]]:
    """Names and attributes that a module reads, with the lines of findings that may follow from each.

    Annotations are left out where Python does not evaluate them.
    """
    postponed = any(isinstance(s, ast.ImportFrom) and s.module == "__future__" for s in module.tree.body)
    waiting: list[tuple[ast.AST, int | None]] = [(module.tree, None)]
    while waiting:
        node, also = waiting.pop()
        kind = type(node)
        if (kind is ast.Attribute or kind is ast.Name) and isinstance(node.ctx, ast.Load):
            yield node, {line: node.lineno for line in (node.lineno, also) if line is not None}
        skipped: set[ast.AST | None] = set()
        if isinstance(node, ast.AnnAssign) or (postponed and isinstance(node, ast.arg)):
            skipped.add(node.annotation)
        above: dict[ast.AST, int] = {}
        if isinstance(node, ast.FunctionDef):
            skipped |= {node.returns} if postponed else set()
            inside = node.body if node.name == "replacement_func" else ()
            above = {part: node.lineno for part in (*node.decorator_list, *inside)}
        waiting.extend((child, above.get(child, also)) for child in children(node) if child not in skipped)


def _missing_of(module: Module, node: ast.expr, modules: Mapping[str, Module]) -> str | None:
    """What does not exist of what an expression names: a name that the module never binds, or a dotted name whose last
    part its library or sibling lacks. None if everything may exist."""
    dotted = module.dotted(node)
    if dotted is None:
        unbound = isinstance(node, ast.Name) and not (
            node.id in module.names_bound or is_builtin(node.id) or node.id.startswith("__") or "." in node.id
        )
        return node.id if unbound else None
    sibling, _, rest = dotted.partition(".")
    if sibling not in module.siblings:
        return missing(dotted)
    name, other = rest.partition(".")[0], modules.get(sibling)
    known = other is None or not name or name.startswith("__") or name in other.names_bound or name in other.imports
    return None if known else f"{sibling}.{name}"


@functools.lru_cache(4096)
def missing(dotted: str) -> str | None:
    """The part of a dotted name, from its start, up to the first name that a library's module does not have; None if
    there is none, or if the library is not loaded here. Imports nothing."""
    parts = dotted.split(".")
    value = sys.modules.get(parts[0])
    for number, part in enumerate(parts[1:], 2):
        if type(value) is not ModuleType:  # `torch.ops` makes what it is asked for
            return None
        full = ".".join(parts[:number])
        if part in vars(value):
            value = vars(value)[part]
        elif full in sys.modules:
            value = sys.modules[full]
        elif PathFinder.find_spec(full, getattr(value, "__path__", [])) is not None or hasattr(value, part):
            return None
        elif full.rpartition(".")[0] in names.LIBDEVICES and any(hasattr(one, part) for one in _libdevices()):
            return None  # a compiler puts the device's module in place of the general one
        else:
            return full
    return None


def _libdevices() -> list[ModuleType]:
    return [sys.modules[name] for name in names.LIBDEVICES if name in sys.modules]


def _members(dotted: str) -> list[str]:
    """The names of a library's module."""
    first, *parts = dotted.split(".")
    value = sys.modules.get(first)
    for part in parts:
        value = getattr(value, part, None)
    return dir(value)


def _message(module: Module, key: str, node: ast.expr, modules: Mapping[str, Module]) -> str:
    home, _, name = key.rpartition(".")
    if not home:
        if key in USUAL_IMPORTS:
            return f"{key} is not imported; write `{USUAL_IMPORTS[key]}` at the top"
        near = nearest(key, module.names_bound | _BUILTINS)
        advice = f"did you mean {near}?" if near else "bind it, import it or hand it in as an argument"
        return f"{key} is bound nowhere in {module.file}; {advice}"
    while isinstance(node, ast.Attribute) and node.attr != name:
        node = node.value
    before = f"{quoted(node.value)}." if isinstance(node, ast.Attribute) else ""
    if home in modules:
        near = nearest(name, modules[home].names_bound)
        return f"{home}.py has no {name}" + (f"; did you mean {before}{near}?" if near else "; define it there")
    near = nearest(name, _members(home))
    return _lacks(key, before + near if near else None)


def _lacks(full: str, near: str | None) -> str:
    """`torch.empty_lik` → "torch has no empty_lik (torch 2.15.0); did you mean torch.empty_like?"."""
    home, _, name = full.rpartition(".")
    library = home.partition(".")[0]
    version = getattr(sys.modules.get(library), "__version__", None)
    told = f" ({library} {version})" if version else ""
    return f"{home} has no {name}{told}; " + (f"did you mean {near}?" if near else "use what this version has")
