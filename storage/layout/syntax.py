"""Python source as a syntax tree, within bounds; nothing is compiled, imported or run.

What comes back is shallow enough for recursive functions. CPython's parser bounds the nesting of brackets and its own
stack, and raises where it meets the bound.
"""

import ast
import os
import warnings

from storage.layout.errors import LayoutError, short

MAX_CHARACTERS = 4 << 20
"""Most characters of a source file: four times what the largest graphs of whole models have."""
MAX_DEPTH = 100
"""Deepest nesting of a syntax tree; what fx prints stays below 20."""
MAX_TEXT = 10_000
"""Most characters of a string constant."""
MAX_INT_BITS = 128

Literal = None | bool | int | float | complex | str | list | tuple | dict

_PHRASES = {
    "For": "a loop", "AsyncFor": "a loop", "While": "a loop", "If": "a branch", "IfExp": "a conditional expression",
    "With": "a with block", "AsyncWith": "a with block", "Try": "a try block", "TryStar": "a try block",
    "FunctionDef": "a function definition", "AsyncFunctionDef": "a function definition", "ClassDef": "a class",
    "Lambda": "a lambda", "ListComp": "a comprehension", "SetComp": "a comprehension", "DictComp": "a comprehension",
    "GeneratorExp": "a comprehension", "Await": "an await", "Yield": "a yield", "YieldFrom": "a yield",
    "JoinedStr": "an f-string", "FormattedValue": "an f-string", "NamedExpr": "an assignment inside an expression",
    "Starred": "a starred expression", "BoolOp": "a boolean `and` or `or`", "Set": "a set", "Import": "an import",
    "ImportFrom": "an import", "Global": "a global statement", "Nonlocal": "a nonlocal statement",
    "Assert": "an assertion", "Raise": "a raise statement", "Match": "a match block", "Delete": "a deletion",
    "TypeAlias": "a type alias", "TemplateStr": "a template string", "Attribute": "an attribute",
    "Expr": "an expression", "Assign": "an assignment", "AnnAssign": "a declaration", "AugAssign": "an assignment",
    "Constant": "a constant", "Compare": "a comparison", "Call": "a call", "Dict": "a dict", "Name": "a name",
}  # fmt: skip


def parse(text: str, file: str) -> ast.Module:
    """The tree of a module's source. Raises LayoutError ("syntax", "too large"), with `file` as its name."""
    if len(text) > MAX_CHARACTERS:
        raise LayoutError("too large", f"{len(text)} characters are more than {MAX_CHARACTERS}", file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strange escapes in strings; they are data
            tree = ast.parse(text, os.devnull)  # for a syntax error, CPython opens the file of that name
    except SyntaxError as error:
        raise LayoutError("syntax", f"this is not Python: {str(error.msg)[:80]}", file, error.lineno) from None
    except (ValueError, UnicodeError):
        raise LayoutError("syntax", "this is not Python: it has a character that no source has", file) from None
    except (MemoryError, RecursionError):
        raise LayoutError("too large", "expressions are nested too deep", file) from None
    _check(tree, file)
    return tree


def _check(tree: ast.Module, file: str) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        for node in level:
            if isinstance(node, ast.Constant):
                _check_constant(node, file)
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    deepest = next((node for node in level if hasattr(node, "lineno")), None)
    raise LayoutError("too large", f"expressions are nested deeper than {MAX_DEPTH}", file, line_of(deepest))


def _check_constant(node: ast.Constant, file: str) -> None:
    value = node.value
    if isinstance(value, str) and (len(value) > MAX_TEXT or not is_text(value)):
        raise LayoutError("too large", "a string is too long, or no text", file, line_of(node))
    if type(value) is int and value.bit_length() > MAX_INT_BITS:
        raise LayoutError("too large", f"a number has more than {MAX_INT_BITS} bits", file, line_of(node))


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold the text. Names of files may have bytes that it cannot hold, and literals escapes."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def line_of(node: ast.AST | None) -> int | None:
    """The line on which a node stands; None where that is not known."""
    return getattr(node, "lineno", None)


def outside(node: ast.AST, file: str, why: str = "is not straight-line code") -> LayoutError:
    """The error for a construct that has no place where it stands."""
    kind = type(node).__name__
    return LayoutError("construct", f"{_PHRASES.get(kind, f'a {kind}')} {why}", file, line_of(node))


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` as text if the expression is just that, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


NUMBERS = {f"{module}{name}": float(name) for module in ("", "math.", "torch.") for name in ("inf", "nan")}
"""Names of numbers that have no literal."""


def number_from(node: ast.AST) -> float | complex | int | None:
    """The number that stands there: a constant, signed or complex, or `float("inf")`; else None."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) in (int, float, complex) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        operand = number_from(node.operand)
        return None if operand is None else -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = node.right.value if isinstance(node.right, ast.Constant) else None
        left = number_from(node.left) if type(right) is complex else None
        if isinstance(left, int | float):
            return left + right if isinstance(node.op, ast.Add) else left - right
    if isinstance(node, ast.Call) and dotted(node.func) == "float" and len(node.args) == 1 and not node.keywords:
        text = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
        if isinstance(text, str) and text.strip().lower() in ("inf", "-inf", "+inf", "nan", "infinity", "-infinity"):
            return float(text)
    return None


def literal(node: ast.AST, file: str) -> Literal:
    """The value of a literal: constants, numbers as `number_from` has them, dtypes as their dotted names, and lists,
    tuples and dicts of these. Raises LayoutError ("construct") on anything else."""
    number = number_from(node)
    if number is not None:
        return number
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool | str)):
        return node.value
    name = dotted(node)
    if name in NUMBERS:
        return NUMBERS[name]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and dotted(node.operand) in NUMBERS:
        return -NUMBERS[dotted(node.operand)]
    if name is not None and name.startswith("torch."):
        return name
    if isinstance(node, ast.List):
        return [literal(item, file) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(literal(item, file) for item in node.elts)
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        return {key.value: literal(value, file) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.Call):
        raise LayoutError("construct", f"a call of {short(dotted(node.func) or '')} is no literal", file, line_of(node))
    raise outside(node, file, "is no literal")
