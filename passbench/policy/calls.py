"""The static policy on calls in host code: of torch, of the pass's own functions, of built-ins and of methods."""

import ast

from passbench.policy import allowlists as names
from passbench.policy.expressions import COMPUTE_ADVICE, LOADING_ADVICE, Expressions
from passbench.policy.modules import Module
from passbench.policy.scopes import RETURN, Scope, ValueKind, parameters


class Calls(Expressions):
    """Follows kinds through calls, and refuses those that compute on tensors."""

    def _arguments(
        self, node: ast.Call, scope: Scope, hook: bool = False
    ) -> tuple[list[ValueKind], dict[str | None, ValueKind]]:
        positional = [self.kind(a, scope, hook=hook) for a in node.args]
        keywords: dict[str | None, ValueKind] = {}
        for keyword in node.keywords:  # ** may be there several times
            kind = self.kind(keyword.value, scope, hook=hook)
            keywords[keyword.arg] = max(kind, keywords.get(keyword.arg, kind))
            if keyword.arg in names.LOADING_OPTIONS:
                self.find("extern_libs", scope.module, node, f"{keyword.arg}: {LOADING_ADVICE}")
        return positional, keywords

    def pass_arguments(
        self, function: ast.FunctionDef, positional: list[ValueKind], keywords: dict[str | None, ValueKind]
    ) -> ValueKind:
        """Hand arguments of these kinds to a function or kernel of the pass; returns the kind of its result."""
        order = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        for number, kind in enumerate(positional):
            if number < len(order):
                self.kinds.join(function, order[number], kind)
        for name, kind in keywords.items():
            if name is not None:
                self.kinds.join(function, name, kind)
        if keywords.get(None):  # **kwargs may go anywhere
            for parameter in parameters(function):
                self.kinds.join(function, parameter.arg, ValueKind.TENSOR)
        return self.kinds.get(function, RETURN)

    def decorator_arguments(self, node: ast.Call, dotted: str, scope: Scope) -> None:
        """Arguments of `triton.jit`, `autotune` and `heuristics`; the latter's values must be plain numbers."""
        self._arguments(node, scope, hook=dotted in names.KERNEL_DECORATORS)
        for keyword in node.keywords:
            if keyword.arg == "prune_configs_by" and not _prunes_early(keyword.value):
                message = "rank configurations in early_config_prune; no other function of prune_configs_by is allowed"
                self.find("prune_configs_by", scope.module, node, message)
        if dotted != "triton.heuristics":
            return
        for argument in (*node.args, *(k.value for k in node.keywords)):
            for value in argument.values if isinstance(argument, ast.Dict) else [argument]:
                if not (isinstance(value, ast.Lambda) and _is_plain(value.body, scope.module)):
                    message = "a heuristic is a lambda whose value is a comparison, or a min, max, int or bool"
                    self.find("heuristic", scope.module, value, message)

    def call(self, node: ast.Call, scope: Scope) -> ValueKind:
        dotted = scope.module.dotted(node.func)
        function = self.host_function(node.func, scope)
        if function is not None:
            self.check_callable(function, node, scope)
            positional, keywords = self._arguments(node, scope)
            if function in self.hooks and any((*positional, *keywords.values())):
                message = f"{function.name} is a grid or hook of Triton, which alone calls it"
                self.find("dynamic_call", scope.module, node, message)
            return self._pass_starred(node, function, positional, keywords)
        if dotted is not None:
            return self._call_dotted(node, dotted, scope)
        if isinstance(node.func, ast.Name):
            return self._call_name(node, node.func.id, scope)
        if isinstance(node.func, ast.Attribute):
            return self._call_method(node, node.func, scope)
        if isinstance(node.func, ast.Subscript):  # kernel[grid](...), or a function out of a table
            self.kind(node.func.value, scope)
            self.kind(node.func.slice, scope, hook=True)
            self._launch(node, self._kernel(node.func.value, scope), *self._arguments(node, scope))
            return ValueKind.TENSOR
        self.kind(node.func, scope)
        self._arguments(node, scope)
        self.find("dynamic_call", scope.module, node, "call functions of the pass by name")
        return ValueKind.TENSOR

    def _pass_starred(
        self,
        node: ast.Call,
        function: ast.FunctionDef,
        positional: list[ValueKind],
        keywords: dict[str | None, ValueKind],
    ) -> ValueKind:
        starred = any(isinstance(a, ast.Starred) for a in node.args)
        if starred and any(positional):
            positional = [ValueKind.TENSOR] * len(parameters(function))
        return self.pass_arguments(function, positional, keywords)

    def _kernel(self, node: ast.expr, scope: Scope) -> ast.FunctionDef | None:
        """The kernel that an expression names, here or in a sibling; None if it takes more than a look to know."""
        dotted = scope.module.dotted(node)
        place = scope.module.sibling_function(dotted) if dotted else None
        if place is not None:
            return self.modules[place[0]].kernels.get(place[1]) if place[0] in self.modules else None
        if isinstance(node, ast.Name) and scope.find(node.id) is self.scopes[scope.module.name]:
            return scope.module.kernels.get(node.id)
        return None

    def _launch(
        self,
        node: ast.Call,
        kernel: ast.FunctionDef | None,
        positional: list[ValueKind],
        keywords: dict[str | None, ValueKind],
    ) -> None:
        """Note what kernels get, for Triton hands it to their hooks; None: any kernel of the pass."""
        kernels = [k for module in self.modules.values() for k in module.kernels.values()]
        for function in kernels if kernel is None else [kernel]:
            self._pass_starred(node, function, positional, keywords)

    def _call_dotted(self, node: ast.Call, dotted: str, scope: Scope) -> ValueKind:
        plain = dotted in names.SCALAR_CALLS | names.MATH
        positional, keywords = self._arguments(node, scope)
        if dotted == names.LAUNCH:
            if not node.args or self._kernel(node.args[0], scope) is None:
                message = "Launch takes a @triton.jit kernel of the pass by its name, then the grid and constants"
                self.find("launch", scope.module, node, message)
            if any((*positional, *keywords.values())):
                self.find("launch", scope.module, node, "call the launch with the tensors; Launch takes none")
            return ValueKind.SCALAR
        place = scope.module.sibling_function(dotted)
        if place is not None:
            self.check_sibling(place, node, scope)
            self._launch(node, None, positional, keywords)
            return ValueKind.TENSOR
        if dotted == "torch.as_tensor" and any((*positional, *keywords.values())):
            message = f"as_tensor of a tensor converts it outside a kernel; {COMPUTE_ADVICE}"
            self.find("tensor_operator", scope.module, node, message)
        if plain:
            if any((*positional, *keywords.values())) and not dotted.startswith("torch."):
                message = f"{dotted} on a tensor computes outside a kernel; {COMPUTE_ADVICE}"
                self.find("tensor_operator", scope.module, node, message)
            return ValueKind.SCALAR
        if dotted not in names.ALLOCATORS:
            self.not_allowed(node, dotted, scope)
        return ValueKind.TENSOR

    def _call_name(self, node: ast.Call, name: str, scope: Scope) -> ValueKind:
        owner = scope.find(name)
        if name == "isinstance" and owner is None and len(node.args) == 2 and not node.keywords:
            self.kind(node.args[0], scope)
            if not self._is_type(node.args[1], scope):
                message = "isinstance is for torch.Tensor, int, float, bool, str, tuple and list, written out"
                self.find("forbidden_name", scope.module, node, message)
            return ValueKind.SCALAR
        positional, keywords = self._arguments(node, scope)
        given = [*positional, *keywords.values()]
        if owner is not None:
            if name in owner.lambdas and any(given):
                message = f"{name} is a lambda and gets a tensor; write a function with def"
                self.find("dynamic_call", scope.module, node, message)
            self._launch(node, None, positional, keywords)
            return ValueKind.TENSOR
        if name not in names.HOST_BUILTINS:
            self.find("forbidden_name", scope.module, node, f"{name} may not be called in a pass")
            return ValueKind.TENSOR
        if name in names.REDUCING_BUILTINS or (name in ("reversed", "range") and ValueKind.TENSOR in given):
            if any(given):
                message = f"{name}() on a tensor computes outside a kernel; {COMPUTE_ADVICE}"
                self.find("tensor_operator", scope.module, node, message)
            return ValueKind.SCALAR
        return ValueKind.SCALAR if name in ("len", "range") else self.holder(given)

    def _call_method(self, node: ast.Call, method: ast.Attribute, scope: Scope) -> ValueKind:
        base = self.kind(method.value, scope)
        positional, keywords = self._arguments(node, scope)
        name = method.attr
        if name in names.METADATA_METHODS:
            return ValueKind.SCALAR
        if name in names.VIEW_METHODS:
            return base
        if name in names.CONTAINER_METHODS and base is not ValueKind.TENSOR:
            put = max([*positional, *keywords.values(), ValueKind.SCALAR])
            if name in names.PUTTING_METHODS:
                self.put_into(method.value, put, scope)
            return ValueKind.TENSOR if base or put else ValueKind.SCALAR
        rule = "private_name" if name.startswith("_") else "tensor_method"
        self.find(rule, scope.module, node, f"method {name}() is not allowed in host code; {COMPUTE_ADVICE}")
        return ValueKind.TENSOR

    def _is_type(self, node: ast.expr, scope: Scope) -> bool:
        if isinstance(node, ast.Tuple):
            return all(self._is_type(e, scope) for e in node.elts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._is_type(node.left, scope) and self._is_type(node.right, scope)
        if isinstance(node, ast.Name) and scope.find(node.id) is None and node.id in names.TYPES:
            return True
        return scope.module.dotted(node) in names.TYPES


def _prunes_early(node: ast.expr) -> bool:
    """Whether `prune_configs_by` is written out and prunes without a performance model, which gets every argument."""
    if not isinstance(node, ast.Dict):
        return False
    return all(isinstance(k, ast.Constant) and k.value in ("early_config_prune", "top_k") for k in node.keys)


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
