"""Cut and vary the traces of a data directory, on a machine that need not have Prefect.

    python3 -m benchmarks.extraction.corpus_shards --catalog FILE --workers 32 --points 1 --data DIR

`benchmarks.extraction.trace_corpus` makes the traces; models of the catalogue that DIR holds no trace of are left out.
A shard is kept when it is done, so a run that is killed goes on where it stopped. `passnet build` with the same
catalogue, points and code finds in DIR what is done: after this it has only to merge, to choose samples and to publish.
DIR may be copied to another machine for that: traces and shards. Prints the processor seconds and the memory of each
stage, and the name of what repeats; with `--repeats NAME` a catalogue that has grown keeps it, as a build does.

`--known FILE` only packs what DIR knows into a tar file: which subgraphs are varied, without their variants, and what
repeats. Unpacked in another machine's DIR it spares that machine these subgraphs.
"""

import logging
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.extraction.corpus_table import held, parser_of_corpus
from benchmarks.extraction.hub_catalog import children_s, peak_mib
from dedup.database import Engine
from extraction.pool.client import Pool
from extraction.sources.spec import specified
from extraction.tracing.trace_store import TraceStore
from flows.build.subgraphs import alone, cut, digest_of, vary, working
from flows.build.traced import find_traces


def main() -> None:
    parser = parser_of_corpus(__doc__)
    parser.add_argument("--points", type=int, default=1, help="shape points of a subgraph at most")
    parser.add_argument("--repeats", default="", help="keep the repeated sequences of an earlier run, which named them")
    parser.add_argument("--known", type=Path, help="pack what DIR knows into this file, and end")
    arguments = parser.parse_args()
    if arguments.known:
        return pack_known(arguments.data, arguments.known)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    entries, left = held(arguments)
    traced = find_traces(TraceStore(arguments.data / "traces"), specified(entries))
    print(f"{len(entries)} models, {traced.graphs} graphs; {left} models are not traced", flush=True)
    limits = {"workers": arguments.workers, "timeout_s": arguments.timeout, "memory_mb": arguments.memory}
    with (
        alone(arguments.data),
        working(arguments.data, digest_of(traced, arguments.points, arguments.repeats)) as work,
        Engine(work.of_build / "engine") as engine,
        Pool(**limits) as pool,
    ):
        with Stage("cut"):
            subgraphs = cut(traced, work, pool, engine, arguments.repeats)
        print(subgraphs.counts, f"repeats: {subgraphs.repeats}", flush=True)
        with Stage("vary"):
            variants = vary(subgraphs, arguments.points, work, pool, engine)
        print(variants.counts, flush=True)
        sys.exit(0)  # inside the block: `working` keeps the files of a build that has not come to its end


def pack_known(data: Path, packed: Path) -> None:
    """Packs the files of variants without their rows, and those of what repeats."""
    with tarfile.open(packed, "w:xz") as tar, tempfile.TemporaryDirectory() as directory:
        for path in sorted((data / "shards").rglob("[!.]*.parquet")):
            name = path.relative_to(data)
            if "varied" in name.parts:
                with pq.ParquetFile(path) as file:
                    told = {key: value for key, value in file.metadata.metadata.items() if key != b"ARROW:schema"}
                    schema = file.schema_arrow
                path = Path(directory) / path.name
                with pq.ParquetWriter(path, schema) as writer:
                    writer.write_table(schema.empty_table())
                    writer.add_key_value_metadata(told)
            if not {"cut", "typical"} & set(name.parts):
                tar.add(path, name)


class Stage:
    """Prints what its block took: wall and processor seconds of this process and of its workers, and memory."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.begin = _clocks()

    def __exit__(self, *_: object) -> None:
        wall, own, workers = (end - begin for end, begin in zip(_clocks(), self.begin, strict=True))
        print(f"{self.name}: {wall:.0f} s; processor {own:.0f} s here, {workers:.0f} s in workers; "
              f"{peak_mib():.0f} MiB here at most", flush=True)  # fmt: skip


def _clocks() -> tuple[float, float, float]:
    return time.monotonic(), time.process_time(), children_s()


if __name__ == "__main__":
    main()
