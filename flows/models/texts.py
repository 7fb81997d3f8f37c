"""What the commands about whole models print."""

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from flows.plurals import counted


def tuned_text(document: Mapping[str, Any]) -> str:
    """What `tune` prints."""
    lines = [f"{document['model']} runs as {document['chosen']}{' (known before)' if document['remembered'] else ''}."]
    if document["why_not"]:
        lines.append(f"It is not run as one graph: {document['why_not']}.")
    lines += document["notes"]
    for way in document["ways"]:
        time = "" if way["us"] is None else f"{way['us']:.0f} us"
        over = "" if way["over_eager"] is None else f"{way['over_eager']:.2f} x"
        lines.append(f"  {way['way']:34} {time:>12} {over:>8}  {way['reason']}".rstrip())
    if document["regions"]:
        counts = document["regions"]
        lines.append(
            f"{counts['regions']} regions: {counts['known']} have a pass, {counts['measured']} were measured now, "
            f"{counts['written']} written."
        )
    lines += [f"Pass {name[:12]} may not serve: {why}." for name, why in document["refused"].items()]
    covered = f", {document['covered']} served by passes" if document["covered"] else ""
    if not document["why_not"]:
        lines.append(f"{document['ops']} operators, {len(document['computed_once'])} computed once{covered}.")
    return "\n".join([*lines, f"{document['seconds']:.1f} s."])


def library_text(document: Mapping[str, Any]) -> str:
    """What `library list` prints."""
    lines = [f"{counted(len(document['entries']), 'pass', 'passes')} in {document['library']}"]
    for entry in document["entries"]:
        speed = "" if entry["speedup_e2e"] is None else f"{entry['speedup_e2e']:.2f} x"
        ops = shorten(" ".join(_op(name) for name in entry["ops"]), 60, placeholder=" …")
        serves = f"may not serve here: {entry['why_not']}" if entry["why_not"] else "may serve here"
        lines.append(f"{entry['hash'][:12]} {speed:>7} {ops:60} {serves}")
    return "\n".join(lines)


def _op(name: str) -> str:
    """The last name of an operator, without its overload: `sum` of `torch.ops.aten.sum.dim_IntList`."""
    aten = name.removeprefix("torch.ops.aten.")
    return aten.partition(".")[0] if aten != name else name.rpartition(".")[2]


def entry_text(document: Mapping[str, Any]) -> str:
    """What `library show` prints."""
    lines = [document["hash"], "", document["code"].strip(), ""]
    for name, text in document["files"].items():
        lines += [f"# {name}", text.strip(), ""]
    for row in document["passports"]:
        speedups = ", ".join(f"{c} {row[f'speedup_{c}']:.2f}" for c in ("e2e", "device") if row[f"speedup_{c}"])
        lines.append(f"{row['device']}: {row['status']}, t_min {row['t_min']}, {speedups or 'no times'}")
    lines.append(document["why_not"] or "It may serve on this machine.")
    return "\n".join(lines)
