"""What is wrong with a directory in PassNet's layout, and where."""

from storage.errors import PassNetError

CAUSES = (
    "missing file",
    "unreadable file",  # no regular file, no UTF-8, or a link that leads out of the tree
    "too large",  # a file, a nesting or a number beyond its bound
    "syntax",  # not Python, or not JSON
    "construct",  # Python outside the grammar of straight-line graphs
    "target",  # a call outside the allowlist of storage/graph/targets.py
    "metadata",  # inputs that are described badly, or not at all
    "framework",  # a graph of another framework than torch
    "invalid",  # a graph whose ops refuse its inputs, or that gives no tensors
)


class LayoutError(PassNetError):
    """A file or directory that is not in PassNet's layout. `cause` is one of `CAUSES`; `line` counts from 1."""

    def __init__(self, cause: str, message: str, file: str, line: int | None = None) -> None:
        if cause not in CAUSES:
            raise ValueError(f"{cause!r} is not one of {CAUSES}")
        super().__init__(f"{file}:{line}: {message}" if line else f"{file}: {message}")
        self.cause = cause
        self.file = file
        self.line = line


def short(text: object) -> str:
    """Text of a file as it may stand in a message: quoted, printable, at most 60 characters."""
    shown = str(text)
    return ascii(shown if len(shown) <= 60 else shown[:57] + "...")
