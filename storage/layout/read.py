"""Directories in PassNet's layout: finding them in a tree, and reading their graphs. Nothing in them is executed.

SAMPLE/graph_list.txt                one relative path a line
SAMPLE/graphs/<path>/{model.py, weight_meta.py, input_meta.py, input_tensor_constraints.py, graph_net.json}
SAMPLE/pass_dir/                     a pass, see passbench.contract

GraphNet's layout is a directory with the five files alone, one a whole model. Files are read if they are regular, of
bounded size, in UTF-8, and no link leads out of the tree.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.graph.record import Graph
from storage.layout.errors import LayoutError, short
from storage.layout.extra_files import Constraints, read_constraints, read_metadata
from storage.layout.forward import read_forward
from storage.layout.graph_source import graph_of
from storage.layout.syntax import is_text
from storage.layout.tensor_meta import inputs_of, integers_of, read_meta
from storage.records import Input

GRAPH_LIST, GRAPHS, PASS_DIR = "graph_list.txt", "graphs", "pass_dir"
MODEL, WEIGHTS, INPUTS = "model.py", "weight_meta.py", "input_meta.py"
CONSTRAINTS, METADATA = "input_tensor_constraints.py", "graph_net.json"
FILES = (MODEL, WEIGHTS, INPUTS, CONSTRAINTS, METADATA)
"""What a graph's directory holds."""

MAX_BYTES = 8 << 20
"""Most bytes of a file."""
MAX_GRAPHS = 10_000
"""Most graphs of a sample."""
UNREADABLE = "this directory cannot be listed, or its name is not UTF-8"
"""What to say of a directory that is "unreadable"."""


@dataclass(frozen=True)
class GraphDirectory:
    """One graph as its directory describes it: `inputs[n]` is input n of `graph`; `symbols` are sizes by name.

    Python integers among the arguments of `forward` are constants of the graph.
    """

    graph: Graph
    inputs: tuple[Input, ...]
    metadata: dict[str, Any]
    symbols: dict[str, int]


@dataclass(frozen=True)
class FoundDirectories:
    """A directory: `kind` is "sample", "model" for one in GraphNet's layout, or "unreadable"."""

    kind: str
    path: Path


def is_sample(directory: Path) -> bool:
    """Whether this is a sample's directory, by the names of what is in it."""
    return (directory / GRAPH_LIST).is_file() or (directory / GRAPHS).is_dir()


def find(root: Path) -> Iterator[FoundDirectories]:
    """The directories in the layout at and below `root`, in the order of their names, as they are found.

    What is below one of them is part of it. Links to directories are not followed. Directories that cannot be listed,
    and those whose names no table can hold, come as "unreadable". Raises LayoutError if `root` is no directory.
    """
    if not root.is_dir():
        raise LayoutError("missing file", "there is no such directory", str(root))
    waiting = [root]
    while waiting:
        place = waiting.pop()
        try:
            listed = _listed(place)
        except OSError:
            yield FoundDirectories("unreadable", place)
            continue
        if GRAPH_LIST in listed or listed.get(GRAPHS):
            yield FoundDirectories("sample", place)
        elif MODEL in listed:
            yield FoundDirectories("model", place)
        else:
            below = [name for name in sorted(listed, reverse=True) if listed[name]]
            waiting += (place / name for name in below if is_text(name))
            yield from (FoundDirectories("unreadable", place / ascii(name)) for name in below if not is_text(name))


def graph_paths(sample: Path) -> list[str]:
    """Relative paths of a sample's graphs, as graph_list.txt lists them.

    Without that file they are the directories below graphs/ with a model.py. Raises LayoutError.
    """
    listing = sample / GRAPH_LIST
    if not listing.exists():
        found = sorted(_with_a_model(sample / GRAPHS), key=lambda path: path / MODEL)
        below = [path.relative_to(sample / GRAPHS).as_posix() for path in found]
        if bad := next((path for path in below if not is_text(path)), None):
            raise LayoutError("unreadable file", f"the name of {short(bad)} is not UTF-8", str(sample / GRAPHS))
        return below[:MAX_GRAPHS]
    lines = [line.strip() for line in read_text(listing, sample).splitlines()]
    paths = list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if not paths:
        raise LayoutError("missing file", "it lists no graph", str(listing))
    if len(paths) > MAX_GRAPHS:
        raise LayoutError("too large", f"{len(paths)} graphs are more than {MAX_GRAPHS}", str(listing))
    return paths


def _listed(place: Path) -> dict[str, bool]:
    """The names in a directory, and whether each is a directory there, not a link to one. Raises OSError."""
    with os.scandir(place) as entries:
        return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}


def _with_a_model(root: Path) -> Iterator[Path]:
    """Directories at and below `root` with a model.py, however deep they lie; links to directories are not followed,
    and what cannot be listed holds none."""
    waiting = [root]
    while waiting:
        place = waiting.pop()
        try:
            listed = _listed(place)
        except OSError:
            continue
        if MODEL in listed:
            yield place
        waiting += (place / name for name, is_directory in listed.items() if is_directory)


def graph_directory(sample: Path, path: str) -> Path:
    """Where a sample's graph of this relative path is. Raises LayoutError for a path that leads out of the sample."""
    parts = Path(path)
    if parts.is_absolute() or ".." in parts.parts or "\0" in path or len(path) > 1000:
        raise LayoutError("unreadable file", f"it lists {short(path)}, which leads out of it", str(sample / GRAPH_LIST))
    directory = sample / GRAPHS / parts
    try:
        return directory if directory.is_dir() or not (sample / parts).is_dir() else sample / parts
    except OSError as error:  # a name that is too long, a directory that may not be entered
        raise LayoutError("unreadable file", f"{short(path)}: {error.strerror}", str(sample / GRAPH_LIST)) from None


def read_graph(directory: Path, root: Path | None = None) -> GraphDirectory:
    """The graph in a directory of the five files, of which model.py and weight_meta.py must be there.

    `root` is the tree that links must stay in. Raises LayoutError.
    """
    root = root or directory

    def optional(name: str) -> str | None:
        path = directory / name
        return read_text(path, root) if os.path.lexists(path) else None

    model, weights = directory / MODEL, directory / WEIGHTS
    forward = read_forward(read_text(model, root), str(model))
    text = optional(METADATA)
    metadata = {} if text is None else read_metadata(text, str(directory / METADATA))
    text = optional(CONSTRAINTS)
    constraints = Constraints() if text is None else read_constraints(text, str(directory / CONSTRAINTS))
    metas = {}
    for name in (WEIGHTS, INPUTS):
        if forward.arguments and (name == WEIGHTS or os.path.lexists(directory / name)):
            metas |= read_meta(read_text(directory / name, root), str(directory / name))
    integers = integers_of(forward.arguments, metas, str(weights), constraints.sizes)
    inputs = inputs_of(forward.arguments, metas, str(weights), constraints)
    return GraphDirectory(graph_of(forward, integers), inputs, metadata, dict(constraints.sizes))


def read_text(path: Path, root: Path) -> str:
    """The text of a regular file of at most `MAX_BYTES` that is in `root`, links followed. Raises LayoutError."""
    try:
        if not path.resolve(strict=True).is_relative_to(root.resolve()):
            raise LayoutError("unreadable file", "a link leads out of the tree", str(path))
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise LayoutError("unreadable file", "this is not a regular file", str(path))
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise LayoutError("missing file", "there is no such file", str(path)) from None
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LayoutError("unreadable file", f"cannot be read: {why}", str(path)) from None
    if len(content) > MAX_BYTES:
        raise LayoutError("too large", f"the file has more than {MAX_BYTES} bytes", str(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise LayoutError("unreadable file", "this is not UTF-8", str(path)) from None
