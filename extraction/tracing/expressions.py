"""Numbers that torch computes from symbolic sizes, as expressions of `storage.graph.symbols`."""

from collections.abc import Mapping

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from storage.graph.record import GraphError
from storage.graph.symbols import evaluate

Number = bool | int | float


class Untranslatable(ValueError):
    """An expression that the grammar of `storage.graph.symbols` cannot say."""


def number_at(expr: sympy.Basic, sizes: Mapping[sympy.Symbol, int]) -> Number:
    """The value of torch's expression where its symbols have these sizes. Raises Untranslatable if it has none."""
    value = expr.xreplace({symbol: sympy.Integer(size) for symbol, size in sizes.items()})
    if value is sympy.true or value is sympy.false:
        return bool(value)
    if isinstance(value, sympy.Integer):
        return int(value)
    if value.is_number and value.is_real:
        return int(value) if value.is_integer else float(value)
    raise Untranslatable(f"{expr} has no value at {dict(sizes)}")


def text_of(expr: sympy.Expr, sizes: Mapping[str, int]) -> str:
    """`expr`, whose symbols are called as in `sizes`, as text that has its value, and its type, at these sizes.

    Raises Untranslatable where there is no such text.
    """
    expected = number_at(expr, {symbol: sizes[symbol.name] for symbol in expr.free_symbols})
    above, below = sympy.fraction(sympy.together(expr)) if _is_quotient(expr) and type(expected) is int else (expr, 1)
    text = _PRINTER.doprint(above) if below == 1 else f"({_PRINTER.doprint(above)})//({_PRINTER.doprint(below)})"
    try:
        value = evaluate(text, sizes)
    except GraphError as error:
        raise Untranslatable(f"{expr}: {error}") from None
    if type(value) is not type(expected) or value != expected:
        raise Untranslatable(f"{expr} is {expected}, and {text} is {value}")
    return text


def _is_quotient(expr: sympy.Expr) -> bool:
    """Whether sympy's own division is in it: of whole numbers, it is exact."""
    return any(not each.is_integer for each in expr.atoms(sympy.Rational))


class _Printer(StrPrinter):
    """torch's functions of sizes (`torch.utils._sympy.functions`) in Python's operators.

    Those that are printed as operators have a `precedence` from torch, by which they get parentheses. What is not named
    here is printed as a call, which `storage.graph.symbols` then refuses.
    """

    printmethod = "_passnet"  # not the methods by which torch's functions print themselves

    def _call(self, name: str, expr: sympy.Expr) -> str:
        return f"{name}({', '.join(self._print(each) for each in expr.args)})"

    def _binary(self, sign: str, left: sympy.Expr, right: sympy.Expr) -> str:
        tight = PRECEDENCE["Pow"]
        return f"{self.parenthesize(left, tight)}{sign}{self.parenthesize(right, tight)}"

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        return self._binary("//", *expr.args)

    _print_CleanDiv = _print_FloorDiv

    def _print_Mod(self, expr: sympy.Expr) -> str:
        return self._binary("%", *expr.args)

    _print_PythonMod = _print_Mod

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        base, divisor, modulus = expr.args
        tight = PRECEDENCE["Pow"]
        return f"{self._binary('//', base, divisor)}%{self.parenthesize(modulus, tight)}"

    def _print_IntTrueDiv(self, expr: sympy.Expr) -> str:
        return self._binary("/", *expr.args)

    _print_FloatTrueDiv = _print_IntTrueDiv

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        return self._binary("**", *expr.args)

    _print_FloatPow = _print_PowByNatural

    def _print_OpaqueUnaryFn_sqrt(self, expr: sympy.Expr) -> str:
        return f"({self.parenthesize(expr.args[0], PRECEDENCE['Pow'])}**0.5)"

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._call("max", expr)

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._call("min", expr)

    def _print_Abs(self, expr: sympy.Expr) -> str:
        return self._call("abs", expr)

    def _print_ToFloat(self, expr: sympy.Expr) -> str:
        return self._call("float", expr)

    def _print_TruncToInt(self, expr: sympy.Expr) -> str:
        return self._call("int", expr)

    def _print_TruncToFloat(self, expr: sympy.Expr) -> str:
        return f"float({self._call('int', expr)})"

    def _print_FloorToInt(self, expr: sympy.Expr) -> str:
        return f"int(({self._print(expr.args[0])})//1)"

    def _print_CeilToInt(self, expr: sympy.Expr) -> str:
        return f"(-int((-({self._print(expr.args[0])}))//1))"

    def _print_Identity(self, expr: sympy.Expr) -> str:
        return self._print(expr.args[0])

    def _print_Float(self, expr: sympy.Float) -> str:
        return repr(float(expr))


_PRINTER = _Printer()
