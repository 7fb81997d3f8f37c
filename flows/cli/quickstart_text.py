"""The last screen of `passnet quickstart`."""

from flows.cli.tables import build_text, evaluate_text, render


def quickstart_text(done: dict, where: str = "") -> str:
    """What was built, what authors did, the record of a GPU where none ran here, and what to try next.

    `where` is the option that names the data directory, if it is not the default one.
    """
    parts = [build_text(done["build"]), evaluate_text(done["evaluate"])]
    if done["record"]:
        parts.append(record_text(done["record"]))
    parts.append("Next:\n" + "\n".join(f"  {line}" for line in next_commands(done, where)))
    return "\n\n".join(parts)


def record_text(record: dict) -> str:
    """The committed record of a GPU."""
    found = record["lines"][0]["categories"]
    columns = ("author", *(f"{category}: AS e2e, right" for category in found))
    rows = [(line["author"], *(_score(line["categories"].get(one)) for one in found)) for line in record["lines"]]
    versions = ", ".join(f"{name} {version}" for name, version in record["libraries"].items())
    title = f"Not measured here: a committed record of one {record['device']}, {versions}, other samples"
    return render(title, columns, rows) + f"\nrows and command: {record['path']} and the README.md beside it"


def _score(one: dict | None) -> str:
    return "-" if one is None else f"{one['AS']:.2f}, {one['correct']} of {one['variants']}"


def next_commands(done: dict, where: str = "") -> list[str]:
    """Commands to try next; each runs as printed."""
    version = done["evaluate"]["version"]
    sample = done["evaluate"]["samples"][0]
    commands = [
        ("samples --op softmax", "find samples"),
        (f"show {sample}", "look at one"),
        (f"bench {sample} --compiler inductor", "what TorchInductor makes of it"),
        ("score latest", "the t-table and the aggregate score"),
        (f"report latest --version {version} --out report", "the same as a page with pictures"),
    ]
    lines = [(f"python3 run.py passnet {command} {where}".rstrip(), what) for command, what in commands]
    width = max(len(line) for line, _ in lines)
    return [f"{line.ljust(width)}  # {what}" for line, what in lines]
