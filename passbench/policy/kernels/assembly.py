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
_ALTERNATIVES = re.compile(r"\$(?![$\d]|\{\d+(:\w)?\}).{0,2}|^\s*#\s*\w+", re.MULTILINE)
"""What LLVM replaces before the assembler reads it: of `%c$(lock$|$)` it makes `%clock`. PTX has `#define`, too."""
_CONSTRAINT = re.compile(r"(=?&?([hrlfdqnbc]|\d+)|~\{\w+\})?")
"""A register, a constant, the place of another operand, and what is clobbered. Of an operand in memory, `m`, LLVM makes
an access to it, with brackets that the text does not have."""
_PART = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|[{}\"]|\.reg\b[^;{}]*|%\w+", re.DOTALL)
"""A comment, a brace, a quotation mark, a declaration of registers, or the name of a register."""
_LONG_NUMBER = re.compile(r"[0-9]{20}")
_MOST_BLOCKS = 16
_DECLARED = re.compile(r"(%\w+)(?:<(\d+)>)?")
_PLACE = re.compile(r"%(n?tid|n?ctaid|laneid|lanemask_\w+)")


def fault(call: ast.Call) -> str | None:
    """What is wrong with a call of `tl.inline_asm_elementwise`, and what to write instead; None if nothing is."""
    text, constraints = _text(call, 0, "asm"), _text(call, 1, "constraints")
    if text is None or constraints is None:
        return "write the text of inline assembly out, as one string"
    if found := _ALTERNATIVES.search(text):
        return f"{found[0]} is text that a compiler puts together; write operands as $0 or ${{0:x}}"
    if _TOUCHES_MEMORY.search(text):
        return "inline assembly computes on registers; load and store with tl, branch in Triton"
    if found := _TELLS_MORE.search(text):
        return f"{found[0]} tells more than a call's own inputs; leave it out (temporaries are %r1, %f1)"
    if (message := _leaves_its_block(text)) is not None:
        return message
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


def _leaves_its_block(text: str) -> str | None:
    """What of a text is not its own. A brace that it has not opened ends the kernel, also where a comment hides that.
    A register that it has not declared is one of the kernel's, which may hold an address: `mov.b64 $0, %rd1;`."""
    blocks: list[dict[str, int]] = [{}]  # names of registers, and of how many each is the beginning
    if _LONG_NUMBER.search(text):
        return "numbers of so many digits; write shorter ones"
    for part in _PART.findall(text):
        if part == "{":
            blocks.append({})
            if len(blocks) > _MOST_BLOCKS:
                return "blocks within so many others; open fewer"
        elif part == "}" and len(blocks) > 1:
            blocks.pop()
        elif part.startswith(".reg"):
            blocks[-1] |= {name: int(count or 0) for name, count in _DECLARED.findall(part)}
        elif part.startswith("%"):
            if not _PLACE.fullmatch(part) and not any(_has(declared, part) for declared in blocks):
                return f"{part} is the kernel's own; declare temporaries first, as in {{ .reg .b32 %r1; … }}"
        elif not _is_comment(part) or re.search(r"[{}]", part):
            return f"{part.strip()[:40]} ends more than the text itself; open each brace, and write none in a comment"
    return "close each brace that the text opens" if len(blocks) > 1 else None


def _is_comment(part: str) -> bool:
    """Whether it is a comment that ends."""
    return part.startswith("//") or (part.startswith("/*") and part.endswith("*/") and len(part) > 3)


def _has(declared: dict[str, int], name: str) -> bool:
    """Whether a register is declared, by its name or as one of several: `%r<4>` are `%r0` to `%r3`."""
    beginning = name.rstrip("0123456789")
    number = name.removeprefix(beginning)
    several = number and str(int(number)) == number and int(number) < declared.get(beginning, 0)
    return bool(several) or declared.get(name) == 0
