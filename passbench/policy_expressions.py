"""The static policy on host expressions: what kind each is, and what may not be said."""

import ast

from passbench import policy_names as names
from passbench.policy_scope import Kind, Kinds, Scope, open_scope, parameters
from passbench.policy_source import Module, Report

COMPUTE_ADVICE = "do it in a @triton.jit kernel"


class Expressions:
    """Evaluates expressions to kinds; reports only once `report` is set, when the kinds are final."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.modules = modules
        self.kinds = Kinds()
        self.report: Report | None = None
        self.scopes = {name: open_scope(module, module.tree, None) for name, module in modules.items()}
        for name, module in modules.items():
            module.globals |= self.scopes[name].names
        self.escaped: set[ast.FunctionDef] = set()  # host functions used as values: they may get tensors
        self.hooks: set[ast.FunctionDef] = set()  # grid functions and hooks of Triton: they get meta-parameters

    def find(self, rule: str, module: Module, node: ast.AST, message: str) -> None:
        """Note a breach."""
        if self.report is not None:
            self.report.at(rule, module, node, message)

    def call(self, node: ast.Call, scope: Scope) -> Kind:
        """The kind of a call's result; see `passbench.policy_calls`."""
        raise NotImplementedError

    def check_free(self, name: str, node: ast.AST, scope: Scope) -> None:
        """An import keeps its meaning throughout the module."""
        if name in scope.module.imports:
            self.find("rebinding", scope.module, node, f"{name} is an import; choose another name")

    def kind(self, node: ast.expr, scope: Scope, *, hook: bool = False, bound: bool = False) -> Kind:
        """The kind of an expression. `hook`: a grid, or a hook of Triton; `bound`: it is assigned to a name."""
        match node:
            case ast.Constant():
                return Kind.SCALAR
            case ast.Name():
                return self._name(node, scope, hook)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Call():
                return self.call(node, scope)
            case ast.Subscript():
                self.kind(node.slice, scope)
                return self.kind(node.value, scope).item()
            case ast.Slice():
                for part in filter(None, (node.lower, node.upper, node.step)):
                    self.kind(part, scope)
                return Kind.SCALAR
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
                    if isinstance(value, ast.FormattedValue):
                        self.kind(value.value, scope)
                return Kind.SCALAR
            case ast.NamedExpr():
                kind = self.kind(node.value, scope)
                self.assign(node.target, kind, scope, node.value)
                return kind
            case ast.Lambda():
                return self._lambda(node, scope, meta=hook or bound)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                self._generators(node.generators, scope)
                return self.holder([self.kind(node.elt, scope)])
            case ast.DictComp():
                self._generators(node.generators, scope)
                return self.holder([self.kind(node.key, scope), self.kind(node.value, scope)])
        self.find("expression", scope.module, node, f"{type(node).__name__} is not allowed in host code")
        return Kind.TENSOR

    @staticmethod
    def holder(kinds: list[Kind]) -> Kind:
        return Kind.HOLDER if any(kinds) else Kind.SCALAR

    def assign(self, target: ast.expr, kind: Kind, scope: Scope, value: ast.expr | None) -> None:
        """Bind a target; tuples element by element where both sides are written out."""
        if isinstance(target, ast.Name):
            self.check_free(target.id, target, scope)
            owner = scope.find(target.id) or self.scopes[scope.module.name]
            self.kinds.join(owner.node, target.id, kind)
        elif isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for number, element in enumerate(target.elts):
                item = value.elts[number] if same else None
                self.assign(element, self.kind(item, scope) if same else kind.item(), scope, item)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.holder([kind]), scope, None)
        elif isinstance(target, ast.Subscript):
            self.kind(target.slice, scope)
            if self.kind(target.value, scope) is Kind.TENSOR or scope.hook:
                message = f"writing into a tensor in host code; {COMPUTE_ADVICE}"
                self.find("tensor_operator", scope.module, target, message)
            self.put_into(target.value, kind, scope)
        else:
            message = "a pass assigns to its own names only, not to attributes of other objects"
            self.find("attribute_assignment", scope.module, target, message)

    def put_into(self, container: ast.expr, kind: Kind, scope: Scope) -> None:
        """Something of this kind is put into a container."""
        while isinstance(container, ast.Subscript):
            container = container.value
        if isinstance(container, ast.Name) and kind:
            owner = scope.find(container.id)
            if owner is not None:
                self.kinds.join(owner.node, container.id, Kind.HOLDER)

    def operate(self, node: ast.AST, sides: tuple[Kind, ...], op: ast.AST, scope: Scope) -> Kind:
        """An operator on values of these kinds."""
        if isinstance(op, ast.MatMult) or (Kind.TENSOR in sides and not isinstance(op, ast.Not)):
            message = f"an operator on tensors computes outside a kernel; {COMPUTE_ADVICE}"
            self.find("tensor_operator", scope.module, node, message)
        return Kind.HOLDER if Kind.HOLDER in sides else Kind.SCALAR

    def _compare(self, node: ast.Compare, scope: Scope) -> Kind:
        sides = [self.kind(v, scope) for v in (node.left, *node.comparators)]
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            if not isinstance(op, ast.Is | ast.IsNot):
                self.operate(node, (left, right), op, scope)
        return Kind.SCALAR

    def _lambda(self, node: ast.Lambda, scope: Scope, *, meta: bool) -> Kind:
        inner = open_scope(scope.module, node, scope, hook=meta)
        for parameter in parameters(node):
            self.check_free(parameter.arg, node, scope)
            self.kinds.join(node, parameter.arg, Kind.SCALAR if meta else Kind.TENSOR)
        for default in node.args.defaults:
            self.kind(default, scope)
        self.kind(node.body, inner)
        return Kind.SCALAR

    def _generators(self, generators: list[ast.comprehension], scope: Scope) -> None:
        for generator in generators:
            self.assign(generator.target, self.kind(generator.iter, scope).item(), scope, None)
            for test in generator.ifs:
                self.kind(test, scope)

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

    def _name(self, node: ast.Name, scope: Scope, hook: bool) -> Kind:
        function = self.host_function(node, scope)
        if function is not None:
            return self._hand_on(function, hook)
        dotted = scope.module.dotted(node)
        if dotted is not None:
            return self._dotted(node, dotted, scope)
        owner = scope.find(node.id)
        if owner is not None:
            if node.id in owner.lambdas and not hook:
                message = f"{node.id} is a lambda; use it as a grid, or write a function with def"
                self.find("lambda_as_value", scope.module, node, message)
            return self.kinds.get(owner.node, node.id)
        if node.id not in names.PLAIN_VALUES:
            self.find("forbidden_name", scope.module, node, f"{node.id} may not be used as a value in a pass")
        return Kind.SCALAR

    def _hand_on(self, function: ast.FunctionDef, hook: bool) -> Kind:
        """A function of the pass used as a value: called by Triton if `hook`, else by anyone with anything."""
        known = self.hooks if hook else self.escaped
        if function not in known:
            known.add(function)
            self.kinds.changed = True
        return Kind.SCALAR

    def _dotted(self, node: ast.expr, dotted: str, scope: Scope) -> Kind:
        """A name that starts at an import, used as a value."""
        place = scope.module.sibling_function(dotted)
        if place is not None:
            other = self.modules.get(place[0])
            return self.kinds.get(other.tree, place[1]) if other else Kind.SCALAR
        if dotted in names.ALLOCATORS | names.SCALAR_CALLS:
            self.find("function_as_value", scope.module, node, f"call {dotted} where it is needed")
            return Kind.SCALAR
        if dotted in names.HOST_VALUES or dotted.startswith("passbench.launch."):
            return Kind.SCALAR
        if dotted in names.MODULES or dotted in scope.module.siblings:
            message = f"{ast.unparse(node)} is a module; use its members by name and do not hand it on"
            self.find("module_as_value", scope.module, node, message)
        else:
            self.not_allowed(node, dotted, scope)
        return Kind.SCALAR

    def not_allowed(self, node: ast.expr, dotted: str, scope: Scope) -> None:
        message = f"{dotted} is not allowed in host code; {COMPUTE_ADVICE}; of torch only dtypes and allocators are"
        self.find("forbidden_call", scope.module, node, message)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Kind:
        dotted = scope.module.dotted(node)
        if dotted is not None:
            if any(part.startswith("_") for part in dotted.split(".")):
                self.find("private_name", scope.module, node, f"{dotted} is private; a pass uses public names")
                return Kind.SCALAR
            function = self.host_function(node, scope)
            if function is not None:
                return self._hand_on(function, False)
            return self._dotted(node, dotted, scope)
        base = self.kind(node.value, scope)
        if node.attr.startswith("_"):
            self.find("private_name", scope.module, node, f"{node.attr} is private; a pass uses public names")
        elif node.attr in names.VIEW_ATTRIBUTES:
            return base
        elif node.attr not in names.TENSOR_ATTRIBUTES and (base or node.attr not in names.SCALAR_ATTRIBUTES):
            message = f"attribute {node.attr} is not allowed in host code; use shape, stride(), dtype and the like"
            self.find("forbidden_attribute", scope.module, node, message)
        return Kind.SCALAR
