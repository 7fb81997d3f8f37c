"""The static policy: what the source of a pass may say (docs/integrity.md, "The source").

It is an allowlist over the syntax tree of every module that the pass directory can import; nothing is executed.

Host code may launch kernels, call operators that a graph can hold and that compute out of place, and handle metadata.
`pattern` is only traced, so it may name every operation that a graph can hold.
"""

import ast
import io
from functools import lru_cache
from pathlib import Path

from passbench.contract import NAMES_FILE, PACKAGE, PassFiles, read_pass_dir
from passbench.policy import allowlists as names
from passbench.policy.flow.class_parts import class_fields, is_plain, is_property
from passbench.policy.forms.partial_functions import write_partials
from passbench.policy.forms.picked_arguments import write_out_picked
from passbench.policy.forms.plain_form import write_lambdas_as_functions
from passbench.policy.forms.taken_names import write_taken_functions, write_taken_imports
from passbench.policy.forms.unused_functions import HANDED_TO_PASSBENCH, names_in_use, without_launch_metadata
from passbench.policy.host.checker import HostChecker
from passbench.policy.kernels.addresses import Addresses
from passbench.policy.kernels.device_code import check_device_function
from passbench.policy.modules import (
    Module,
    Report,
    check_siblings,
    follow_imports,
    is_own_class,
    read_module,
    syntax_tree,
)
from passbench.policy.nodes import quoted, written_name
from passbench.policy.patterns import (
    PatternChecker,
    check_parameters,
    check_replacement_args,
    constant_of_class,
    is_picked,
    parameter_names,
)
from passbench.policy.scopes import hands_back, open_scope
from passbench.policy.steps import Steps, TooLong
from passbench.policy.suggestions import advice_on
from passbench.policy.unknown_names import explain_unknown_names
from passbench.result import Finding

MAX_SOURCE = 1 << 18
"""Characters of all modules of a pass. The largest pass of ours has 57,000."""

MOST_FINDINGS = 200
"""Findings that one pass has at most, the first ones: each variant's result keeps them all."""

_PURPOSES = {
    "pattern": "write `def pattern(x, …)`, the operations that the pass replaces",
    "replacement_args": "write `def replacement_args(…)` with pattern's parameters: it returns the tuple of those that "
    "the replacement gets",
    "replacement_func": "write `def replacement_func()`, which returns the function that launches your kernels",
}
"""Functions that each listed module has → what to write, and what for. Helpers are not listed."""


def check_dir(directory: str | Path) -> list[Finding]:
    """Findings on a pass directory, in order of file and line, the first 200; none: the pass is allowed.

    Raises ContractError if the directory does not follow the contract.
    """
    return check_files(read_pass_dir(directory))


def check_files(files: PassFiles) -> list[Finding]:
    """Findings on a pass that has been read already. An author and PassBench ask of the same pass, one after another:
    the latest answers are kept."""
    return list(_findings(files.names, tuple(files.files.items()), files.others))


@lru_cache(maxsize=128)
def _findings(
    names_listed: tuple[str, ...], texts: tuple[tuple[str, str], ...], others: tuple[str, ...]
) -> list[Finding]:
    files = PassFiles(names_listed, dict(texts), others)
    report = Report()
    for name in files.others:
        if Path(name).suffix in names.SUSPECT_FILES:
            report.add("binary_file", name, 0, "a pass is Python source with Triton kernels; remove this file")
    if sum(map(len, files.modules.values())) > MAX_SOURCE:
        report.add("size", NAMES_FILE, 0, f"the sources have more than {MAX_SOURCE} characters; write shorter code")
        return report.sorted()
    try:
        _check_modules(_read(files, report), files.names, report)
    except TooLong:
        report.add("size", NAMES_FILE, 0, "the pass takes too many steps to follow; write shorter code")
    except RecursionError:
        report.add("syntax", NAMES_FILE, 0, "expressions are nested too deeply; write shorter ones")
    return report.sorted()[:MOST_FINDINGS]


def _read(files: PassFiles, report: Report) -> dict[str, Module]:
    """The modules of a pass. Lines end as Python has them end, with a line feed."""
    modules: dict[str, Module] = {}
    texts = {name: io.StringIO(text, newline=None).read() for name, text in files.modules.items()}
    siblings = frozenset(name for name in texts if not _is_library(name))
    trees = {name: syntax_tree(name, text, report) for name, text in texts.items()}
    for tree in filter(None, trees.values()):
        write_lambdas_as_functions(tree, HANDED_TO_PASSBENCH)
    if None not in trees.values():
        write_taken_imports(trees)
        write_taken_functions(trees, files.names)
    if None not in trees.values() and any("partial" in text for text in texts.values()):
        write_partials(trees)
    if None not in trees.values() and any("launch_metadata" in text for text in texts.values()):
        without_launch_metadata(trees)
    used = names_in_use(trees, files.names) if None not in trees.values() else None
    for name, text in texts.items():
        if _is_library(name):
            report.add("module_name", f"{name}.py", 1, f"{name} is the name of a library; rename the file")
        tree = trees[name]
        module = read_module(name, text, tree, siblings, report, used) if tree is not None else None
        if module is not None:
            modules[name] = module
    return modules


def _is_library(name: str) -> bool:
    of_python = name.startswith("__") and name != "__init__"  # `__main__` is what Python runs, whoever imports it
    return name == PACKAGE or of_python or "." in name or names.shadows_a_library(name)


def _check_modules(modules: dict[str, Module], rules: tuple[str, ...], report: Report) -> None:
    follow_imports(modules)
    for name in rules:
        if name in modules:
            _write_out_arguments(modules[name], modules)
    patterns = PatternChecker(modules, report)
    for name, module in modules.items():
        check_siblings(module, modules, report)
        _check_special(module, name in rules, patterns, report)
    _check_super(modules, report)
    _check_class_decorators(modules, report)
    steps = Steps()
    host = HostChecker(modules, rules, report, steps)
    host.check()
    addresses = Addresses(modules, host.may_be_launched_with_tensor, steps)
    handed_in = Addresses(modules, host.is_handed_in, steps)
    members = host.fields | host.shared_names.keys()
    for module in modules.values():
        for function in module.kernels.values():
            check_device_function(module, function, modules, addresses, members, host.calls_kernels, report)
            handed_in.check_types(module, function, report)
    explain_unknown_names(modules, report)


def _write_out_arguments(module: Module, modules: dict[str, Module]) -> None:
    """Let `replacement_args` return what its own variables, and constants of the pass's modules, stand for."""
    function = module.functions.get("replacement_args")
    if function is None or function.decorator_list:
        return

    def constant(node: ast.expr) -> ast.expr | None:
        home = module
        source, _, rest = (module.dotted(node) or "").partition(".")
        if source in modules and rest:
            home, node = modules[source], ast.parse(rest, mode="eval").body
        return constant_of_class(home, node) if isinstance(node, ast.Attribute) else home.literals.get(node.id)

    def built_in(name: str) -> bool:
        return name not in module.names_bound | module.declared_global

    given = parameter_names(function)
    write_out_picked(function, constant, lambda value: is_picked(module, given, value), built_in)


def _check_super(modules: dict[str, Module], report: Report) -> None:
    """Report `super()` where a class has several bases, one of the pass: what comes next need not be the base then.

    `super().f(a)` has been written as `BASE.f(self, a)`. A static method and one of the class do not get `self`: it is
    taken out of their calls. Nor does what a field holds or a property returns, unless it is a function: such a call
    is reported."""
    several = any(
        len(own.bases) > 1 and any(is_own_class(module, base) for base in own.bases)
        for module in modules.values()
        for own in module.classes.values()
    )
    calls = [(module, call) for module in modules.values() for call in module.super_calls]
    for module, call in calls if several else ():
        report.at("forbidden_name", module, call, f"a class has several bases; {advice_on('super')}")
    kinds: dict[str, set[bool]] = {}
    fields: set[str] = set()
    for own in (own for module in modules.values() if calls for own in module.classes.values()):
        fields |= set(class_fields(own))
        for method in (member for member in own.body if isinstance(member, ast.FunctionDef)):
            kinds.setdefault(method.name, set()).add(is_plain(method))
            fields |= {method.name} if is_property(method) else set()
    for module, call in calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""  # of an error it is a class
        gets_self = kinds.get(name, {True})
        if name in fields:
            message = f"{name} is a field or a property of a class; write self.{name}(…)"
            report.at("forbidden_name", module, call, message)
        elif len(gets_self) > 1:
            message = f"classes have {name} as a method and as a static one; choose another name"
            report.at("forbidden_name", module, call, message)
        elif False in gets_self:
            del call.args[0]
            call.__dict__.pop("_children", None)


def _check_class_decorators(modules: dict[str, Module], report: Report) -> None:
    """Report decorators of classes that may return something else than the class."""
    known: dict[tuple[ast.FunctionDef | None, bool], bool] = {(None, False): False, (None, True): False}
    for module, decorator in ((one, d) for one in modules.values() for d in one.class_decorators):
        called = isinstance(decorator, ast.Call)
        target = decorator.func if called else decorator
        home, _, name = (module.dotted(target) or f"{module.name}.{written_name(target)}").rpartition(".")
        function = modules[home].functions.get(name) if home in modules else None
        if (function, called) not in known:
            known[function, called] = hands_back(function, called=called)
        if not known[function, called]:
            message = f"decorator {quoted(target)} is not allowed on a class; let it return the class that it gets"
            report.at("decorator", module, decorator, message)


def _check_special(module: Module, is_rule: bool, patterns: PatternChecker, report: Report) -> None:
    if not is_rule:
        return
    bound = open_scope(module, module.tree, None).names | module.imports.keys()
    for name in _PURPOSES:
        if name in bound and name not in module.functions:
            message = f"write `def {name}(…)` at the top of this module, so that it is known what it hands on"
            report.at(name, module, module.tree, message)
        elif name not in bound | module.declared_global:
            message = f"{NAMES_FILE} lists {module.name}, but {module.file} has no {name}(); {_PURPOSES[name]}"
            report.at(name, module, module.tree, message)
    pattern = module.functions.get("pattern")
    arguments = module.functions.get("replacement_args")
    if pattern is not None:
        patterns.check(module, pattern)
    if arguments is not None:
        check_replacement_args(module, arguments, report)
    check_parameters(module, report)
