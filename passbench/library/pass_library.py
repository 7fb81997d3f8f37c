"""Passes by the graph that they replace, each with its passports: rows of results that say what was measured and where.

    LIBRARY/passes/HASH/problem.json   the graph (data, not code), its source text, the variants that were measured
    LIBRARY/passes/HASH/pass/          the pass directory
    LIBRARY/passes/HASH/result.json    rows of `storage.schema.RESULTS`, one a variant and machine: the passports

HASH is the graph hash. An entry appears complete or not at all.
"""

import json
import math
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from passbench.contract import PassFiles, read_pass_dir, write_pass_dir
from passbench.policy.check import check_files
from passbench.result import device_name, libraries
from storage.disk import disk_error, filling
from storage.errors import PassNetError
from storage.graph.as_json import from_json, to_json
from storage.graph.effects import writes
from storage.graph.record import Graph
from storage.graph.render import render
from storage.records import Input, Variant

LEVEL = -5
"""The level at which a pass must have been right in every variant that was measured, to serve."""


@dataclass(frozen=True)
class LibraryEntry:
    """One pass of a library: `directory` holds problem, pass and result."""

    directory: Path

    @property
    def name(self) -> str:
        """The graph hash."""
        return self.directory.name

    @cached_property
    def problem(self) -> dict[str, Any]:
        """`graph`, `code`, `category`, `sample`, and `variants`: inputs by variant hash."""
        return _read(self.directory / "problem.json")

    @cached_property
    def passports(self) -> list[dict[str, Any]]:
        """Rows of results, without the pass's files."""
        return _read(self.directory / "result.json")

    @property
    def graph(self) -> Graph:
        """What the pass replaces. Raises GraphError where somebody changed it into what is no graph."""
        return from_json(self.problem["graph"])

    @property
    def variants(self) -> dict[str, Variant]:
        """What it was measured on, by variant hash; outputs are not kept. Raises GraphError as `graph`."""
        return {
            name: Variant(
                self.problem["category"],
                self.graph,
                tuple(Input.from_row(row) for row in inputs),
                (),
                code=self.problem["code"],
                variant_hash=name,
                graph_hash=self.name,
            )
            for name, inputs in self.problem["variants"].items()
        }

    @property
    def pass_directory(self) -> Path:
        return self.directory / "pass"

    def files(self) -> PassFiles:
        """The pass as text. Raises ContractError where it is malformed."""
        return read_pass_dir(self.pass_directory)

    def here(self, device: torch.device) -> list[dict[str, Any]]:
        """Passports of this machine's kind: the same GPU, and the same versions of torch and triton."""
        mine, versions = device_name(device), libraries()
        return [row for row in self.passports if row["device"] == mine and _same(row, versions)]

    def why_not(self, device: torch.device) -> str:
        """Why the pass may not serve on this device; empty if it may."""
        rows = self.here(device)
        if not rows:
            return "it has no passport of this machine's kind: measure it first"
        wrong = [r for r in rows if r["status"] != "ok" or r["t_min"] is None or r["t_min"] > LEVEL]
        if wrong:
            row = wrong[0]
            found = row["status"] if row["status"] != "ok" else f"not right at t = {LEVEL} (t_min {row['t_min']})"
            return f"in variant {row['variant_hash'][:12]} it was {found}"
        if any(writes(op) for op in self.graph.ops):
            return "what it replaces writes in place"
        findings = check_files(self.files())
        if findings:
            return f"the static policy refuses it: {findings[0].rule} in {findings[0].file}:{findings[0].line}"
        return ""

    def speedup(self, device: torch.device, clock: str = "e2e") -> float | None:
        """Geometric mean over the variants measured on this machine's kind; None where no time means anything."""
        found = [row[f"speedup_{clock}"] for row in self.here(device) if row["times_meaningful"]]
        logs = [math.log(speedup) for speedup in found if speedup]
        return math.exp(sum(logs) / len(logs)) if logs else None


class PassLibrary:
    """A library's directory; it need not exist yet."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    def entries(self) -> list[LibraryEntry]:
        """All entries, by name. Nothing of them is read yet."""
        found = sorted((self.directory / "passes").glob("*/problem.json"))
        return [LibraryEntry(path.parent) for path in found]

    def entry(self, name: str) -> LibraryEntry:
        """The entry whose hash starts so. Raises PassNetError where there is none, or several."""
        entries = self.entries()
        if not entries:
            adding = "`passnet library add`, or `passnet tune --author distill`, puts some there"
            raise PassNetError(f"{self.directory} has no passes yet: {adding}")
        found = [entry for entry in entries if entry.name.startswith(name)]
        if len(found) != 1:
            have = ", ".join(entry.name[:12] for entry in (found or entries)[:8])
            what = f"several passes that begin with {name!r}; give more of" if found else f"no pass {name!r}; it has"
            raise PassNetError(f"{self.directory} has {what} {have}")
        return found[0]

    def add(
        self, rows: Sequence[Mapping[str, Any]], variants: Mapping[str, Variant], *, replace: bool = False
    ) -> list[str]:
        """Add the passes of these rows of results; returns the hashes of entries that are new or changed.

        Rows without a pass, of other statuses than "ok", and of variants that are not given are left out. Where an
        entry has another pass, the one that was faster on the same kind of machine stays, unless `replace`. Raises
        PassNetError where the disk refuses it.
        """
        by_graph: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            variant = variants.get(row["variant_hash"])
            if row["compiler"] == "pass" and row["status"] == "ok" and row["pass_files"] and variant is not None:
                text = json.dumps([dict(file) for file in row["pass_files"]], sort_keys=True)
                by_graph[variant.graph_hash, text].append(dict(row))
        changed = []
        for (graph_hash, text), mine in sorted(by_graph.items()):
            files = {file["path"]: file["content"] for file in json.loads(text)}
            if self._put(graph_hash, files, mine, variants, replace):
                changed.append(graph_hash)
        return list(dict.fromkeys(changed))

    def take(self, entry: LibraryEntry) -> bool:
        """Add an entry of another library, its passports with it; whether anything changed.

        Where this one has another pass, the one that was faster stays; the same pass keeps the passports of both.
        """
        mine = self.directory / "passes" / entry.name
        if mine.exists() and LibraryEntry(mine).files().files == entry.files().files:
            have = {(row["variant_hash"], row["device"]) for row in LibraryEntry(mine).passports}
            rows = [row for row in entry.passports if (row["variant_hash"], row["device"]) not in have]
        else:
            rows = entry.passports
        return bool(rows) and self._put(entry.name, entry.files().files, rows, entry.variants, replace=False)

    def _put(
        self,
        graph_hash: str,
        files: dict[str, str],
        rows: list[dict[str, Any]],
        variants: Mapping[str, Variant],
        replace: bool,
    ) -> bool:
        place = self.directory / "passes" / graph_hash
        passports = [{k: _plain(v) for k, v in row.items() if k != "pass_files"} for row in rows]
        kept: list[dict[str, Any]] = []
        known = {}
        if place.exists():
            old = LibraryEntry(place)
            known = old.problem["variants"]
            if old.files().files == files:
                new = {(row["variant_hash"], row["device"]) for row in passports}
                kept = [row for row in old.passports if (row["variant_hash"], row["device"]) not in new]
            elif not replace and _mean(old.passports) >= _mean(passports):
                return False
        first = variants[rows[0]["variant_hash"]]
        problem = {
            "graph_hash": graph_hash,
            "graph": to_json(first.graph),
            "code": first.code or render(first.graph),
            "category": first.category,
            "sample": rows[0]["sample"],
            "variants": known
            | {row["variant_hash"]: [i.to_row() for i in variants[row["variant_hash"]].inputs] for row in rows},
        }
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(place / "pass", ignore_errors=True)
            with filling(place) as new_place:
                write_pass_dir(files, new_place / "pass")
                (new_place / "result.json").write_text(json.dumps(kept + passports, indent=1), "utf-8")
                (new_place / "problem.json").write_text(json.dumps(problem, indent=1), "utf-8")
        except OSError as error:
            raise disk_error(error, place, "another library") from error
        return True


def _same(row: Mapping[str, Any], versions: Mapping[str, str]) -> bool:
    known = dict(row["libraries"] or {})
    return all(known.get(name) == versions[name] for name in ("torch", "triton"))


def _mean(rows: Sequence[Mapping[str, Any]]) -> float:
    found = [row["speedup_e2e"] for row in rows if row["speedup_e2e"]]
    return math.exp(sum(map(math.log, found)) / len(found)) if found else 0.0


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple) and value and isinstance(value[0], tuple) and len(value[0]) == 2:
        return dict(value)  # a map column, as Arrow gives it
    return value


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise PassNetError(f"{path} is missing or not JSON ({error}): remove the entry {path.parent.name}") from None
