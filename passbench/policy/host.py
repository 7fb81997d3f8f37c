"""The static policy on host code: wrappers, helpers, classes, module level, grid functions and Triton's host hooks.

Host code may compute with torch's operators. It may not read the values of a tensor, nor write to a tensor that it has
not made. So the policy must know which expressions may be tensors. Each variable has one kind (`scopes.ValueKind`), the
largest of what is assigned to it in all modules of the pass. Kinds flow through calls until nothing changes.
"""

import ast
from collections.abc import Iterator

from passbench.policy import allowlists as names
from passbench.policy.addresses import base_parameters, callee, is_constant
from passbench.policy.bindings import METHODS, WRITE_ADVICE, check_builtin_names
from passbench.policy.calls import Calls
from passbench.policy.classes import check_class, lineage, members, own_fields
from passbench.policy.modules import Module, Report, is_builtin
from passbench.policy.parameters import parameter_kinds
from passbench.policy.scopes import RETURN, Scope, ValueKind, parameters
from passbench.policy.steps import Steps

_RULE_FUNCTIONS = ("pattern", "replacement_args", "replacement_func")
_ROUNDS = 40  # rounds until kinds no longer change, at most; passes that people and models write take under ten


class HostChecker(Calls):
    """Checks the host code of all modules of a pass."""

    def __init__(self, modules: dict[str, Module], rules: tuple[str, ...], report: Report, steps: Steps) -> None:
        super().__init__(modules, steps)
        self._rules, self._target = rules, report
        found = (modules[rule].functions for rule in rules if rule in modules)
        self.fields, self.methods = members(modules)
        self.special = {functions[n] for functions in found for n in _RULE_FUNCTIONS if n in functions}
        named = list(_kernels_in_host_code(modules))
        self._named = {kernel for kernel, _ in named}
        self._handed_on = {kernel for kernel, plain in named if not plain}
        self._constants_of: dict[ast.FunctionDef, frozenset[str]] = {}

    def check(self) -> None:
        """Report every breach, once the kinds of all variables are known. Raises TooLong."""
        self._follow()
        for module in self.modules.values():
            check_builtin_names(module, self._target)
            for own in module.classes.values():
                check_class(module, own, self._target)

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
        if kind is ValueKind.EITHER:
            return parameter in base_parameters(self.modules, self.kernel_homes[kernel], kernel, self.bases)
        return kind.holds_tensors

    def is_handed_in(self, kernel: ast.FunctionDef, parameter: str) -> bool:
        """Whether a parameter of a kernel is given to launches. No number is converted to the type of such a one: it
        could be an address that went through the host by a way which `kinds` do not follow."""
        return kernel in self._named and parameter not in self._constants(kernel)

    def _constants(self, kernel: ast.FunctionDef) -> frozenset[str]:
        if kernel not in self._constants_of:
            self._constants_of[kernel] = frozenset(p.arg for p in parameters(kernel) if is_constant(p))
        return self._constants_of[kernel]

    def _follow(self) -> None:
        self._wrapper_parameters()
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
        for module in self.modules.values() if not self._target.sorted() else ():
            self._refuse_unseen(module)

    def _refuse_unseen(self, module: Module) -> None:
        """Report calls of host code that no check has met, so that code in a place which nobody thought of is refused
        instead of run. Kernels, `pattern` and the like are checked elsewhere."""
        special = _RULE_FUNCTIONS if module.name in self._rules else ()
        waiting: list[ast.AST] = [module.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Expr) and (
                self._wraps(node.value, self.scopes[module.name]) or extends_path(node.value, module)
            ):
                continue
            if isinstance(node, ast.If) and tests_path(node.test, module):
                waiting += [*node.body, *node.orelse]
                continue
            if isinstance(node, ast.Call) and node not in self.seen:
                message = f"{ast.unparse(node)[:80]} stands where a pass calls nothing; call it in the wrapper"
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
            waiting += ast.iter_child_nodes(node)

    def _all(self) -> None:
        for module in self.modules.values():
            special = _RULE_FUNCTIONS if module.name in self._rules else ()
            if special:
                self._replacement_func(module)
            self._clashes(self.scopes[module.name])
            for statement in module.tree.body:
                if isinstance(statement, ast.FunctionDef) and statement.name in special:
                    self._signature(statement, self.scopes[module.name])
                else:
                    self._module_statement(statement, self.scopes[module.name])

    def _wrapper_parameters(self) -> None:
        """What `replacement_args` picks flows into the function that `replacement_func` returns."""
        for name in self._rules:
            module = self.modules.get(name)
            found = module and self._returned(module)
            arguments = module and module.functions.get("replacement_args")
            if not found or not arguments or not isinstance(arguments.body[-1], ast.Return):
                continue
            value = arguments.body[-1].value
            items = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            self.pass_arguments(found, parameter_kinds(self, module, found, items), {})

    def _returned(self, module: Module) -> ast.FunctionDef | None:
        function = module.functions.get("replacement_func")
        if function is None or not function.body or not isinstance(function.body[-1], ast.Return):
            return None
        value = function.body[-1].value
        return self.host_function(value, self.scopes[module.name]) if value is not None else None

    def _replacement_func(self, module: Module) -> None:
        function = module.functions.get("replacement_func")
        if function is None:
            return
        body = [s for s in function.body if not _is_docstring(s)]
        if function.decorator_list or len(body) != 1 or self._returned(module) is None:
            advice = "write `return NAME` with a function of this directory that launches your kernels"
            self.find("replacement_func", module, function, f"replacement_func only returns a function; {advice}")

    def _module_statement(self, statement: ast.stmt, scope: Scope) -> None:
        if isinstance(statement, ast.ClassDef):
            self._class(statement, scope)
        elif isinstance(statement, ast.Expr) and (
            self._wraps(statement.value, scope) or extends_path(statement.value, scope.module)
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

    def _class(self, own: ast.ClassDef, scope: Scope) -> None:
        """Check fields and methods. What a class may hold at all is checked once, by `check_class`."""
        self.check_free(own.name, own, scope)
        for decorator in own.decorator_list:
            if isinstance(decorator, ast.Call):
                for value in (*decorator.args, *(k.value for k in decorator.keywords)):
                    self.kind(value, scope)
        if any(
            isinstance(s, ast.FunctionDef) and "classmethod" in map(ast.unparse, s.decorator_list) for s in own.body
        ):
            self.class_values.add(own)  # under the name `cls`
        made_by_anyone = own in self.class_values
        if made_by_anyone:
            self.class_values |= {*lineage(self.modules, scope.module, own)}
            self.take_made(list(own_fields(own.body)))
        functional = any(scope.module.dotted(base) == names.FUNCTION for base in own.bases)
        ancestors = lineage(self.modules, scope.module, own)
        homes = ((self.class_homes[one], base) for one in ancestors for base in one.bases)
        enumerated = any((home.dotted(base) or "").startswith("enum.") for home, base in homes)
        for statement in own.body:
            if isinstance(statement, ast.FunctionDef):
                given = statement.name != "__init__" or made_by_anyone
                self._method(statement, scope, given, functional)
            elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                kind = self.kind(statement.value, scope)
                if enumerated and kind.holds_tensors:
                    message = "members of an enumeration are constants; keep tensors in a dict"
                    self.find("container", scope.module, statement, message)
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    if isinstance(target, ast.Name):
                        made = _makes_each(statement.value, scope)
                        self.bind_field(target.id, kind, _SAME if made else statement.value, scope)
                    else:
                        self.find("module_statement", scope.module, statement, "a class binds plain names")
            if isinstance(statement, ast.AnnAssign):
                self.annotation(statement.annotation, scope)

    def _method(self, node: ast.FunctionDef, scope: Scope, given: bool, functional: bool) -> None:
        """Check a method. `given`: it may get what is given to any method of its name. `functional`: it is one of a
        `torch.autograd.Function`."""
        decorators = set()
        for decorator in node.decorator_list:
            dotted = scope.module.dotted(decorator) or ast.unparse(decorator)
            decorators.add(dotted)
            if dotted not in names.METHOD_DECORATORS or scope.find(dotted) is not None:
                self.find("decorator", scope.module, node, f"decorator {dotted} is not allowed on a method")
        self._signature(node, scope)
        first = [*node.args.posonlyargs, *node.args.args][:1]
        plain = first and not decorators & {"staticmethod", "classmethod"}
        inner = self.opened(node, scope, self_name=first[0].arg if plain else None)
        if functional and first and "staticmethod" in decorators and node.name in ("forward", "backward"):
            inner.context = first[0].arg
        self.enter(node, scope, ValueKind.SCALAR)
        if given:
            self.take_given(node, bound=bool(first) and "staticmethod" not in decorators)
        self._clashes(inner)
        self._block(node.body, inner)
        self.kinds.join((METHODS, node.name), RETURN, self.kinds.get(node, RETURN))

    def _wraps(self, value: ast.expr, scope: Scope) -> bool:
        """`torch.fx.wrap(f)` or `torch.fx.wrap("f")` as a statement."""
        return (
            isinstance(value, ast.Call)
            and scope.module.dotted(value.func) == names.WRAP
            and not value.keywords
            and all(isinstance(a, ast.Constant | ast.Name) for a in value.args)
        )

    def _function(self, node: ast.FunctionDef, scope: Scope) -> None:
        kernel = scope.module.kernels.get(node.name) is node
        for decorator in node.decorator_list:
            self._decorator(decorator, node, scope, kernel)
        self._signature(node, scope)
        if kernel:
            return
        if scope.hook:
            self.find("statement", scope.module, node, "a grid or hook of Triton defines no functions")
        inner = self.opened(node, scope, hook=node in self.hooks)
        self.enter(node, scope, ValueKind.TENSOR if node in self.escaped else ValueKind.SCALAR)
        if node in self.cached:
            self.check_cached(node, scope.module)
        self._clashes(inner)
        self._block(node.body, inner)

    def _clashes(self, scope: Scope) -> None:
        for function in scope.clashes:
            message = f"{function.name} is there twice; choose another name"
            self.find("rebinding", scope.module, function, message)

    def _signature(self, node: ast.FunctionDef, scope: Scope) -> None:
        """Defaults and annotations run when the module is imported."""
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.kind(default, scope)
        for annotation in (*(p.annotation for p in parameters(node)), node.returns):
            self.annotation(annotation, scope)
        for name in (node.name, *(p.arg for p in parameters(node))):
            self.check_free(name, node, scope)
        if getattr(node, "type_params", None):
            self.find("annotation", scope.module, node, f"{node.name}: a function of a pass has no type parameters")

    def _decorator(self, node: ast.expr, function: ast.FunctionDef, scope: Scope, kernel: bool) -> None:
        target = node.func if isinstance(node, ast.Call) else node
        dotted = scope.module.dotted(target)
        allowed = {names.JIT, *names.KERNEL_DECORATORS} if kernel else names.HOST_DECORATORS
        if dotted not in allowed:
            advice = "torch.fx.wrap and functools.lru_cache on functions, triton.jit on kernels"
            advice = names.advice(dotted or "") or f"use {advice}"
            self.find("decorator", scope.module, node, f"decorator {ast.unparse(target)} is not allowed; {advice}")
        elif dotted in names.CACHES:
            self.cached.add(function)
        if isinstance(node, ast.Call):
            self.decorator_arguments(node, dotted or "", scope)

    def _block(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.FunctionDef():
                self._function(node, scope)
            case ast.Return():
                kind = ValueKind.SCALAR if node.value is None else self.kind(node.value, scope)
                self.kinds.join(scope.node, RETURN, kind)
            case ast.Assign():
                kind = self.kind(node.value, scope, bound=_has_own_name(node.targets, scope))
                for target in node.targets:
                    self.assign(target, kind, scope, node.value if len(node.targets) == 1 else None)
            case ast.AnnAssign():
                self.annotation(node.annotation, scope)
                if node.value is not None:
                    self.assign(node.target, self.kind(node.value, scope), scope, node.value)
            case ast.AugAssign():
                before, added = self.kind(_load(node.target), scope), self.kind(node.value, scope)
                after = self.operate(node, (before, added), node.op, scope)
                if before is ValueKind.TENSOR:
                    message = f"{ast.unparse(node)} writes into {ast.unparse(node.target)}; {WRITE_ADVICE}"
                    self.find("in_place", scope.module, node, message)
                elif not before.is_tensor:
                    self.put_into(node.target, added, scope)  # `+=` changes a list in place
                self.assign(node.target, after, scope, _SAME)
            case ast.Expr():
                self.kind(node.value, scope)
            case ast.If() | ast.While():
                self.test(node.test, scope)
                self._block(node.body, scope)
                self._block(node.orelse, scope)
            case ast.For():
                self.iterate(node.target, node.iter, scope)
                self._block(node.body, scope)
                self._block(node.orelse, scope)
            case ast.With():
                for item in node.items:
                    self.kind(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self.find("statement", scope.module, node, "leave out `as`; the context has no value to use")
                self._block(node.body, scope)
            case ast.Assert():
                self.test(node.test, scope)
                if node.msg is not None and self.kind(node.msg, scope).holds_tensors:
                    self.read("what an error is made with can be read off its text", scope, node)
            case ast.Raise():
                for part in filter(None, (node.exc, node.cause)):
                    self.kind(part, scope)
            case ast.Try():
                self._try(node, scope)
            case ast.Delete():
                self._delete(node, scope)
            case ast.Match():
                self._match(node, scope)
            case ast.Global():
                for name in filter(is_builtin, node.names):
                    self.find("rebinding", scope.module, node, f"{name} is a built-in; choose another name")
            case ast.Pass() | ast.Break() | ast.Continue() | ast.Import() | ast.ImportFrom():
                pass
            case _:
                message = f"{type(node).__name__} is not allowed in a pass; write plain functions"
                self.find("statement", scope.module, node, message)

    def _delete(self, node: ast.Delete, scope: Scope) -> None:
        """`del x` of a function's own variable. A name of the module would mean the built-in of its name afterwards."""
        for target in node.targets:
            owner = scope.find(target.id) if isinstance(target, ast.Name) else None
            if owner is None or isinstance(owner.node, ast.Module) or owner is not scope or is_builtin(target.id):
                message = "del is for variables of the same function; leave it out"
                self.find("statement", scope.module, node, message)

    def _match(self, node: ast.Match, scope: Scope) -> None:
        """`match` of a number, dtype or text with constants, one after another."""
        if self.kind(node.subject, scope).holds_tensors:
            self.read("which case a tensor is in is one of its values", scope, node)
        for case in node.cases:
            waiting = [case.pattern]
            while waiting:
                pattern = waiting.pop()
                if isinstance(pattern, ast.MatchOr | ast.MatchSequence):
                    waiting += pattern.patterns
                elif isinstance(pattern, ast.MatchValue):
                    self.kind(pattern.value, scope)
                elif not isinstance(pattern, ast.MatchSingleton) and not _is_wildcard(pattern):
                    message = "a case is a constant, several with |, or _; take parts out in the block below"
                    self.find("statement", scope.module, pattern, message)
            if case.guard is not None:
                self.test(case.guard, scope)
            self._block(case.body, scope)

    def _try(self, node: ast.Try, scope: Scope) -> None:
        """Check a `try`: only named errors may be caught, so that an exception which ends the process is not."""
        self._block(node.body, scope)
        for handler in node.handlers:
            kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            if not all(isinstance(k, ast.Name) and k.id in names.PLAIN_VALUES for k in kinds):
                self.find("statement", scope.module, handler, "catch Exception, or an error that you name")
            if handler.name:
                self.check_free(handler.name, handler, scope)
            self._block(handler.body, scope)
        self._block(node.orelse, scope)
        self._block(node.finalbody, scope)


_SAME = ast.Constant(None)  # the value for `assign` of `x += y`, which makes x no other name of y


def _makes_each(value: ast.expr, scope: Scope) -> bool:
    """Whether a field's value is `field(…)`, which has a container made for each instance."""
    return isinstance(value, ast.Call) and scope.module.dotted(value.func) == "dataclasses.field"


def _has_own_name(targets: list[ast.expr], scope: Scope) -> bool:
    """Whether a lambda assigned to these targets is known by its name wherever it is called."""
    owners = [scope.find(t.id) if isinstance(t, ast.Name) else None for t in targets]
    return all(owner is not None and t.id in owner.lambdas for owner, t in zip(owners, targets, strict=True))


def _is_wildcard(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


_PATH_PARTS = frozenset(
    """os.path.dirname os.path.abspath os.path.realpath os.path.join pathlib.Path sys.path.insert sys.path.append
    sys.path""".split()
)


def extends_path(node: ast.expr, module: Module) -> bool:
    """`sys.path.insert(0, os.path.dirname(__file__))` and its kin, which makes siblings importable and no more."""
    if not isinstance(node, ast.Call) or module.dotted(node.func) not in ("sys.path.insert", "sys.path.append"):
        return False
    return not node.keywords and all(_is_own_place(a, module) for a in node.args)


def tests_path(node: ast.expr, module: Module) -> bool:
    """`DIRECTORY not in sys.path`."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.NotIn)
        and len(node.ops) == 1
        and module.dotted(node.comparators[0]) == "sys.path"
        and _is_own_place(node.left, module)
    )


def _is_own_place(node: ast.expr, module: Module) -> bool:
    """Whether an expression is a path made of `__file__`: the pass's directory or one above it. Whole numbers, too."""
    if isinstance(node, ast.Constant):
        return node.value in ("..", ".") or type(node.value) is int
    if isinstance(node, ast.Name):
        return node.id == "__file__"
    if isinstance(node, ast.Attribute):
        return node.attr in ("parent", "resolve") and _is_own_place(node.value, module)
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    text = isinstance(node.func, ast.Name) and node.func.id == "str" and "str" not in module.globals
    known = text or module.dotted(node.func) in _PATH_PARTS or _is_own_place(node.func, module)
    return known and all(_is_own_place(a, module) for a in node.args)


def _load(target: ast.expr) -> ast.expr:
    """The target of `x += y` as the expression that is read."""
    loaded = ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)
    return ast.fix_missing_locations(loaded)


def _kernels_in_host_code(modules: dict[str, Module]) -> Iterator[tuple[ast.FunctionDef, bool]]:
    """Kernels that the modules' code outside of kernels names, by whatever spelling of theirs or of a sibling's, once
    for each place; and whether it is named there as `Launch(KERNEL, …)` or `KERNEL[grid](…)`, so that what it gets is
    known. In all other places it may be handed on to a launch that does not name it."""
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
                yield kernel, id(node) in plain
            inside = module.kernels.get(node.name) is node if isinstance(node, ast.FunctionDef) else False
            waiting += [*node.decorator_list, node.args] if inside else ast.iter_child_nodes(node)
