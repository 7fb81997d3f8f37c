"""Where a version came from: the code's git commit and the libraries that were installed."""

import functools
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

LIBRARIES = (
    "torch",
    "triton",
    "numpy",
    "pyarrow",
    "pandas",
    "transformers",
    "timm",
    "datasets",
    "huggingface-hub",
    "prefect",
    "pydantic-ai-slim",
)
"""Distributions whose version changes what a build or an evaluation gives."""


def library_versions(names: tuple[str, ...] = LIBRARIES) -> dict[str, str]:
    """Versions of Python and of those distributions in `names` that are installed; nothing is imported."""
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@functools.cache
def source_commit() -> str | None:
    """The commit that this code is of, with "+" where files were changed; None outside a checkout."""
    commit, changed = git_state()
    return commit and commit + ("+" if changed else "")


def git_state(source: Path = Path(__file__)) -> tuple[str | None, bool | None]:
    """Commit of the checkout that tracks `source`, and whether tracked files differ from it.

    (None, None) where there is no git, or where `source` is not tracked: an installed copy may lie inside
    somebody else's repository.
    """
    directory = source.resolve().parent
    if _git(directory, "ls-files", "--error-unmatch", source.name) is None:
        return None, None
    commit = _git(directory, "rev-parse", "HEAD")
    status = _git(directory, "status", "--porcelain", "--untracked-files=no")
    return commit, None if commit is None or status is None else bool(status)


_OF_A_HOOK = frozenset("GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_COMMON_DIR GIT_PREFIX".split())
"""Variables that git sets for what it starts, such as a hook: they name that repository, whatever the directory is."""


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            env={name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
            | {"GIT_OPTIONAL_LOCKS": "0"},  # another git at work there is not disturbed
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
