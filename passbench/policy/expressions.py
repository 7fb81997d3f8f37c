"""The static policy on host expressions: what kind each is, and what may not be said."""

import ast

from passbench.policy import allowlists as names
from passbench.policy.bindings import COMPUTE_ADVICE, Bindings
from passbench.policy.modules import is_builtin
from passbench.policy.scopes import Scope, ValueKind, open_scope, parameters

LOADING_ADVICE = "code from outside is not allowed; write the kernel in Triton"


class Expressions(Bindings):
    """Evaluates expressions to kinds; reports only once `report` is set, when the kinds are final."""

    def call(self, node: ast.Call, scope: Scope) -> ValueKind:
        """The kind of a call's result; see `passbench.policy.calls`."""
        raise NotImplementedError

    def kind(self, node: ast.expr, scope: Scope, *, hook: bool = False, bound: bool = False) -> ValueKind:
        """The kind of an expression. `hook`: a grid, or a hook of Triton; `bound`: it is assigned to a name."""
        match node:
            case ast.Constant():
                if node.value in names.LOADING_OPTIONS:
                    self.find("extern_libs", scope.module, node, f"{node.value}: {LOADING_ADVICE}")
                return ValueKind.SCALAR
            case ast.Name():
                return self._name(node, scope, hook)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Call():
                return self.call(node, scope)
            case ast.Subscript():
                return self._subscript(node, scope)
            case ast.Slice():
                parts = filter(None, (node.lower, node.upper, node.step))
                return max((self.kind(part, scope) for part in parts), default=ValueKind.SCALAR)
            case ast.BinOp():
                sides = self.kind(node.left, scope), self.kind(node.right, scope)
                return self.operate(node, sides, node.op, scope)
            case ast.UnaryOp():
                return self.operate(node, (self.kind(node.operand, scope),), node.op, scope)
            case ast.Compare():
                return self._compare(node, scope)
            case ast.BoolOp():
                return max(self.kind(v, scope) for v in node.values)
            case ast.IfExp():
                self.kind(node.test, scope)
                return max(self.kind(node.body, scope, hook=hook), self.kind(node.orelse, scope, hook=hook))
            case ast.Tuple() | ast.List() | ast.Set():
                return self.holder([self.kind(e, scope) for e in node.elts])
            case ast.Dict():
                keys = [self.kind(k, scope) for k in node.keys if k is not None]
                return self.holder([*keys, *(self.kind(v, scope, hook=hook) for v in node.values)])
            case ast.Starred():
                return self.kind(node.value, scope)
            case ast.JoinedStr():
                for value in node.values:
                    self.kind(value, scope)
                return ValueKind.SCALAR
            case ast.FormattedValue():
                if self.kind(node.value, scope):
                    message = "the values of a tensor are not for host code; name its shape or dtype"
                    self.find("tensor_operator", scope.module, node, message)
                if node.format_spec is not None:
                    self.kind(node.format_spec, scope)
                return ValueKind.SCALAR
            case ast.NamedExpr():
                kind = self.kind(node.value, scope)
                self.assign(node.target, kind, scope, None)  # its value is known by another name too, maybe
                return max(kind, self.kind(_loaded(node.target), scope))
            case ast.Lambda():
                if hook:
                    self.mark_hook(node)
                return self._lambda(node, scope, bound=bound)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                self._generators(node.generators, scope)
                return self.holder([self.kind(node.elt, scope)])
            case ast.DictComp():
                self._generators(node.generators, scope)
                return self.holder([self.kind(node.key, scope), self.kind(node.value, scope)])
        self.find("expression", scope.module, node, f"{type(node).__name__} is not allowed in host code")
        return ValueKind.TENSOR

    def operate(self, node: ast.AST, sides: tuple[ValueKind, ...], op: ast.AST, scope: Scope) -> ValueKind:
        """An operator on values of these kinds."""
        formats = isinstance(op, ast.Mod) and any(sides)  # "%s" % (x,)
        if isinstance(op, ast.MatMult) or formats or (ValueKind.TENSOR in sides and not isinstance(op, ast.Not)):
            message = f"an operator on tensors computes outside a kernel; {COMPUTE_ADVICE}"
            self.find("tensor_operator", scope.module, node, message)
        return ValueKind.HOLDER if ValueKind.HOLDER in sides else ValueKind.SCALAR

    def _compare(self, node: ast.Compare, scope: Scope) -> ValueKind:
        sides = [self.kind(v, scope) for v in (node.left, *node.comparators)]
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            looks_up = isinstance(op, ast.In | ast.NotIn) and not left and right is not ValueKind.TENSOR
            if (left or right) and not looks_up and not isinstance(op, ast.Is | ast.IsNot):
                message = f"comparing tensors computes outside a kernel; {COMPUTE_ADVICE}"
                self.find("tensor_operator", scope.module, node, message)
        return ValueKind.SCALAR

    def _lambda(self, node: ast.Lambda, scope: Scope, *, bound: bool) -> ValueKind:
        inner = open_scope(scope.module, node, scope, hook=node in self.hooks)
        for parameter in parameters(node):
            self.check_free(parameter.arg, node, scope)
        self.enter(node, scope, ValueKind.SCALAR if bound else ValueKind.TENSOR)
        self.kind(node.body, inner)
        return ValueKind.SCALAR

    def _generators(self, generators: list[ast.comprehension], scope: Scope) -> None:
        for generator in generators:
            self.iterate(generator.target, generator.iter, scope)
            for name in (n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)):
                if is_builtin(name) or (scope.parent is not None and scope.parent.find(name) is not None):
                    message = f"{name} means something else outside this expression; choose another name"
                    self.find("rebinding", scope.module, generator.target, message)
            for test in generator.ifs:
                self.kind(test, scope)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> ValueKind:
        self.index(node, scope)
        kind = self.kind(node.value, scope).item()
        owner = scope.find(node.value.id) if isinstance(node.value, ast.Name) else None
        named = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
        if owner is not None and owner.hook and named:
            a = owner.node.args
            if node.value.id in {p.arg for p in (*a.posonlyargs, *a.args)[:2]}:
                return self.launched(node.slice.value)
        return kind

    def index(self, node: ast.Subscript, scope: Scope) -> None:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if self.kind(node.slice, scope) or any(isinstance(p, ast.List | ast.ListComp) for p in parts):
            message = f"indexing with tensors or lists gathers outside a kernel; {COMPUTE_ADVICE}"
            self.find("tensor_operator", scope.module, node, message)

    def host_function(self, node: ast.expr, scope: Scope) -> ast.FunctionDef | None:
        """The host function of the pass that an expression names, here or in a sibling."""
        dotted = scope.module.dotted(node)
        if dotted is not None:
            place = scope.module.sibling_function(dotted)
            other = self.modules.get(place[0]) if place else None
            return other.functions.get(place[1]) if other else None
        if isinstance(node, ast.Name):
            owner = scope.find(node.id)
            return owner.functions.get(node.id) if owner else None
        return None

    def _name(self, node: ast.Name, scope: Scope, hook: bool) -> ValueKind:
        function = self.host_function(node, scope)
        if function is not None:
            return self._hand_on(function, hook, node, scope)
        dotted = scope.module.dotted(node)
        if dotted is not None:
            return self._dotted(node, dotted, scope)
        owner = scope.find(node.id)
        if owner is not None:
            for function in owner.lambdas.get(node.id, []):
                if hook:
                    self.mark_hook(function)
                else:
                    message = f"{node.id} is a lambda; use it as a grid, or write a function with def"
                    self.find("lambda_as_value", scope.module, node, message)
            return self.kinds.get(owner.node, node.id)
        if node.id not in names.PLAIN_VALUES:
            self.find("forbidden_name", scope.module, node, f"{node.id} may not be used as a value in a pass")
        return ValueKind.SCALAR

    def _hand_on(self, function: ast.FunctionDef, hook: bool, node: ast.expr, scope: Scope) -> ValueKind:
        """A function of the pass used as a value: called by Triton if `hook`, else by anyone with anything."""
        self.check_callable(function, node, scope)
        if hook:
            self.mark_hook(function)
        elif function not in self.escaped:
            self.escaped.add(function)
            self.kinds.changed = True
        return ValueKind.SCALAR

    def check_callable(self, function: ast.FunctionDef, node: ast.AST, scope: Scope) -> None:
        """`pattern` may hold any operation; nothing of the pass runs it."""
        if function in self.special:
            message = f"{function.name} is for PassBench alone; {COMPUTE_ADVICE}"
            self.find("forbidden_call", scope.module, node, message)

    def _dotted(self, node: ast.expr, dotted: str, scope: Scope) -> ValueKind:
        """A name that starts at an import, used as a value."""
        place = scope.module.sibling_function(dotted)
        if place is not None:
            self.check_sibling(place, node, scope)
            other = self.modules.get(place[0])
            return self.kinds.get(other.tree, place[1]) if other else ValueKind.SCALAR
        if dotted in names.ALLOCATORS | names.SCALAR_CALLS | {names.LAUNCH}:
            self.find("function_as_value", scope.module, node, f"call {dotted} where it is needed")
            return ValueKind.SCALAR
        if dotted in names.HOST_VALUES:
            return ValueKind.SCALAR
        if dotted in names.MODULES or dotted in scope.module.siblings:
            message = f"{ast.unparse(node)} is a module; use its members by name and do not hand it on"
            self.find("module_as_value", scope.module, node, message)
        else:
            self.not_allowed(node, dotted, scope)
        return ValueKind.SCALAR

    def check_sibling(self, place: tuple[str, str], node: ast.expr, scope: Scope) -> None:
        """A lambda stays in its module: only there is it known what it gets."""
        other = self.scopes.get(place[0])
        if other is not None and place[1] in other.lambdas:
            message = f"{place[1]} is a lambda of another module; write a function with def"
            self.find("lambda_as_value", scope.module, node, message)

    def not_allowed(self, node: ast.expr, dotted: str, scope: Scope) -> None:
        message = f"{dotted} is not allowed in host code; {COMPUTE_ADVICE}; of torch only dtypes and allocators are"
        self.find("forbidden_call", scope.module, node, message)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> ValueKind:
        dotted = scope.module.dotted(node)
        if dotted is not None:
            if any(part.startswith("_") for part in dotted.split(".")):
                self.find("private_name", scope.module, node, f"{dotted} is private; a pass uses public names")
                return ValueKind.SCALAR
            function = self.host_function(node, scope)
            if function is not None:
                return self._hand_on(function, False, node, scope)
            return self._dotted(node, dotted, scope)
        base = self.kind(node.value, scope)
        if node.attr.startswith("_"):
            self.find("private_name", scope.module, node, f"{node.attr} is private; a pass uses public names")
        elif node.attr in names.VIEW_ATTRIBUTES:
            return base
        elif node.attr in names.CONFIG_ATTRIBUTES:
            return ValueKind.SCALAR
        elif node.attr not in names.TENSOR_ATTRIBUTES and (base or node.attr not in names.SCALAR_ATTRIBUTES):
            message = f"attribute {node.attr} is not allowed in host code; use shape, stride(), dtype and the like"
            self.find("forbidden_attribute", scope.module, node, message)
        return ValueKind.SCALAR


def _loaded(target: ast.Name) -> ast.Name:
    return ast.copy_location(ast.Name(target.id, ast.Load()), target)
