"""Inline assembly in kernels: it computes on registers, tells nothing but a program's place, and stays where it is."""

import ast
import re

ASSEMBLY = "triton.language.inline_asm_elementwise"
_TOUCHES_MEMORY = re.compile(r"\[|\b(call|bra|brx|trap|exit|brkpt|cp|bar|barrier|mbarrier|vprintf|malloc|free)\b")
_TELLS_MORE = re.compile(
    r"%(?!(n?tid|n?ctaid|laneid|lanemask_\w+|(?!pm)[a-z]{1,2}\d*)\b)\w*|\b(griddepcontrol|nanosleep|pmevent)\b"
)
"""Registers of clocks, of processors and of launches, all but a program's place in its grid and `%r1` and the like;
and what lets another launch begin."""
_ALTERNATIVES = re.compile(r"\$(?![$\d]|\{\d+(:\w)?\}).{0,2}")
"""What LLVM replaces before the assembler reads it: of `%c$(lock$|$)` it makes `%clock`."""
_CONSTRAINT = re.compile(r"(=?&?([hrlfdqnbc]|\d+)|~\{\w+\})?")
"""A register, a constant, the place of another operand, and what is clobbered. Of an operand in memory, `m`, LLVM makes
an access to it, with brackets that the text does not have."""


def fault(call: ast.Call) -> str | None:
    """What is wrong with a call of `tl.inline_asm_elementwise`, and what to write instead; None if nothing is."""
    text, constraints = _text(call, 0, "asm"), _text(call, 1, "constraints")
    if text is None or constraints is None:
        return "write the text of inline assembly out, as one string"
    if found := _ALTERNATIVES.search(text):
        return f"{found[0]} is text that a compiler puts together; write operands as $0 or ${{0:x}}"
    if _TOUCHES_MEMORY.search(text) or not _within_braces(text):
        return "inline assembly computes on registers; load and store with tl, branch in Triton"
    if found := _TELLS_MORE.search(text):
        return f"{found[0]} tells more than a call's own inputs; leave it out (temporaries are %r1, %f1)"
    for one in constraints.split(","):
        if not _CONSTRAINT.fullmatch(one.strip()):
            return f"{one.strip()} is no register; inline assembly has operands such as =r, r, l, f and d"
    return None


def _text(call: ast.Call, place: int, name: str) -> str | None:
    """An argument that is written out as a text; None if it is not."""
    given = call.args[place : place + 1] or [k.value for k in call.keywords if k.arg == name]
    starred = any(isinstance(a, ast.Starred) for a in call.args[: place + 1])
    if starred or len(given) != 1 or not isinstance(given[0], ast.Constant) or not isinstance(given[0].value, str):
        return None
    return given[0].value


def _within_braces(text: str) -> bool:
    """Whether each brace that closes was opened in the text, and none is left open: it ends no function."""
    depth = 0
    for brace in re.findall(r"[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0
