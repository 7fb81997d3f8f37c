"""The static policy on calls in host code: of torch, of the pass's own functions, of built-ins and of methods."""

import ast

from passbench import policy_names as names
from passbench.policy_expressions import COMPUTE_ADVICE, Expressions
from passbench.policy_scope import RETURN, Kind, Scope, parameters
from passbench.policy_source import Module


class Calls(Expressions):
    """Follows kinds through calls, and refuses those that compute on tensors."""

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

    def call(self, node: ast.Call, scope: Scope) -> Kind:
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
                message = f"{dotted} on a tensor computes outside a kernel; {COMPUTE_ADVICE}"
                self.find("tensor_operator", scope.module, node, message)
            return Kind.SCALAR
        if dotted not in names.ALLOCATORS:
            self.not_allowed(node, dotted, scope)
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
                message = f"{name}() on a tensor computes outside a kernel; {COMPUTE_ADVICE}"
                self.find("tensor_operator", scope.module, node, message)
            return Kind.SCALAR
        return Kind.SCALAR if name in ("len", "range") else self.holder(given)

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
            self.put_into(method.value, put, scope)
            return Kind.TENSOR if base or put else Kind.SCALAR
        rule = "private_name" if name.startswith("_") else "tensor_method"
        self.find(rule, scope.module, node, f"method {name}() is not allowed in host code; {COMPUTE_ADVICE}")
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
