"""Authors by name."""

from functools import partial

from agent.author import Author, AuthorFactory, Baseline, UnknownAuthor
from agent.distill import Distill
from passbench.compilers import NAMES as COMPILERS
from storage.errors import PassNetError

_AUTHORS: dict[str, AuthorFactory] = {
    "distill": Distill,
    **{compiler: partial(Baseline, compiler, compiler) for compiler in COMPILERS if compiler != "pass"},
}
_NOT_YET = ("llm",)

NAMES = (*_AUTHORS, *_NOT_YET)
"""Names that the command line accepts."""


def author(name: str) -> Author:
    """The author of this name. Raises PassNetError where there is none, or none yet."""
    if name in _NOT_YET:
        raise PassNetError(f"author {name!r} is not there yet; use one of {', '.join(_AUTHORS)}")
    if name not in _AUTHORS:
        raise UnknownAuthor(f"there is no author {name!r}; use one of {', '.join(_AUTHORS)}")
    return _AUTHORS[name]()
