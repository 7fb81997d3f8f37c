"""The static policy on host code: wrappers, helpers, classes, module level, grid functions and Triton's host hooks.

Host code may compute with torch's operators. It may not read the values of a tensor, nor write to a tensor that it has
not made. So the policy must know which expressions may be tensors. Each variable has one kind (`scopes.ValueKind`), the
largest of what is assigned to it in all modules of the pass. Kinds flow through calls until nothing changes.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator

import torch

from passbench.policy import allowlists as names
from passbench.policy import operators
from passbench.policy.flow.class_parts import is_property, members_of
from passbench.policy.flow.known_instances import KnownInstances
from passbench.policy.flow.value_flow import ValueFlow
from passbench.policy.forms.enumerations import has_member, used_as_values
from passbench.policy.forms.written_types import (
    kept_types,
    stray_fields,
    stray_functions,
    stray_type_variables,
    stray_types,
)
from passbench.policy.host.bindings import FIELDS
from passbench.policy.host.classes import check_class, is_enumeration, kernels_of_classes, members, names_stored
from passbench.policy.host.replacements import Replacements
from passbench.policy.kernels.addresses import base_parameters, callee, is_constant
from passbench.policy.library_members import is_usable
from passbench.policy.modules import Module, Report, is_builtin
from passbench.policy.nodes import children, quoted, walk
from passbench.policy.own_place import extends_path, tests_path
from passbench.policy.scopes import RETURN, Scope, ValueKind, open_scope, parameters
from passbench.policy.steps import Steps

_RULE_FUNCTIONS = ("pattern", "replacement_args", "replacement_func")
_ROUNDS = 40  # rounds until kinds no longer change, at most; passes that people and models write take under ten


class HostChecker(Replacements):
    """Checks the host code of all modules of a pass."""

    def __init__(self, modules: dict[str, Module], rules: tuple[str, ...], report: Report, steps: Steps) -> None:
        super().__init__(modules, steps)
        self._rules, self._target = rules, report
        self._replacement_funcs: dict[ast.AST, Module] = {}
        self._times_used: Counter[str] | None = None
        self.made_plain: set[ast.expr] = set()
        found = (modules[rule].functions for rule in rules if rule in modules)
        self.stored_names = frozenset(names_stored(modules))
        self.fields, self.methods, self.shared_names = members(modules)
        bases = self.bases_of(self.class_homes)
        of_items = not self.methods.keys().isdisjoint(("__getitem__", "__contains__"))
        self.gets_items = of_items and any(map(_names_getters, modules.values()))
        self.called_at_once: dict[ast.expr, str] = {}
        for module in modules.values():
            self.called_at_once |= operators.called_at_once(module.tree, module.dotted, module.names_bound)
        self.has_named_tuples = "typing.NamedTuple" in bases
        self.kernels_of_classes = kernels_of_classes(modules)
        self.classes_of_methods = {
            s: own for own in self.class_homes for s in own.body if isinstance(s, ast.FunctionDef)
        }
        self.properties = frozenset(name for name, methods in self.methods.items() if any(map(is_property, methods)))
        self.special = {functions[n] for functions in found for n in _RULE_FUNCTIONS if n in functions}
        self.known = KnownInstances(self)
        self.flow = ValueFlow(self, self.special)
        named = list(_kernels_in_host_code(modules))
        self._named = {kernel for kernel, _, _ in named}
        self._handed_on = {
            kernel
            for kernel, node, plain in named
            if not plain and not (node in self.flow.noted and self.flow.is_known(kernel))
        }
        self._called_in_kernels = set(_called_in_kernels(modules))
        self._constants_of: dict[ast.FunctionDef, frozenset[str]] = {}

    def check(self) -> None:
        """Report every breach, once the kinds of all variables are known. Raises TooLong."""
        self.inheriting = self.with_library_members()
        self._follow()
        for module in self.modules.values():
            check_builtin_names(module, self._target)
            for call in stray_fields(module.tree, module.dotted):
                message = "field(…) is written in a data class alone, as NAME: TYPE = field(…), since it keeps the type"
                self._target.at("forbidden_call", module, call, message)
            for typed in stray_types(module.tree):
                message = "a type without a value stands behind a plain name; leave it out here"
                self._target.at("annotation", module, typed, message)
            for name in stray_functions(module.tree, module.dotted, module.names_bound):
                message = f"{quoted(name)} is no type; a type that is a value is made of types"
                self._target.at("annotation", module, name, message)
            for asked in kept_types(module.tree, module.names_bound) if "__contains__" in self.methods else ():
                message = f"{quoted(asked)} hands a type to a __contains__; write the types out in a tuple"
                self._target.at("forbidden_name", module, asked, message)
            for node in (n for n in walk(module.tree) if isinstance(n, ast.comprehension) and n.is_async):
                self._target.at("expression", module, node.iter, "a pass has no async; write for … in …")
            for own in module.classes.values():
                check_class(module, own, self._target, inherits=own in self.inheriting)
                self._check_bases(module, own)
        trees = {name: module.tree for name, module in self.modules.items()}
        for name, node in stray_type_variables(trees, {n: m.dotted for n, m in self.modules.items()}):
            message = "a type variable is NAME = TypeVar(…) at the top of a module, and is a part of other types"
            self._target.at("annotation", self.modules[name], node, message)
        if any(module.torch_modules for module in self.modules.values()):
            self._check_beside_torch_modules()
        self._check_enumerations()

    def _check_enumerations(self) -> None:
        """Report uses of an enumeration without members otherwise than as a base: it makes classes."""
        empty = set()
        for own, module in self.class_homes.items():
            bases = self.bases_of(self.lineage(own))
            if is_enumeration(bases) and not has_member(own, bases, self._is_member(module)):
                empty.add(own)
        for module in self.modules.values() if empty else ():
            for node in used_as_values(module.tree, module.names_bound):
                if (own := self.own_class(node, self.scopes[module.name])) in empty:
                    message = f"{own.name} has no member, so that Python makes classes by it; write one out, as A = 1"
                    self._target.at("forbidden_call", module, node, message)

    def _is_member(self, module: Module) -> Callable[[ast.expr], bool]:
        """Says of a value in an enumeration whether it is a member: a number of Python's, a dtype, or an instance."""

        def is_member(value: ast.expr) -> bool:
            made = value.func if isinstance(value, ast.Call) else None
            if made is not None:
                return module.dotted(made) == "enum.auto" or self.own_class(made, self.scopes[module.name]) is not None
            return module.dotted(value) in names.DTYPES

        return is_member

    def _check_bases(self, module: Module, own: ast.ClassDef) -> None:
        """Report a base of the pass that is no class: Python would call the class of what it is with all that the
        derived one holds, what `forms.unused_functions` has left out, too."""
        home = self.scopes[module.name]
        for base in own.bases:
            found = self.own_class(base, home)
            of_pass = isinstance(base, ast.Name) and base.id in module.classes
            if not (of_pass or module.sibling_function(module.dotted(base) or "")):
                continue
            if found is None or found.name in self.class_homes[found].namespaces:
                message = f"{quoted(base)} is no class of the pass; derive from a class, by its name"
                self._target.at("module_statement", module, own, message)

    def _check_beside_torch_modules(self) -> None:
        """Report classes with members that a `torch.nn.Module` has, since these would be allowed on one, too, or that a
        tensor has: `module.half()` is the module, and counts as a tensor. `forward` and what Python calls is the
        class's own."""
        for own, module in self.class_homes.items():
            if any(base.name in self.class_homes[base].torch_modules for base in self.lineage(own)[1:]):
                message = "no class of a pass derives from its torch.nn.Module; write a function"
                self._target.at("module_statement", module, own, message)
            for node, name in members_of(own):
                of_tensors = not name.startswith("__") and hasattr(torch.Tensor, name)
                if name in names.MEMBERS_OF_TORCH_MODULES or of_tensors:
                    message = f"beside a torch.nn.Module no class has a {name}; choose another name, or write functions"
                    self._target.at("rebinding", module, node, message)

    def may_be_launched_with_tensor(self, kernel: ast.FunctionDef, parameter: str) -> bool:
        """Whether a parameter of a kernel may be an address, as far as host code and the kernel tell.

        False for a helper that host code does not name: nobody launches it. `Addresses` follows what kernels hand to
        it.
        """
        if kernel not in self._named or parameter in self._constants(kernel):
            return False
        kind = self.kinds.get(kernel, parameter)
        if kernel in self._handed_on:
            kind = max(kind, self.launched(parameter))
        if kind.is_either:
            return parameter in base_parameters(self.modules, self.kernel_homes[kernel], kernel, self.bases)
        return kind.holds_tensors

    def calls_kernels(self, kernel: ast.FunctionDef, name: str) -> bool:
        """Whether a name in a kernel is a parameter `tl.constexpr` that is a kernel in every launch. What another
        kernel or a configuration of `triton.autotune` gives is not followed."""
        home = self.kernel_homes[kernel]
        if name not in self._constants(kernel) or name in home.globals or kernel in self._called_in_kernels:
            return False
        tuned = any(home.dotted(getattr(d, "func", d)) == "triton.autotune" for d in kernel.decorator_list)
        stored = (n for s in kernel.body for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        if tuned:
            return False
        self.steps.take(len(walk(kernel)))
        return name not in {n.id for n in stored} and bool(self.flow.kernels_given(kernel, name))

    def is_handed_in(self, kernel: ast.FunctionDef, parameter: str) -> bool:
        """Whether a parameter of a kernel is given to launches. No number is converted to the type of such a one: it
        could be an address that went through the host by a way which `kinds` do not follow."""
        return kernel in self._named and parameter not in self._constants(kernel)

    def _constants(self, kernel: ast.FunctionDef) -> frozenset[str]:
        if kernel not in self._constants_of:
            self._constants_of[kernel] = frozenset(p.arg for p in parameters(kernel) if is_constant(p))
        return self._constants_of[kernel]

    def _follow(self) -> None:
        self.note_class_numbers()
        self._let_torch_call()
        rounds = 0
        self.kinds.changed = True
        while self.kinds.changed and rounds < _ROUNDS:
            self.kinds.changed = False
            self._all()
            rounds += 1
        self.report = self._target
        if self.kinds.changed:
            for module in self.modules.values():
                self.find("size", module, module.tree, "values take too many steps to follow; write shorter code")
        self._all()
        self._check_asked_by_torch()
        for module in self.modules.values() if not self._target.sorted() else ():
            self._refuse_unseen(module)

    def _let_torch_call(self) -> None:
        """Let methods with names that tensors have get anything where torch may call them. What a computing one returns
        counts as torch's own result then, so that it is reported."""
        named = self.methods | self.shared_names
        of_tensors = [name for name in named if is_usable(name) and hasattr(torch.Tensor, name)]
        given = self.flow.classes_given_to_torch() if of_tensors else ()
        for name in of_tensors:
            called = [own for own in given if self.methods_of(own, name)]
            if called and name in self.methods:
                self.give_methods(name, [], {None: ValueKind.TENSOR})
            for own in called if name not in self.methods else ():
                message = f"torch may get {own.name}, and call its {name}(); choose another name"
                self._target.at("rebinding", self.class_homes[own], own, message)

    def _check_asked_by_torch(self) -> None:
        """Report members that hold or return tensors, where torch may get the instance and ask for a number by their
        name: `F.local_response_norm(x, 2)` compares `x.dim()`, and so reads a tensor that this returns."""
        plain = names.VIEW_ATTRIBUTES | names.VIEW_METHODS | {"backward"}  # of an autograd function, which nobody calls
        for own in self.flow.classes_given_to_torch():
            found = [found for one in self.lineage(own) for found in members_of(one) if found[1] not in plain]
            self.steps.take(len(found))
            for member, name in found:
                method = isinstance(member, ast.FunctionDef) and member.name == name
                kind = self.kinds.get(member, RETURN) if method else self.kinds.get(FIELDS, name)
                if kind.holds_tensors and not name.startswith("__") and hasattr(torch.Tensor, name):
                    message = f"torch may get {own.name}, and ask it for its {name}; choose another name"
                    self.read(message, self.scopes[self.class_homes[own].name], member)

    def _refuse_unseen(self, module: Module) -> None:
        """Report calls of host code that no check has met, so that code in a place which nobody thought of is refused
        instead of run. Kernels, `pattern` and the like are checked elsewhere."""
        special = ("pattern", "replacement_args") if module.name in self._rules else ()
        waiting: list[ast.AST] = [module.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Expr) and (
                self.wraps(node.value, self.scopes[module.name]) or extends_path(node.value, module)
            ):
                continue
            if isinstance(node, ast.If) and tests_path(node.test, module):
                waiting += [*node.body, *node.orelse]
                continue
            if isinstance(node, ast.Call) and node not in self.seen:
                message = f"{quoted(node)} stands where a pass calls nothing; call it in the wrapper"
                self.find("expression", module, node, message)
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                calls = [d for d in node.decorator_list if isinstance(d, ast.Call)]
                waiting += [part for d in calls for part in (*d.args, *d.keywords)]
                inside = module.kernels.get(node.name) is node or (
                    node.name in special and module.functions.get(node.name) is node
                )
                waiting += [] if inside else node.body
                waiting += [node.args] if isinstance(node, ast.FunctionDef) else []
                continue
            waiting += children(node)

    def _all(self) -> None:
        for name in self._rules:
            if name in self.modules:
                self.hand_to_graph(self.modules[name])
        for module in self.modules.values():
            special = _RULE_FUNCTIONS if module.name in self._rules else ()
            self._clashes(self.scopes[module.name])
            for statement in module.tree.body:
                if isinstance(statement, ast.FunctionDef) and statement.name in special:
                    self._signature(statement, self.scopes[module.name])
                else:
                    self._module_statement(statement, self.scopes[module.name])

    def _module_statement(self, statement: ast.stmt, scope: Scope) -> None:
        if isinstance(statement, ast.ClassDef):
            self._class(statement, scope)
        elif isinstance(statement, ast.Expr) and (
            self.wraps(statement.value, scope) or extends_path(statement.value, scope.module)
        ):
            return
        elif isinstance(statement, ast.If) and tests_path(statement.test, scope.module):
            for inner in (*statement.body, *statement.orelse):
                self._module_statement(inner, scope)
        elif isinstance(statement, ast.While | ast.With | ast.Return | ast.Raise):
            message = "a pass's module holds imports, constants, functions and classes; do the rest in the wrapper"
            self.find("module_statement", scope.module, statement, message)
        else:
            self._statement(statement, scope)

    def wraps(self, value: ast.expr, scope: Scope) -> bool:
        """`torch.fx.wrap(f)` or `torch.fx.wrap("f")` as a statement."""
        return (
            isinstance(value, ast.Call)
            and scope.module.dotted(value.func) == names.WRAP
            and not value.keywords
            and all(isinstance(a, ast.Constant | ast.Name) for a in value.args)
        )


def _names_getters(module: Module) -> bool:
    return any(
        isinstance(node, ast.Name | ast.Attribute)
        and module.dotted(node) in ("operator.getitem", "operator.itemgetter", "operator.contains")
        for node in walk(module.tree)
    )


def _called_in_kernels(modules: dict[str, Module]) -> Iterator[ast.FunctionDef]:
    """Kernels that kernels name, so that these may call them."""
    for module in modules.values():
        for kernel in module.kernels.values():
            for node in (n for statement in kernel.body for n in walk(statement)):
                if isinstance(node, ast.Name | ast.Attribute) and (called := callee(modules, module, node)) is not None:
                    yield called


def _kernels_in_host_code(modules: dict[str, Module]) -> Iterator[tuple[ast.FunctionDef, ast.expr, bool]]:
    """Kernels that the modules' code outside of kernels names, by whatever spelling of theirs or of a sibling's, once
    for each place, with that; and whether it is named there as `Launch(KERNEL, …)` or `KERNEL[grid](…)`, so that what
    it gets is known. In all other places it may be handed on to a launch that does not name it."""
    for module in modules.values():
        waiting: list[ast.AST] = [module.tree]
        plain: set[int] = set()
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Subscript):
                    plain.add(id(node.func.value))
                elif node.args and module.dotted(node.func) == names.LAUNCH:
                    plain.add(id(node.args[0]))
            if isinstance(node, ast.Name | ast.Attribute) and (kernel := callee(modules, module, node)) is not None:
                yield kernel, node, id(node) in plain
            inside = module.kernels.get(node.name) is node if isinstance(node, ast.FunctionDef) else False
            waiting += [*node.decorator_list, node.args] if inside else children(node)


def check_builtin_names(module: Module, report: Report) -> None:
    """A variable or function of the module may be called like a built-in if it is bound, whatever happens, before the
    name is mentioned anywhere: until then the name is the built-in, which `calls.py` has rules for. So it is behind an
    `except … as NAME`, which takes the name away, and where a kernel stands in a block that may not run."""
    settled: set[str] = set()
    everything = _bound_in_module(module)
    for name in sorted(n for n in everything - names.OWN_DUNDERS if n.startswith("__") and n.endswith("__")):
        message = f"{name} means something to Python; a pass does not set it"
        report.at("rebinding", module, module.tree, message)
    if names.OF_THE_INTERPRETER in module.names_bound:
        message = f"Triton's interpreter calls {names.OF_THE_INTERPRETER} unseen; choose another name"
        report.at("rebinding", module, module.tree, message)
    written = {module.dotted(n) for n in walk(module.tree) if isinstance(n, ast.Name | ast.Attribute)}
    for name in sorted(everything & names.CALLED_BY_DATA_CLASSES if "dataclasses.dataclass" in written else ()):
        message = f"a data class calls the {name} of its module unseen; choose another name"
        report.at("rebinding", module, module.tree, message)
    scope = open_scope(module, module.tree, None)
    bound = {n for n in scope.names if is_builtin(n)}  # `global` has a rule of its own
    for name in sorted(bound & scope.caught):
        message = f"{name} is a built-in again where the handler ends; choose another name for the error"
        report.at("rebinding", module, module.tree, message)
    for statement in module.tree.body if bound else ():
        first = _first_names(statement) & bound
        mentioned = {n.id for n in walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        mentioned |= {name for n in walk(statement) if isinstance(n, ast.Global) for name in n.names}
        if isinstance(statement, ast.FunctionDef | ast.ClassDef) and statement.col_offset == 0:
            first |= {statement.name} & bound  # in the source, too, it stands in no block
        for name in sorted(bound - settled):
            if name in mentioned and name in module.globals:
                message = f"{name} is a built-in where it is not bound yet; choose another name"
                report.at("rebinding", module, statement, message)
        settled |= first
    for name in sorted(bound - settled):
        report.at("rebinding", module, module.tree, f"{name} is a built-in; choose another name")


def _first_names(statement: ast.stmt) -> set[str]:
    """Names that an assignment at the top of the module binds whatever happens."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    return {t.id for t in targets if isinstance(t, ast.Name)}


def _bound_in_module(module: Module) -> set[str]:
    shared = {name for n in walk(module.tree) if isinstance(n, ast.Global) for name in n.names}
    return open_scope(module, module.tree, None).names | shared
