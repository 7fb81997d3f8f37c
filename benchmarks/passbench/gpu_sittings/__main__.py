"""The tables of what calls on a GPU host have left, in Markdown.

    python3 -m benchmarks.passbench.gpu_sittings OUT [OUT ...]

Each OUT is the directory of one call, as it came back. What a call was ended before it could leave is left out.
"""

import argparse
import io
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.passbench.gpu_sittings import tables
from tests.passbench.gpu_session import against_itself

_LOGS = {"tests": tables.log, "quiet_tests": tables.log, "attacks": tables.log, "group_norms": tables.whole_log,
         "memory_sizes": tables.whole_log}  # fmt: skip


def sections(directory: Path, scratch: Path) -> Iterator[tuple[str, str]]:
    """Title and text of each table that a directory has something for."""
    for name, text_of in _LOGS.items():
        if (file := directory / f"{name}.log").exists():
            yield name.replace("_", " "), text_of(file)
    if (file := directory / "both_ways.parquet").exists():
        yield "Shared rounds and whole trials", tables.both_ways(file)
    if (file := directory / "kept_passes.jsonl").exists():
        yield "What a process has done before", tables.things(file)
    for name, title in (("all", "All variants"), ("others", "Shapes without a plan")):
        if (file := directory / f"{name}.parquet").exists():
            yield title, tables.variants(file)
    if (table := unpacked(directory / "table.tgz", scratch / "table")) is not None:
        yield "Table", tables.results(table)
    if (quiet := unpacked(directory / "all.tgz", scratch / "quiet")) is not None:
        for run in sorted(quiet.glob("aa-*")):
            if (run / "aa").exists():
                yield f"Eager against itself, {run.name}", against_itself(run)
        if (quiet / "repeats").exists():
            yield "Runs of the same passes", tables.repeats(quiet)
        if (file := quiet / "turns.txt").exists():
            yield "Threads in turns", tables.turns(file)
        for file in sorted(quiet.glob("tests-*.txt")):
            yield file.stem, tables.log(file)
        if files := sorted(quiet.rglob("attacks-c*.parquet")):
            yield "Attacks and honest passes", tables.verdicts(files)


def unpacked(archive: Path, place: Path) -> Path | None:
    """Where an archive is unpacked, which may lie there in parts; None if there is none."""
    parts = [archive] if archive.exists() else sorted(archive.parent.glob(f"{archive.name}.[0-9][0-9]"))
    if not parts:
        return None
    whole = io.BytesIO(b"".join(part.read_bytes() for part in parts))
    with tarfile.open(fileobj=whole) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later have it
        opened.extractall(place)
    return place


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", type=Path, nargs="+", metavar="OUT")
    for directory in parser.parse_args().directories:
        with tempfile.TemporaryDirectory() as scratch:
            print(tables.join(list(sections(directory, Path(scratch)))))


if __name__ == "__main__":
    main()
