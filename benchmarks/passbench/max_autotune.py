"""Max-autotune compiled ahead for the table (`benchmarks.passbench.baselines_table`), while nothing is timed.

A variant takes it up to a minute of a core, since it compiles and times many kernels for each product and convolution.
So the cheapest come first, the categories in turn, and what is compiled is kept in a directory:

    DIRECTORY/cache.txz       TorchInductor's cache, as much of it as has room
    DIRECTORY/variants.txt    the hashes of the variants that were compiled
    DIRECTORY/place.txt       where that cache lay

A later call, also on another machine with such a GPU and the same torch, has it back and goes on: what is in the cache
takes a second or two. Cached graphs name the directory that they were compiled in, and write there when they are
loaded: the new directory's name, which has as many letters, replaces it. TorchInductor's graphs, which have their
kernels with them, and what it has timed are kept; Triton's own cache is left behind.
"""

import os
import re
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from passbench.shared_bench import LOST, SharedBench
from passbench.workers.precompile import Missed
from storage.errors import PassNetError
from storage.records import Sample, Variant

TUNED = "inductor-max-autotune"
GRACE = 12.0
"""Seconds that it may go on with what it has begun."""
AFTERWARDS = 2 * GRACE + 20.0
"""Seconds from the last that it begins until what it has compiled is kept, at most."""
_MOST_BYTES = 11 << 20
"""Of the archive. A call may leave files of 16 MiB, and takes along 64 MiB, of which the repository is half."""
_KEPT = ("fxgraph", "aotautograd", "cache")
"""Directories of TorchInductor's: graphs, what calls them, and times of configurations."""
_TEMPLATES = re.compile("linear|mm|matmul|conv|einsum|attention")
"""In the names of operators for which TorchInductor has templates with many configurations."""


def cost(variant: Variant) -> tuple[int, int]:
    """What orders variants by how long they take: the products and convolutions, then all operators."""
    names = [op.target for op in variant.graph.ops]
    return sum(_TEMPLATES.search(name) is not None for name in names), len(names)


def cheapest_first(samples: Iterable[Sample]) -> list[Sample]:
    """Samples of one variant, the cheapest of each category first, the categories in turn."""
    by_category = defaultdict(list)
    for sample in sorted(samples, key=lambda sample: cost(sample.variants[0])):
        by_category[sample.category].append(sample)
    return [one for turn in zip_longest(*by_category.values()) for one in turn if one is not None]


class KeptTuning:
    """What max-autotune has compiled in this call and in earlier ones, below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._archive, self._list = directory / "cache.txz", directory / "variants.txt"
        self._place = directory / "place.txt"

    @property
    def variants(self) -> set[str]:
        """The hashes of the variants that were compiled."""
        return set(self._list.read_text("utf-8").split()) if self._list.exists() else set()

    def unpack(self, cache: Path) -> None:
        """Put what is kept into a directory of TorchInductor's. Its name must be as long as that of the directory in
        which it was compiled."""
        if not self._archive.exists():
            return
        before, now = self._place.read_bytes(), _name(cache)
        if len(before) != len(now):
            raise PassNetError(f"{cache} cannot have what was compiled in {os.fsdecode(before)}: one name is longer")
        cache.mkdir(parents=True, exist_ok=True)
        with tarfile.open(self._archive) as archive:
            archive.extractall(cache, filter="data")
        for file in cache.rglob("*"):
            if file.is_file() and before in (content := file.read_bytes()):
                file.write_bytes(content.replace(before, now))

    def keep(self, cache: Path, compiled: Iterable[Variant], most_bytes: int = _MOST_BYTES) -> int:
        """Keep what TorchInductor has in its directory, the smallest files first, up to so many bytes of the archive.
        `compiled` are the variants that were compiled by now. Returns the bytes."""
        self._archive.parent.mkdir(parents=True, exist_ok=True)
        known = self.variants | {variant.variant_hash for variant in compiled}
        there = (file for file in cache.rglob("*") if file.is_file() and _is_kept(file.relative_to(cache)))
        files = [(file.stat().st_size, file) for file in there]
        written = self._archive.with_suffix(".new")
        with written.open("wb") as stream, tarfile.open(fileobj=stream, mode="w:xz", preset=1) as archive:
            for size, file in sorted(files):
                if stream.tell() + size > most_bytes:
                    break
                archive.add(file, file.relative_to(cache))
        written.replace(self._archive)
        self._list.write_text("\n".join(sorted(known)) + "\n", "utf-8")
        self._place.write_bytes(_name(cache))
        return self._archive.stat().st_size


def _name(cache: Path) -> bytes:
    """What cached graphs call the directory of a process whose TorchInductor's directory this is: Triton's lies beside
    it."""
    return os.fsencode(cache.parent)


def _is_kept(file: Path) -> bool:
    """Whether a file of TorchInductor's directory, by its path in there, is one that a later call needs."""
    return file.parts[0] in _KEPT or file.suffix in (".py", ".best_config")


def tune(
    bench: SharedBench, samples: Sequence[Sample], seconds: float, processes: int, kept: KeptTuning
) -> list[tuple[str, Missed]]:
    """Have processes compile what there is time for. What an earlier call has compiled comes first, then the cheapest.
    What a process had compiled that had to be ended is in the cache, and is read from there once more. Returns what was
    missed, with the compiler."""
    if not samples or seconds <= 0:
        return []
    cache, known = bench.compiler_cache(TUNED), kept.variants
    kept.unpack(cache)
    variants = [sample.variants[0] for sample in cheapest_first(samples)]
    variants.sort(key=lambda variant: variant.variant_hash not in known)
    missed = bench.compile_all([TUNED], variants, processes, time.monotonic() + seconds, GRACE)
    lost = [one.variant for _, one in missed if one.reason == LOST]
    if lost:
        again = bench.compile_all([TUNED], lost, processes, time.monotonic() + GRACE / 2, GRACE / 2)
        missed = [*(one for one in missed if one[1].reason != LOST), *again]
    kept.keep(cache, [variant for variant in variants if bench.compiled(TUNED, variant)])
    return missed
