"""Which process takes which graph: several make demonstrations side by side, each graph once and few of a family."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class Claims:
    """A directory with an empty file for each graph that is taken, and one for each place of a family."""

    def __init__(self, directory: Path, most: int) -> None:
        self.directory, self.most = directory, most
        directory.mkdir(parents=True, exist_ok=True)

    def fill(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take what the lines of a journal have taken; those that are left out take no place of their family."""
        for line in lines:
            if "graph_hash" in line and self._made(line["graph_hash"]) and not line["cause"]:
                self.place(line["family_hash"])

    def take(self, graph: str, family: str) -> str | None:
        """A place for a graph of a family; None where the graph is taken or the family has no place left."""
        if not any(not (self.directory / f"{family}-{n}").exists() for n in range(self.most)) or not self._made(graph):
            return None
        return self.place(family)

    def place(self, family: str) -> str | None:
        """A place of the family; None where none is left."""
        return next((name for n in range(self.most) if self._made(name := f"{family}-{n}")), None)

    def leave(self, place: str) -> None:
        """Another graph of the family may have the place."""
        (self.directory / place).unlink()

    def _made(self, name: str) -> bool:
        try:
            (self.directory / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
