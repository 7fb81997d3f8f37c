"""The static policy on host expressions: what kind each is, and what may not be said."""

import ast

from passbench import policy_names as names
from passbench.policy_scope import RETURN, Kind, Kinds, Scope, open_scope, parameters
from passbench.policy_source import Module, Report

_COMPUTE_ADVICE = "do it in a @triton.jit kernel"
_STRUCTURE = (ast.Tuple, ast.List, ast.Set)


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
                return self._call(node, scope)
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
                return self._holder([self.kind(e, scope) for e in node.elts])
            case ast.Dict():
                keys = [self.kind(k, scope) for k in node.keys if k is not None]
                return self._holder([*keys, *(self.kind(v, scope, hook=hook) for v in node.values)])
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
                return self._holder([self.kind(node.elt, scope)])
            case ast.DictComp():
                self._generators(node.generators, scope)
                return self._holder([self.kind(node.key, scope), self.kind(node.value, scope)])
        self.find("expression", scope.module, node, f"{type(node).__name__} is not allowed in host code")
        return Kind.TENSOR

    @staticmethod
    def _holder(kinds: list[Kind]) -> Kind:
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
            self.assign(target.value, self._holder([kind]), scope, None)
        elif isinstance(target, ast.Subscript):
            self.kind(target.slice, scope)
            if self.kind(target.value, scope) is Kind.TENSOR or scope.hook:
                message = f"writing into a tensor in host code; {_COMPUTE_ADVICE}"
                self.find("tensor_operator", scope.module, target, message)
            self._into(target.value, kind, scope)
        else:
            message = "a pass assigns to its own names only, not to attributes of other objects"
            self.find("attribute_assignment", scope.module, target, message)

    def _into(self, container: ast.expr, kind: Kind, scope: Scope) -> None:
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
            message = f"an operator on tensors computes outside a kernel; {_COMPUTE_ADVICE}"
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
            self._not_allowed(node, dotted, scope)
        return Kind.SCALAR

    def _not_allowed(self, node: ast.expr, dotted: str, scope: Scope) -> None:
        message = f"{dotted} is not allowed in host code; {_COMPUTE_ADVICE}; of torch only dtypes and allocators are"
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

    def _arguments(self, node: ast.Call, scope: Scope, hook: bool = False) -> tuple[list[Kind], dict[str | None, Kind]]:
        positional = [self.kind(a, scope, hook=hook) for a in node.args]
        keywords = {k.arg: self.kind(k.value, scope, hook=hook) for k in node.keywords}
        if "extern_libs" in keywords:
            message = "libraries from outside are not allowed; write the kernel in Triton"
            self.find("extern_libs", scope.module, node, message)
        return positional, keywords

    def pass_arguments(
        self, function: ast.FunctionDef, positional: list[Kind], keywords: dict[str | None, Kind]
    ) -> Kind:
        """Hand arguments of these kinds to a function of the pass; returns the kind of its result."""
        order = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        for number, kind in enumerate(positional):
            if number < len(order):
                self.kinds.join(function, order[number], kind)
        for name, kind in keywords.items():
            if name is not None:
                self.kinds.join(function, name, kind)
        if keywords.get(None):  # **kwargs may go anywhere
            for name in order:
                self.kinds.join(function, name, Kind.TENSOR)
        return self.kinds.get(function, RETURN)

    def decorator_arguments(self, node: ast.Call, dotted: str, scope: Scope) -> None:
        """Arguments of `triton.jit`, `autotune` and `heuristics`; the latter's values must be plain numbers."""
        self._arguments(node, scope, hook=dotted in names.KERNEL_DECORATORS)
        if dotted != "triton.heuristics":
            return
        for argument in (*node.args, *(k.value for k in node.keywords)):
            for value in argument.values if isinstance(argument, ast.Dict) else [argument]:
                if not (isinstance(value, ast.Lambda) and _is_plain(value.body, scope.module)):
                    message = "a heuristic is a lambda whose value is a comparison, or a min, max, int or bool"
                    self.find("heuristic", scope.module, value, message)

    def _call(self, node: ast.Call, scope: Scope) -> Kind:
        dotted = scope.module.dotted(node.func)
        function = self.host_function(node.func, scope)
        if function is not None:
            starred = any(isinstance(a, ast.Starred) for a in node.args)
            positional, keywords = self._arguments(node, scope)
            if starred and any(positional):
                positional = [Kind.TENSOR] * len(parameters(function))
            return self.pass_arguments(function, positional, keywords)
        if dotted is not None:
            return self._call_dotted(node, dotted, scope)
        if isinstance(node.func, ast.Name):
            return self._call_name(node, node.func.id, scope)
        if isinstance(node.func, ast.Attribute):
            return self._call_method(node, node.func, scope)
        if isinstance(node.func, ast.Subscript):  # kernel[grid](...), or a function out of a table
            self.kind(node.func.value, scope)
            self.kind(node.func.slice, scope, hook=True)
            self._arguments(node, scope)
            return Kind.TENSOR
        self.kind(node.func, scope)
        self._arguments(node, scope)
        self.find("dynamic_call", scope.module, node, "call functions of the pass by name")
        return Kind.TENSOR

    def _call_dotted(self, node: ast.Call, dotted: str, scope: Scope) -> Kind:
        plain = dotted in names.SCALAR_CALLS | names.MATH
        positional, keywords = self._arguments(node, scope)
        if scope.module.sibling_function(dotted) or dotted.startswith("passbench.launch."):
            return Kind.TENSOR
        if plain:
            if Kind.TENSOR in (*positional, *keywords.values()) and not dotted.startswith("torch."):
                message = f"{dotted} on a tensor computes outside a kernel; {_COMPUTE_ADVICE}"
                self.find("tensor_operator", scope.module, node, message)
            return Kind.SCALAR
        if dotted not in names.ALLOCATORS:
            self._not_allowed(node, dotted, scope)
        return Kind.TENSOR

    def _call_name(self, node: ast.Call, name: str, scope: Scope) -> Kind:
        owner = scope.find(name)
        if name == "isinstance" and owner is None and len(node.args) == 2:
            self.kind(node.args[0], scope)
            return Kind.SCALAR
        positional, keywords = self._arguments(node, scope)
        given = [*positional, *keywords.values()]
        if owner is not None:
            if name in owner.lambdas and any(given):
                message = f"{name} is a lambda and gets a tensor; write a function with def"
                self.find("dynamic_call", scope.module, node, message)
            return Kind.TENSOR
        if name not in names.HOST_BUILTINS:
            self.find("forbidden_name", scope.module, node, f"{name} may not be called in a pass")
            return Kind.TENSOR
        if name in names.REDUCING_BUILTINS:
            if any(given):
                message = f"{name}() on a tensor computes outside a kernel; {_COMPUTE_ADVICE}"
                self.find("tensor_operator", scope.module, node, message)
            return Kind.SCALAR
        return Kind.SCALAR if name in ("len", "range") else self._holder(given)

    def _call_method(self, node: ast.Call, method: ast.Attribute, scope: Scope) -> Kind:
        base = self.kind(method.value, scope)
        positional, keywords = self._arguments(node, scope)
        name = method.attr
        if name in names.METADATA_METHODS:
            return Kind.SCALAR
        if name in names.VIEW_METHODS:
            return base
        if name in names.CONTAINER_METHODS and base is not Kind.TENSOR:
            put = max([*positional, *keywords.values(), Kind.SCALAR])
            self._into(method.value, put, scope)
            return Kind.TENSOR if base or put else Kind.SCALAR
        rule = "private_name" if name.startswith("_") else "tensor_method"
        self.find(rule, scope.module, node, f"method {name}() is not allowed in host code; {_COMPUTE_ADVICE}")
        return Kind.TENSOR


def _is_plain(node: ast.expr, module: Module) -> bool:
    """Whether the value of an expression is a Python number or boolean, whatever its operands are."""
    if isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and node.func.id in names.HEURISTIC_CALLS
        return named or module.dotted(node.func) in ("triton.next_power_of_2", "triton.cdiv")
    if isinstance(node, ast.IfExp):
        return _is_plain(node.body, module) and _is_plain(node.orelse, module)
    if isinstance(node, ast.BoolOp):
        return all(_is_plain(v, module) for v in node.values)
    return isinstance(node, ast.Constant | ast.Compare)
