"""What the parameters of a replacement can be: numbers, tensors, or either where nothing says."""

import ast

from passbench.policy import allowlists as names
from passbench.policy import operators
from passbench.policy.host.bindings import Bindings
from passbench.policy.kernels.addresses import base_parameters, callee
from passbench.policy.modules import Module
from passbench.policy.nodes import names_by_place, walk
from passbench.policy.scopes import ValueKind, parameters

_TENSOR_MEMBERS = (
    names.TENSOR_ATTRIBUTES | names.VIEW_ATTRIBUTES | names.METADATA_METHODS | names.VIEW_METHODS | {"to"}
) - {"count", "index"}


def parameter_kinds(
    bindings: Bindings,
    module: Module,
    home: Module,
    function: ast.FunctionDef | ast.Lambda,
    picked: list[ast.expr],
    first: int,
) -> list[ValueKind]:
    """Kinds of what the `replacement_args` of a module picks, in order: a literal is a number; a parameter of the
    pattern is a tensor where the pattern or the function uses it as one, and either otherwise. The function, of the
    module `home`, gets the items from its parameter number `first` on."""
    pattern = module.functions.get("pattern")
    in_pattern = used_as_tensors(pattern, module) if pattern is not None else set()
    inside = tensor_parameters(bindings, home, function, {})
    order = names_by_place(function)
    kinds = []
    for number, item in enumerate(picked):
        if isinstance(item, ast.Tuple | ast.List | ast.Dict):
            named = any(isinstance(part, ast.Name) for part in walk(item))
            if not named and number + first < len(order):  # numbers and texts, such as a size
                if not isinstance(item, ast.Dict):
                    bindings.note_sequence(function, order[number + first])
                kinds.append(ValueKind.SCALAR)
            else:
                kinds.append(ValueKind.HOLDER)
        elif not isinstance(item, ast.Name):
            text = isinstance(item, ast.JoinedStr) or (isinstance(item, ast.Constant) and isinstance(item.value, str))
            if text and number + first < len(order):
                bindings.note_sequence(function, order[number + first])
            kinds.append(ValueKind.SCALAR)
        else:
            tensor = item.id in in_pattern or (number + first < len(order) and order[number + first] in inside)
            kinds.append(ValueKind.TENSOR if tensor else ValueKind.EITHER)
    return kinds


def picked(arguments: ast.FunctionDef) -> list[ast.expr]:
    """What `replacement_args` returns, item by item; empty where it is not written as it should be."""
    last = arguments.body[-1]
    value = last.value if isinstance(last, ast.Return) else None
    return value.elts if isinstance(value, ast.Tuple | ast.List) else []


def runs_whole(pattern: ast.FunctionDef) -> bool:
    """Whether all that stands in a pattern runs when it is traced."""
    branching = ast.If | ast.For | ast.IfExp | ast.BoolOp
    whole = not any(isinstance(node, branching) for node in walk(pattern))
    return whole and not any(isinstance(statement, ast.Return) for statement in pattern.body[:-1])


def numbers_of_classes(module: Module, function: ast.FunctionDef) -> set[str]:
    """Parameters of a replacement that its pattern hands to `one_hot` as the number of classes: where the graph's is -1
    eager reads the operand, too."""
    pattern, arguments = module.functions.get("pattern"), module.functions.get("replacement_args")
    if pattern is None or arguments is None:
        return set()
    counted = set()
    for node in walk(pattern) if runs_whole(pattern) else ():
        if isinstance(node, ast.Call) and operators.counts_classes(module.dotted(node.func) or ""):
            given = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "num_classes")]
            counted |= {value.id for value in given if isinstance(value, ast.Name)}
    counted &= {p.arg for p in parameters(pattern)}
    counted -= {n.id for n in walk(pattern) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    order = names_by_place(function)
    pairs = zip(order, picked(arguments), strict=False)
    return {name for name, item in pairs if isinstance(item, ast.Name) and item.id in counted}


def tensor_parameters(
    bindings: Bindings,
    module: Module,
    function: ast.FunctionDef | ast.Lambda,
    known: dict[ast.FunctionDef | ast.Lambda, set[str]],
) -> set[str]:
    """Parameters that a function, or one that it hands them to, uses as tensors; `known` holds those found before."""
    if function in known:
        return known[function]
    if function not in bindings.uses:
        calls = [node for node in walk(function) if isinstance(node, ast.Call)]
        bindings.uses[function] = used_as_tensors(function, module), calls
    used, calls = bindings.uses[function]
    known[function] = found = set(used)
    bindings.steps.take(len(calls))
    for node in calls:
        given = [(n, a.id) for n, a in enumerate(node.args) if isinstance(a, ast.Name)]
        if isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name | ast.Attribute):
            found |= _launched(bindings, module, node, node.func.value)
            found |= _called_out_of(bindings, module, given, node.func.value, known)
            continue
        if isinstance(node.func, ast.Name) and node.func.id in bindings.scopes[module.name].names:
            called = bindings.host_function(node.func, bindings.scopes[module.name])
            if called is None and node.func.id not in module.classes:  # a Launch, which takes tensors
                found |= {name for _, name in given}
                continue
        called = bindings.host_function(node.func, bindings.scopes[module.name])
        if called is None or all(name in found for _, name in given):
            continue
        found |= _handed_to(bindings, module, called, given, known)
    return found


def _handed_to(
    bindings: Bindings,
    module: Module,
    called: ast.FunctionDef,
    given: list[tuple[int, str]],
    known: dict[ast.FunctionDef, set[str]],
) -> set[str]:
    """Of variables given to a function by position, those that it uses as tensors. One that stands in a block of the
    `module` that calls it has no home of its own."""
    inside = tensor_parameters(bindings, bindings.homes.get(called, module), called, known)
    order = names_by_place(called)
    return {name for n, name in given if n < len(order) and order[n] in inside}


def _called_out_of(
    bindings: Bindings,
    module: Module,
    given: list[tuple[int, str]],
    table: ast.expr,
    known: dict[ast.FunctionDef, set[str]],
) -> set[str]:
    """The same for `TABLE[key](…)`, which may be any function of the table."""
    found: set[str] = set()
    for name in bindings.tables.get((module.name, table.id), ()) if isinstance(table, ast.Name) else ():
        bindings.steps.take()
        found |= _handed_to(bindings, module, module.functions[name.id], given, known)
    return found


def _launched(bindings: Bindings, module: Module, node: ast.Call, name: ast.expr) -> set[str]:
    """Variables that a launch `kernel[grid](…)` hands to parameters that are addresses."""
    kernel = callee(bindings.modules, module, name)
    if kernel is None:
        return set()
    inside = base_parameters(bindings.modules, bindings.kernel_homes[kernel], kernel, bindings.bases)
    order = [p.arg for p in parameters(kernel)]
    bindings.steps.take(len(order))
    given = [*zip(order, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
    return {value.id for place, value in given if place in inside and isinstance(value, ast.Name)}


def used_as_tensors(function: ast.FunctionDef | ast.Lambda, module: Module) -> set[str]:
    """Names of which a function reads a tensor's attributes, that it writes a part of, or that it hands to an operator
    of torch first."""
    found = set()
    for node in walk(function):
        member = isinstance(node, ast.Attribute) and node.attr in _TENSOR_MEMBERS
        written = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        if (member or written) and isinstance(node.value, ast.Name):
            found.add(node.value.id)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name):
            dotted = module.dotted(node.func) or ""
            computes = dotted.startswith("torch.") and dotted not in names.SCALAR_CALLS | names.ALLOCATORS
            if computes or dotted.endswith("_like"):
                found.add(node.args[0].id)
    return found
