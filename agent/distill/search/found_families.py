"""What searches have found, kept on disk: one that was killed, or had to end before its time was up, goes on from its
best. A finished one is not repeated.

One small JSON file per family, device, torch, triton and way of searching, in the directory that the run lends.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.rewrites.sample_graphs import FloatDtypes
from agent.distill.rounding import Rounding
from agent.distill.source.style import Style
from storage.disk import write_json
from storage.versions.code_version import CODE_VERSIONS


@dataclass(frozen=True)
class SearchChoice:
    """A pass that could be written for a task: the patterns to replace, sorted, and how."""

    patterns: tuple[str, ...]
    style: Style

    def is_like(self, other: "SearchChoice") -> bool:
        """Whether both have the same regions in kernels lowered by the same means: what they compute is rounded alike,
        but for the order in which sums are added up."""
        how = [(each.style.own_schedule, each.style.compiled) for each in (self, other)]
        return self.patterns == other.patterns and how[0] == how[1]


Levels = Mapping[FloatDtypes, Rounding]
"""What graphs leave to eager, by the floating dtypes of their variants."""


@dataclass(frozen=True)
class Best:
    """The best choice found. `levels` is what the task that it was found in leaves to eager. `static`: it is what the
    author writes without measuring, of that author's task (`agent.distill.static`)."""

    choice: SearchChoice
    levels: Levels
    static: bool = False


@dataclass(frozen=True)
class FamilySearch:
    """How far a family's search is. `best` is the best so far, None if eager is. `seconds` is the time used."""

    best: Best | None
    seconds: float
    finished: bool


class FoundFamilies:
    """The searches of one device, by the author's `options` that decide how they go. No directory: nothing is kept."""

    def __init__(self, directory: Path | None, device: str, options: Mapping[str, Any]) -> None:
        self._directory = directory
        name = torch.cuda.get_device_name(device) if directory is not None and torch.cuda.is_available() else device
        self._conditions = [CODE_VERSIONS["evaluate"], name, torch.__version__, triton.__version__, dict(options)]

    def load(self, family: str) -> FamilySearch | None:
        """How far the family's search is; None if it has not begun."""
        path = self._path(family)
        if path is None or not path.exists():
            return None
        kept = json.loads(path.read_text("utf-8"))
        return FamilySearch(_best_from(kept["best"]), kept["seconds"], kept["finished"])

    def keep(self, family: str, search: FamilySearch) -> None:
        """Keep how far the family's search is."""
        path = self._path(family)
        if path is None:
            return
        kept = {"family": family, "conditions": self._conditions, "best": _plain(search.best)}
        write_json(path, {**kept, "seconds": search.seconds, "finished": search.finished}, indent=1)

    def _path(self, family: str) -> Path | None:
        if self._directory is None:
            return None
        digest = hashlib.sha256(json.dumps([family, self._conditions], sort_keys=True).encode()).hexdigest()
        return self._directory / f"{digest[:24]}.json"


def _plain(best: Best | None) -> dict[str, Any] | None:
    """As JSON data."""
    if best is None:
        return None
    levels = [[sorted(dtypes), int(level)] for dtypes, level in best.levels.items()]
    style = asdict(best.choice.style)
    return {"patterns": best.choice.patterns, "style": style, "levels": sorted(levels), "static": best.static}


def _best_from(plain: Mapping[str, Any] | None) -> Best | None:
    if plain is None:
        return None
    style = Style(**plain["style"] | {"limits": LaunchLimits(**plain["style"]["limits"])})
    levels = {frozenset(dtypes): Rounding(level) for dtypes, level in plain["levels"]}
    return Best(SearchChoice(tuple(plain["patterns"]), style), levels, plain["static"])
