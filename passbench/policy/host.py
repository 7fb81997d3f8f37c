"""The static policy on host code: wrappers, helpers, module level, grid functions and Triton's host hooks.

Host code may not compute on tensors. Which expressions may be tensors is worked out over all modules of the pass: a
variable has one kind, the largest of what is assigned to it, and kinds flow through calls until nothing changes.
"""

import ast

from passbench.policy import allowlists as names
from passbench.policy.calls import Calls
from passbench.policy.modules import Module, Report, is_builtin
from passbench.policy.scopes import RETURN, Scope, ValueKind, open_scope, parameters

_RULE_FUNCTIONS = ("pattern", "replacement_args", "replacement_func")
_MODULE_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
_ANNOTATION_PARTS = (
    ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.Tuple, ast.List, ast.BinOp, ast.BitOr, ast.Load,
)  # fmt: skip


_ROUNDS = 40  # of following kinds until nothing changes; passes that people and models write take under ten


class HostChecker(Calls):
    """Checks the host code of all modules of a pass."""

    def __init__(self, modules: dict[str, Module], rules: tuple[str, ...], report: Report) -> None:
        super().__init__(modules)
        self._rules, self._target = rules, report
        found = (modules[rule].functions for rule in rules if rule in modules)
        self.special = {functions[n] for functions in found for n in _RULE_FUNCTIONS if n in functions}

    def check(self) -> None:
        """Report every breach, once the kinds of all variables are known."""
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
            kinds = [ValueKind.TENSOR if _names_anything(item, module) else ValueKind.SCALAR for item in items]
            self.pass_arguments(found, kinds, {})

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
        if isinstance(statement, ast.FunctionDef):
            self._function(statement, scope)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom) or _is_docstring(
            statement
        ):
            self._statement(statement, scope)
        elif isinstance(statement, ast.Expr) and self._wraps(statement.value, scope):
            return
        else:
            message = "a pass's module holds imports, constants and functions; do the rest in the wrapper"
            self.find("module_statement", scope.module, statement, message)

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
            self._decorator(decorator, scope, kernel)
        self._signature(node, scope)
        if kernel:
            return
        if scope.hook:
            self.find("statement", scope.module, node, "a grid or hook of Triton defines no functions")
        inner = open_scope(scope.module, node, scope, hook=node in self.hooks)
        self.enter(node, scope, ValueKind.TENSOR if node in self.escaped else ValueKind.SCALAR)
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
            self._annotation(annotation, scope)
        for name in (node.name, *(p.arg for p in parameters(node))):
            self.check_free(name, node, scope)
        if is_builtin(node.name) or getattr(node, "type_params", None):
            self.find("rebinding", scope.module, node, f"{node.name}: choose a name that is no built-in, untyped")

    def _decorator(self, node: ast.expr, scope: Scope, kernel: bool) -> None:
        target = node.func if isinstance(node, ast.Call) else node
        dotted = scope.module.dotted(target)
        allowed = {names.JIT, *names.KERNEL_DECORATORS} if kernel else {names.WRAP}
        if dotted not in allowed:
            message = f"decorator {ast.unparse(target)} is not allowed; use torch.fx.wrap, or triton.jit on kernels"
            self.find("decorator", scope.module, node, message)
        elif isinstance(node, ast.Call):
            self.decorator_arguments(node, dotted, scope)

    def _annotation(self, node: ast.expr | None, scope: Scope) -> None:
        if node is None:
            return
        for part in ast.walk(node):
            private = isinstance(part, ast.Attribute) and part.attr.startswith("_")
            if not isinstance(part, _ANNOTATION_PARTS) or private:
                self.find("annotation", scope.module, node, "an annotation names a type; it computes nothing")
                return

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
                self._annotation(node.annotation, scope)
                if node.value is not None:
                    self.assign(node.target, self.kind(node.value, scope), scope, node.value)
            case ast.AugAssign():
                before, added = self.kind(_load(node.target), scope), self.kind(node.value, scope)
                after = self.operate(node, (before, added), node.op, scope)
                self.put_into(node.target, added, scope)  # `+=` changes a list in place
                self.assign(node.target, after, scope, _SAME)
            case ast.Expr():
                self.kind(node.value, scope)
            case ast.If() | ast.While():
                self.kind(node.test, scope)
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
                for part in filter(None, (node.test, node.msg)):
                    self.kind(part, scope)
            case ast.Raise():
                for part in filter(None, (node.exc, node.cause)):
                    self.kind(part, scope)
            case ast.Pass() | ast.Break() | ast.Continue() | ast.Global() | ast.Import() | ast.ImportFrom():
                pass
            case _:
                message = f"{type(node).__name__} is not allowed in a pass; write plain functions"
                self.find("statement", scope.module, node, message)


_SAME = ast.Constant(None)  # `x += y` gives x no other's value


def _has_own_name(targets: list[ast.expr], scope: Scope) -> bool:
    """Whether a lambda assigned to these targets is known by its name wherever it is called."""
    owners = [scope.find(t.id) if isinstance(t, ast.Name) else None for t in targets]
    return all(owner is not None and t.id in owner.lambdas for owner, t in zip(owners, targets, strict=True))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _names_anything(node: ast.expr, module: Module) -> bool:
    return any(isinstance(n, ast.Name) and n.id not in module.imports for n in ast.walk(node))


def _load(target: ast.expr) -> ast.expr:
    """The target of `x += y` as the expression that is read."""
    loaded = ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)
    return ast.fix_missing_locations(loaded)
