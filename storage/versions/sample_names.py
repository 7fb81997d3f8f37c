"""Which sample a name means. Imports no torch, so that a wrong name is told at once."""

from collections.abc import Mapping, Sequence
from typing import Any

from storage.errors import PassNetError


def row_named(name: str, rows: Sequence[Mapping[str, Any]], where: str) -> Mapping[str, Any]:
    """The row of the samples table whose id this is, or the one whose id starts so.

    `where` is the version's name, for messages. Raises PassNetError for a name that fits no sample or several.
    """
    exact = [row for row in rows if row["sample"] == name]
    fitting = exact or [row for row in rows if row["sample"].startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(row["sample"] for row in fitting[:3])
        raise PassNetError(f"{len(fitting)} samples of {where} fit {name!r}: give a whole id, such as {some}")
    raise PassNetError(
        f"no sample of {where} fits {name!r}: `passnet samples` lists them, `--op relu` those with an op"
    )
