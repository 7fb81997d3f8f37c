"""What `passnet samples`, `passnet show` and `passnet bench` answer, as text."""

from collections import Counter
from collections.abc import Sequence

from flows.cli.tables import NO_GPU, cell, render
from flows.plurals import counted

MOST_LINES = 12
"""Variants and sources that `show` lists; `--json` has all."""

MOST_OPS = 10
"""Ops that a line of `samples` has; `--json` has all."""

_TEXT = ("role", "dtype", "shape", "values", "inputs")


def samples_text(done: dict) -> str:
    """Samples, a line each."""
    rows = [(s["sample"], s["split"], s["variants"], _ops(s["ops"], done["op"])) for s in done["samples"]]
    more = done["found"] - len(rows)
    note = f"\n{more} more: give --limit {done['found']}, or --op, --category, --split" if more else ""
    return render(f"Samples of {done['version']}", ("sample", "split", "variants", "ops"), rows, left=("ops",)) + note


def show_text(done: dict) -> str:
    """A sample: source, inputs, where it comes from, results."""
    backward = ", a backward graph" if done["direction"] == "backward" else ""
    columns = ("variant", "inputs", "kernels")
    variants = [(v["id"][:12], " ".join(v["inputs"]), v["kernels"]) for v in done["variants"]]
    inputs = [
        (i["name"], i["role"], i["dtype"], "×".join(map(str, i["shape"])) or "scalar", _values(i))
        for i in done["inputs"]
    ]
    sources = [f"  {s['model']}, ops {s['start']} to {s['end']}" for s in done["sources"]]
    parts = [
        f"{done['sample']} of {done['version']}{backward}, split {done['split']}; {done['reason']}",
        done["code"].rstrip(),
        render("Inputs of the first variant", ("name", "role", "dtype", "shape", "values"), inputs, _TEXT),
        render(counted(len(variants), "variant"), columns, variants[:MOST_LINES], _TEXT) + _more(variants),
        "\n".join(["Where it comes from", *sources[:MOST_LINES]]) + _more(sources),
        _results(done),
    ]
    return "\n\n".join(parts)


def _results(done: dict) -> str:
    if not done["results"]:
        return f"No results yet: `passnet bench {done['sample']} --compiler inductor`, or `passnet evaluate`."
    from flows.report.rows import labels

    names = labels(done["results"])
    columns = ("author", "device", "variants", "right at t = -5", "e2e", "on the device")
    rows = [
        (
            names[r["run"]], r["device"], r["variants"], r["correct"],
            cell(r["speedup_e2e"]), cell(r["speedup_device"]),
        )
        for r in done["results"]
    ]  # fmt: skip
    failures = "".join(
        f"\n{names[r['run']]}: {f['variants']} x {f['what']}" for r in done["results"] for f in r["failures"]
    )
    cpu = any(r["speedup_e2e"] is None and r["correct"] for r in done["results"])
    note = "\nWithout a GPU there are no speeds." if cpu else ""
    return render("Results", columns, rows) + note + failures


def _more(rows: list) -> str:
    return f"\n  and {len(rows) - MOST_LINES} more, see --json" if len(rows) > MOST_LINES else ""


def _values(value: dict) -> str:
    if value["low"] is not None or value["high"] is not None:
        return f"from {value['low']:g} to {value['high']:g}"
    return "any" if value["mean"] is None else f"mean {value['mean']:.3g}, deviation {value['std'] or 0:.3g}"


def _ops(names: Sequence[str], op: str | None = None) -> str:
    """The first ops; of a longer list those from the first one on whose name holds `op`, if that comes later."""
    found = next((i for i, name in enumerate(names) if op is not None and op in name), 0)
    start = found if found >= MOST_OPS else 0
    rest = len(names) - start - MOST_OPS
    before, behind = f"{start} others, then " if start else "", f" and {rest} more" if rest > 0 else ""
    return before + " ".join(map(_short, names[start : start + MOST_OPS])) + behind


def _short(name: str) -> str:
    if name.startswith("torch.ops."):
        return name.removeprefix("torch.ops.").removesuffix(".default")
    for prefix in ("torch.nn.functional.", "torch._C._nn.", "torch.", "operator."):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def bench_text(done: dict) -> str:
    """One sample's results by variant; what is wrong with them stands below the table, whole, equal reasons once."""
    timed = done["times_meaningful"]
    times = ("e2e", "95%", "device", "eager us") if timed else ()
    columns = ("variant", "inputs", "status", "t_min", *times, "error / eager's", "note")
    reasons = Counter(v["reason"] for v in done["variants"] if v["reason"])  # in the order of their first variants
    numbers = {reason: number for number, reason in enumerate(reasons, 1)}
    rows = [
        (
            v["id"][:12], v["inputs"], v["status"], v["t_min"],
            *((v["speedup_e2e"], _sureness(v["timings"]), v["speedup_device"], v["eager_us"]) if timed else ()),
            _against_double(v), f"[{numbers[v['reason']]}]" if v["reason"] else "",
        )
        for v in done["variants"]
    ]  # fmt: skip
    below = "".join(f"\n[{numbers[reason]}] {count} x {_indented(reason)}" for reason, count in reasons.items())
    below += f"\nright at t = -5: {sum(_right(v) for v in done['variants'])} of {len(rows)}"
    if called := sorted({op for v in done["variants"] for op in v["library_ops"] or ()}):
        below += f"\noperators of the library that the pass called: {', '.join(called)}"
    below += "" if timed else f"\n{NO_GPU}"
    below += "".join(f"\nmissing layer: {layer}: {why}" for layer, why in done["layers_missing"].items())
    scores = f"\nAS {cell(done['AS']['e2e'])} (e2e), {cell(done['AS']['device'])} (device)" if timed else ""
    return render(f"{done['sample']} with {done['compiler']} on {done['device']}", columns, rows) + below + scores


def _right(variant: dict) -> bool:
    return variant["status"] == "ok" and variant["t_min"] <= -5


def _indented(text: str) -> str:
    """A text of several lines with all but the first further in."""
    return text.strip().replace("\n", "\n    ")


def _sureness(timings: Sequence[dict]) -> str:
    """The 95% interval of the end-to-end speedup."""
    found = [t for t in timings if t["clock"] == "e2e"]
    return f"[{found[0]['speedup_low']:.2f}, {found[0]['speedup_high']:.2f}]" if found else ""


def _against_double(variant: dict) -> str:
    """How many times eager's error against double precision the candidate has."""
    eager, candidate = variant["error_eager"], variant["error_candidate"]
    if eager is None or candidate is None:
        return ""
    return f"{candidate / eager:.2f}" if eager else ("1.00" if not candidate else "inf")
