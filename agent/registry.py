"""Authors by name. Every baseline of `passbench.compilers` is one, too."""

from collections.abc import Callable
from functools import partial

from agent.author import Author, Baseline, UnknownAuthor
from agent.llm.author import Llm
from agent.llm.options import LlmOptions
from passbench.names import COMPILERS
from storage.errors import PassNetError


def _distill() -> Author:
    from agent.distill.tuned import Tuned

    return Tuned()


def _distill_static() -> Author:
    from agent.distill.static import Distill

    return Distill(name="distill-static")


def _readable() -> Author:
    from agent.readable.author import Readable

    return Readable()


_AUTHORS: dict[str, Callable[[], Author]] = {  # an author's modules are imported when it is asked for
    "distill": _distill,
    "distill-static": _distill_static,
    "readable": _readable,
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
