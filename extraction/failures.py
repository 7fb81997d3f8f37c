"""Why a model could not be traced: the closed set of categories, and the category of a worker that died.

A worker that crashed, was killed or ran out of time raised nothing; `classify_end` says what its end means. What an
exception means is in `extraction.classify`, which needs torch; the processes that watch workers do without torch.
"""

import re

from storage.errors import PassNetError

CATEGORIES = (
    "config",  # the configuration does not make a model
    "unsupported_input",  # no example inputs for this model, or it refuses those that were made
    "graph_break",  # no graph of plain tensor operations comes out
    "data_dependent",  # control flow or shapes that depend on tensor values
    "missing_dependency",  # an optional package is not installed
    "remote_code",  # needs code from the Hub, which is never executed
    "gated",  # the Hub refuses access
    "not_found",  # no such model
    "timeout",
    "out_of_memory",
    "out_of_disk",  # it wrote more than a model may
    "too_many_processes",  # it started more than a model may
    "crashed",  # the process ended by itself
    "internal",  # a fault of PassNet, or of a library below it
)

MAX_MESSAGE = 500
"""Characters of a message that are kept."""


class ModelError(PassNetError):
    """A model that cannot be traced, with its category."""

    def __init__(self, category: str, message: str) -> None:
        if category not in CATEGORIES:
            raise ValueError(f"{category!r} is not one of {CATEGORIES}")
        super().__init__(message)
        self.category = category


OUT_OF_MEMORY = (
    r"MemoryError|can't allocate memory|out of memory|Cannot allocate memory|not enough memory|std::bad_alloc"
)
"""What libraries say when an allocation fails."""

_LIMITS = {
    "timeout": ("timeout", "stopped after {} s"),
    "memory": ("out_of_memory", "stopped with more than {} MiB in all its processes"),
    "processes": ("too_many_processes", "stopped with more than {} processes"),
    "disk": ("out_of_disk", "stopped after writing more than {} MiB"),
}
"""Category and message of a worker that met a limit, by how its end is called."""


def classify_end(end: str, code: int, log: str) -> tuple[str, str]:
    """The category of a worker that ended without an answer.

    `end`, `code` and `log` are those of `extraction.pool.client.TaskReply`.
    """
    last = log.strip().splitlines()[-1:] or ["it printed nothing"]
    said = last[0].strip()[:MAX_MESSAGE]
    if end in _LIMITS:
        category, text = _LIMITS[end]
        return category, text.format(code)
    if end == "lost":
        return "crashed", f"its node or process was lost each of {code} times; last: {said}"
    if re.search(OUT_OF_MEMORY, log) or (end == "signal" and code == 9):
        return "out_of_memory", f"killed when memory ran out; last output: {said}"
    how = f"signal {code}" if end == "signal" else f"exit code {code}"
    return "crashed", f"the process ended by itself with {how}; last output: {said}"


def first_line(error: BaseException) -> str:
    """`Type: first line of the message that says something`, cut to MAX_MESSAGE characters.

    A dynamo error's explanation follows its title, which alone says little.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    said = next((line for line in lines if line), "")
    explained = next((line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")), "")
    if said.endswith(":"):  # a title, such as of a check of a whole config
        said = " ".join(line for line in lines if line)
    said = f"{said}: {explained}" if explained else said
    if isinstance(error, PassNetError):
        return said[:MAX_MESSAGE]
    return f"{type(error).__name__}: {said}".removesuffix(": ")[:MAX_MESSAGE]
