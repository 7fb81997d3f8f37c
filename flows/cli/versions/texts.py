"""What the commands about versions answer, as text."""

from flows.cli.tables import render


def versions_text(done: dict) -> str:
    """The versions of a data directory."""
    rows = [
        (v["version"], v["kind"], v["parent"], v["created"], " ".join(f"{c}:{n}" for c, n in v["rows"].items() if n))
        for v in done["versions"]
    ]
    if not rows:
        return "no versions yet: run `passnet build`"
    problems = "".join(f"\n{v['version']}: {v['problem']}" for v in done["versions"] if v["problem"])
    whole = "\nall files are as their SHA-256 says" if done["verified"] and not problems else ""
    return render("Versions", ("version", "kind", "parent", "created", "rows"), rows) + problems + whole


def diff_text(done: dict) -> str:
    """Two versions side by side."""
    columns = ("config", "added", "removed", "changed", "rows now", "changed columns")
    rows = [
        (
            config,
            d["added"],
            d["removed"],
            d["changed"],
            d["rows"],
            " ".join(f"{c}:{n}" for c, n in d["columns"].items()),
        )
        for config, d in done["configs"].items()
    ]
    text = render(f"{done['old']} → {done['new']}", columns, rows)
    if done["scores"]:
        scores = [(_marked(run, s), s["old"], s["new"]) for run, s in sorted(done["scores"].items())]
        text += "\n" + render("AS", ("run", done["old"], done["new"]), scores)
    return text


def _marked(run: str, line: dict) -> str:
    return run if line["times_meaningful"] is not False else f"{run[:-1]}, no GPU: says nothing)"


def collected_text(done: dict) -> str:
    """What a garbage collection removed."""
    verb = "would remove" if done["dry_run"] else "removed"
    versions = f" ({', '.join(done['versions'])})" if done["versions"] else ""
    files = "".join(f"\n  {file}" for file in done["files"])
    freed = f"{done['bytes'] / 1e6:.1f} MB"
    return f"{verb} {len(done['versions'])} versions{versions} and {len(done['files'])} unlisted files, {freed}{files}"
