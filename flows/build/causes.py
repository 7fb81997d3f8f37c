"""What of a catalogue could not be traced: counts by cause, with what would mend it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

MENDS = {
    "config": "nothing here, where the repository has no usable config; a newer transformers or timm, where it has",
    "unsupported_input": "example inputs of another kind: extraction/examples makes them by modality",
    "graph_break": "a change of the model's code, or of torch: dynamo cannot capture it whole",
    "data_dependent": "a change of the model's code: it decides by the values of tensors",
    "missing_dependency": "the package that the message names, on every machine of the build",
    "remote_code": "nothing here: code of a repository is never executed; a library that has the class",
    "gated": "its terms accepted on the Hub, HF_TOKEN in the environment, and --retry-failed",
    "not_found": "another name or revision in the catalogue",
    "timeout": "--retry-failed with a larger timeout_s, or when the Hub answers again",
    "out_of_memory": "--retry-failed with a larger memory_mb",
    "out_of_disk": "--retry-failed with a larger disk_mb, or more room",
    "too_many_processes": "--retry-failed with more processes",
    "crashed": "--retry-failed; if it ends so again, a report with the model's name",
    "internal": "a repair of PassNet or of a library below it: a report with the model's name",
}
"""What would let models of a category be traced (`extraction.failures.CATEGORIES`)."""
MOST_CAUSES = 40
EXAMPLES = 3
_OWN = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\b[\w.\-]+/[\w.\-]+\b|\b\d[\d.]*\b")
"""Parts of a message that differ between models with the same cause: names, paths, numbers."""


def causes(models: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Causes of failure among rows of `models`, the most frequent first, `MOST_CAUSES` at most.

    A cause is a category and a message without names and numbers. Each has the number of its models, the names of
    `EXAMPLES` of them, the first one's whole message, and what would mend it. What is left out is one more cause, with
    the category "others".
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in models:
        if row["status"] != "failed":
            continue
        category, message = row["error_category"], row["message"]
        cause = found.setdefault(
            (category, _OWN.sub("…", message)),
            {"category": category, "message": message, "models": 0, "examples": [], "mend": MENDS[category]},
        )
        cause["models"] += 1
        if len(cause["examples"]) < EXAMPLES:
            cause["examples"].append(row["model"])
    ordered = sorted(found.values(), key=lambda cause: (-cause["models"], cause["category"], cause["message"]))
    kept, rest = ordered[:MOST_CAUSES], ordered[MOST_CAUSES:]
    if rest:
        others = {"category": "others", "message": f"{len(rest)} more causes", "mend": "see the table `models`"}
        kept.append({**others, "models": sum(c["models"] for c in rest), "examples": [rest[0]["examples"][0]]})
    return kept
