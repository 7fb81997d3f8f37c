"""A process whose sets and dictionaries of strings have another order computes the same hashes and samples."""

import os
import subprocess
import sys
from pathlib import Path

from dedup.hashes import family_hash, graph_hash
from storage.graph.as_json import to_json
from tests.dedup.test_hashes import SAME_CALL
from tests.dedup.test_samples import chosen
from tests.support.graphs import corpus

_PROGRAM = """
import sys
from dedup.hashes import family_hash, graph_hash
from storage.graph.as_json import from_json
from tests.dedup.test_samples import chosen
for line in sys.stdin:
    graph = from_json(line)
    print(graph_hash(graph), family_hash(graph))
print(chosen())
"""


def test_other_processes_hash_and_choose_the_same() -> None:
    graphs = [traced.graph for traced in corpus()] + [pair[1] for pair in SAME_CALL]
    hashes = [f"{graph_hash(graph)} {family_hash(graph)}" for graph in graphs]
    samples = chosen()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input="\n".join(to_json(graph) for graph in graphs),
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [*hashes, *samples.splitlines()] and " eval " in samples
