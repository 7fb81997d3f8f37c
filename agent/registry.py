"""Authors by name. Every baseline of `passbench.compilers` is one, too."""

from collections.abc import Callable
from functools import partial

from agent.author import Author, Baseline, UnknownAuthor
from agent.distill.static import Distill
from agent.distill.tuned import Tuned
from agent.llm.author import Llm
from agent.llm.options import LlmOptions
from agent.readable.author import Readable
from passbench.names import COMPILERS
from storage.errors import PassNetError

_AUTHORS: dict[str, Callable[[], Author]] = {
    "distill": Tuned,
    "distill-static": lambda: Distill(name="distill-static"),
    "readable": Readable,
    **{compiler: partial(Baseline, compiler, compiler) for compiler in COMPILERS if compiler != "pass"},
}

NAMES = (*_AUTHORS, "llm")
"""Names that the command line accepts."""


def author(name: str, model: str | None = None, options: LlmOptions | None = None) -> Author:
    """The author of this name; `model` and `options` are for "llm". Raises PassNetError where there is none, and where
    its model cannot be used."""
    if name == "llm":
        if not model:
            raise PassNetError("author llm needs a model: give --model, such as anthropic:claude-sonnet-5")
        return Llm(model, options or LlmOptions())
    if name not in _AUTHORS:
        raise UnknownAuthor(f"there is no author {name!r}; use one of {', '.join(NAMES)}")
    return _AUTHORS[name]()
