"""One way to write a call: keyword arguments that could be positional become positional, the rest are sorted by name.

Names and positions come from a table that was written once from torch's schemas (`dedup.make_signatures`), not from
the torch that is installed: schemas come and go between versions, and hashes must not. Where the signatures that fit a
call disagree, or the table lacks the op, the call stays as it is, so that at worst two equal calls keep two forms.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from storage.graph.record import Op, op_name

TABLE = Path(__file__).with_name("signatures.txt")
"""A line for each set of signatures: the signatures, a tab, the ops that have them; see `CallSignature.__str__`."""


@dataclass(frozen=True)
class CallSignature:
    """Names of the positional parameters in order, of the keyword-only ones, and of those without default."""

    positional: tuple[str, ...]
    keyword_only: frozenset[str]
    required: frozenset[str]

    def __str__(self) -> str:
        """`self,dim,keepdim=,*,dtype=`: `=` marks a default; `*` comes before what is keyword-only."""
        names = [*self.positional, *(["*"] if self.keyword_only else []), *sorted(self.keyword_only)]
        return ",".join(name if name == "*" or name in self.required else f"{name}=" for name in names)

    @classmethod
    def parse(cls, text: str) -> "CallSignature":
        """From what `str` gives."""
        positional, _, keyword_only = (part.strip(",") for part in text.partition("*"))
        first, rest = ([name for name in part.split(",") if name] for part in (positional, keyword_only))
        required = frozenset(name for name in first + rest if not name.endswith("="))
        return cls(tuple(n.rstrip("=") for n in first), frozenset(n.rstrip("=") for n in rest), required)


def normalised(op: Op) -> Op:
    """The same call with keywords moved into positions and sorted."""
    if not op.kwargs:
        return op
    moved = _positional_keywords(op_name(op), len(op.args), frozenset(op.kwargs))
    rest = sorted(op.kwargs.keys() - set(moved))
    return Op(op.kind, op.target, op.args + tuple(op.kwargs[k] for k in moved), {k: op.kwargs[k] for k in rest})


@functools.lru_cache(maxsize=65_536)
def _positional_keywords(name: str, given: int, keywords: frozenset[str]) -> tuple[str, ...]:
    """Which of `keywords` follow `given` positional arguments, in order."""
    answers = set()
    for signature in signatures(name):
        names = keywords
        if "input" in keywords and "input" not in signature.positional and "self" in signature.positional:
            names = keywords - {"input"} | {"self"}  # torch.add(input=...) is ATen's `self`
        known = set(signature.positional) | signature.keyword_only
        filled = set(signature.positional[:given]) | names
        fits = given <= len(signature.positional) and names <= known and signature.required <= filled
        if not fits or names & set(signature.positional[:given]):
            continue
        following = []
        for each in signature.positional[given:]:
            if each not in names:
                break
            following.append(each if each in keywords else "input")
        answers.add(tuple(following))
    return answers.pop() if len(answers) == 1 else ()


@functools.cache
def signatures(name: str) -> tuple[CallSignature, ...]:
    """The signatures under which an op may be called, by its name (methods with a leading dot); empty where unknown."""
    return tuple(CallSignature.parse(text) for text in _table().get(name, "").split())


@functools.cache
def _table() -> dict[str, str]:
    lines = (line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines())
    return {name: called for called, names in lines for name in names.split()}
