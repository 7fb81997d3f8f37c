"""Demonstrations as a dataset of conversations, with a card, that `load_dataset` and `agent.learning.sft` read.

    python -m benchmarks.learning.chat_dataset --demonstrations FILE --out DIR

`prompt` is the contract and the task, `completion` the rationale and the pass, as `passnet demonstrations` has them in
the plain form; the other columns are the file's. Splits share no family.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from agent.learning.answers import answer_of, files_of
from agent.learning.dataset import write_dataset
from agent.learning.demonstrations import MESSAGE, PLAIN, message
from agent.llm.prompt import SYSTEM
from benchmarks.learning.make_demonstrations import SCHEMA
from storage.errors import PassNetError
from storage.parquet import read_rows

CHAT = pa.schema(
    [
        ("prompt", pa.list_(MESSAGE)),
        ("completion", pa.list_(MESSAGE)),
        *(field for field in SCHEMA if field.name not in ("split", "answer")),
        ("licence", pa.string()),
    ]
)
LICENCE = "Apache-2.0"
CARD = """\
{rows} passes for graphs, one graph a row, of {families} families. No family is in two splits.

| kind | found right by | on | rows | families |
|---|---|---|---|---|
{table}

`real` graphs are training samples of PassNet versions, `window`s are runs of ops of traced models, `composed` graphs
are put together at random. `level` is the largest t at which all variants that were checked are right; speedups are
empty where they were not measured on a GPU, and below 1 where eager is faster. PassNet's author `readable` wrote all
passes. Graphs hold operators and shapes of models, no weights; the rows are under Apache-2.0.
"""


def chat_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A demonstration as a conversation without tools."""
    answer = answer_of(files_of(row["answer"]), row["rationale"])
    prompt = [message("system", SYSTEM), message("user", PLAIN + row["task"])]
    kept = {name: row[name] for name in CHAT.names if name in row}
    return {"prompt": prompt, "completion": [message("assistant", answer)], "licence": LICENCE} | kept


def card_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the card says of these rows."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        groups.setdefault((row["kind"], row["checked"], row["device"]), []).append(row["family_hash"])
    table = "\n".join(
        f"| {' | '.join(group)} | {len(families):,} | {len(set(families)):,} |"
        for group, families in sorted(groups.items())
    )
    families = len({row["family_hash"] for row in rows})
    return CARD.format(rows=f"{len(rows):,}", families=f"{families:,}", table=table)


def main() -> int:
    """Write the dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demonstrations", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = read_rows(arguments.demonstrations, SCHEMA)
    splits = {split: [chat_row(r) for r in rows if r["split"] == split] for split in ("train", "validation")}
    try:
        write_dataset(arguments.out, "PassNet demonstrations", card_of(rows), splits, CHAT)
    except PassNetError as error:
        print(f"chat_dataset: {error}", file=sys.stderr)
        return 1
    print(dict(Counter(row["split"] for row in rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
