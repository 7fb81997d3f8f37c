"""More demonstrations while a model trains: processes that put graphs together, and what they have written so far."""

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.learning.make_demonstrations import arguments_of, work
from benchmarks.learning.parts import begun

_NICENESS = 10


class Growing:
    """Processes that put further demonstrations together while the model trains; a context manager that ends them.

    `rows` counts what they have made.
    """

    def __init__(self, processes: int, held_out: Sequence[Path], seed: int) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="passnet-growing-")
        self.journal, self.rows, self._read = Path(self._place.name), 0, Counter[Path]()
        command = [word for place in held_out for word in ("--held-out", str(place))]
        command += ["--composed", str(processes * 100_000), "--seed", str(500 + seed), "--journal", self._place.name]
        parts = [arguments_of([*command, "--part", f"{n}/{processes}"]) for n in range(processes)]
        self._begun = [begun(work, part, _NICENESS) for part in parts]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._place.cleanup()

    def close(self) -> None:
        """End the processes."""
        for process in self._begun:
            process.terminate()
        for process in self._begun:
            process.join()
        self._begun = []

    def new_rows(self) -> list[dict[str, Any]]:
        """The demonstrations that came since this was called last."""
        lines = []
        for path in self.journal.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read[path])
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._read[path] += len(whole) + 1
                lines += [json.loads(line) for line in whole.split(b"\n")]
        rows = [line for line in lines if not line["cause"]]
        self.rows += len(rows)
        return rows
