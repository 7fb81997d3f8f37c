"""Where a model's time goes: which kernels and operators ran, who made them, what each way saves, and their source."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from flows.models.named_model import NamedModel
from flows.models.regions_report import kernel_sources, regions
from flows.models.tune import tuned_document
from flows.report.page import folded, joined, page, paragraph, table
from passbench.library.pass_library import LibraryEntry, PassLibrary
from passbench.models.call_times import PROFILED, recorded
from passbench.models.graph_facts import calls_of
from passbench.models.lowering import LoweredGraph
from passbench.models.optimized_model import OptimizedModel
from passbench.models.serving import NAMESPACE
from storage.disk import appearing

SHOWN = 15
"""Lines of a table of kernels as text; `--json` and the page have all."""


def explain(named: NamedModel, fast: OptimizedModel, library: Path) -> dict[str, Any]:
    """A document: what was chosen and what else was tried; the kernels of eager and of what was chosen, with times of
    one call in microseconds; its regions, with what each saves; the source of every pass and kernel that serves."""
    with torch.no_grad():
        eager = _profiled(lambda: named.model(*named.args, **named.kwargs))
        mine = _profiled(lambda: fast(*named.args, **named.kwargs))
    lowered = fast.lowered
    passes = _passes(lowered, library)
    speedups = {one["hash"]: _speedup(PassLibrary(library).entry(one["hash"]), named.device) for one in passes}
    times = {line["name"]: line["us"] for line in mine}
    return {
        "model": named.name,
        **tuned_document(fast),
        "served_by": _served_by(lowered),
        "eager_kernels": eager,
        "kernels": [{**line, "by": _maker(line["name"], passes)} for line in mine],
        "regions_served": [] if lowered is None else regions(lowered, fast.given.moving, times, speedups),
        "passes": passes,
        "kernel_sources": {} if lowered is None else kernel_sources(lowered.sources),
        "code": "" if lowered is None else lowered.parts.main.code.strip(),
    }


def _profiled(function: Callable[[], object]) -> list[dict[str, Any]]:
    """What ran in one call, longest first: GPU kernels where there is a GPU, else operators by their own time."""
    gpu = torch.cuda.is_available()
    function()
    with recorded(ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU) as seen:
        for _ in range(PROFILED):
            function()
        if gpu:
            torch.cuda.synchronize()
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in seen.key_averages():
        if gpu and event.is_user_annotation:
            continue  # a range around kernels, such as "TorchDynamo Cache Lookup", whose time is theirs
        us = event.self_device_time_total if gpu else event.self_cpu_time_total
        if us > 0:
            found[event.key][0] += us / PROFILED
            found[event.key][1] += event.count / PROFILED
    lines = [{"name": name, "us": us, "calls": calls} for name, (us, calls) in found.items()]
    return sorted(lines, key=lambda line: -line["us"])


def _served_by(lowered: LoweredGraph | None) -> dict[str, int]:
    """Operators of the graph by who serves them."""
    if lowered is None:
        return {}
    calls = calls_of(lowered.parts.main.graph)
    rest = sum(not str(node.target).startswith(NAMESPACE) for node in calls)
    compiler = "TorchInductor" if lowered.compiler == "inductor" else "eager"
    return {compiler: rest, "passes": len(lowered.replaced), "computed once": len(lowered.parts.taken)}


def _passes(lowered: LoweredGraph | None, library: Path) -> list[dict[str, Any]]:
    found = []
    for name, matches in ({} if lowered is None else lowered.served).items():
        entry = PassLibrary(library).entry(name)
        rows = entry.passports
        found.append(
            {
                "hash": name,
                "matches": matches,
                "replaces": entry.problem["code"],
                "source": entry.files().files,
                "measured": [
                    {key: row[key] for key in ("device", "status", "t_min", "speedup_e2e", "speedup_device")}
                    for row in rows
                ],
            }
        )
    return found


def _speedup(entry: LibraryEntry, device: torch.device) -> float | None:
    return entry.speedup(device, "device") or entry.speedup(device)


def _maker(kernel: str, passes: list[dict[str, Any]]) -> str:
    """Who made a kernel, by its name."""
    for one in passes:
        if any(f"def {kernel}(" in text for text in one["source"].values()):
            return f"pass {one['hash'][:12]}"
    if kernel.startswith(("triton_", "graph_0_cpp", "cpp_")):
        return "TorchInductor"
    return "library"


def explain_text(document: Mapping[str, Any]) -> str:
    """The document as text."""
    lines = [f"{document['model']} runs as {document['chosen']}."]
    if document["why_not"]:
        lines.append(f"It is not run as one graph: {document['why_not']}.")
    lines += document["notes"]
    lines += ["", f"{'way':34} {'us':>10} {'over eager':>10}  error (eager's)"]
    for way in document["ways"]:
        us = "" if way["us"] is None else f"{way['us']:.1f}"
        over = "" if way["over_eager"] is None else f"{way['over_eager']:.2f}"
        error = "" if way["error"] is None else f"{way['error']:.1e} ({way['error_eager']:.1e})"
        lines.append(f"{way['way']:34} {us:>10} {over:>10}  {error} {way['reason']}".rstrip())
    served = ", ".join(f"{who} {count}" for who, count in document["served_by"].items())
    lines += ["", f"Operators: {served or 'unknown'}."]
    lines += [f"Pass {p['hash'][:12]} serves {p['matches']} places." for p in document["passes"]]
    lines += [f"Pass {name[:12]} may not serve: {why}." for name, why in document["refused"].items()]
    if document["regions_served"]:
        lines += ["", f"{'region, by what it saves':44} {'us':>9} {'eager us':>9} {'saves us':>9}  operators"]
    for region in document["regions_served"][:SHOWN]:
        numbers = " ".join(f"{'' if (x := region[key]) is None else f'{x:.1f}':>9}" for key in _REGION_TIMES)
        lines.append(f"{_region_name(region):44} {numbers}  {' '.join(region['ops'])[:80]}")
    for title, key in (("Eager", "eager_kernels"), (document["chosen"], "kernels")):
        total = sum(line["us"] for line in document[key])
        lines += ["", f"{title}: {total:.0f} us in {len(document[key])} kinds of kernels or operators"]
        for line in document[key][:SHOWN]:
            lines.append(f"{line['us']:10.1f} us {line['calls']:6.0f} x  {line.get('by', ''):14} {line['name'][:80]}")
    sources = {f"pass {p['hash'][:12]}, {name}": text for p in document["passes"] for name, text in p["source"].items()}
    for name, text in {**sources, **document["kernel_sources"]}.items():
        lines += ["", f"--- {name}", text.strip()]
    return "\n".join(lines)


_REGION_TIMES = ("us", "eager_us", "saves_us")


def _region_name(region: Mapping[str, Any]) -> str:
    """A kernel, or a pass by the beginning of its hash."""
    return f"pass {region['kernel'][:12]}" if region["by"] == "pass" else region["kernel"][:44]


def write_page(document: Mapping[str, Any], path: Path) -> None:
    """The document as one HTML page that loads nothing. Raises OSError."""
    ways = [{**way, "served": sum(way["served"].values())} for way in document["ways"]]
    columns = ["way", "us", "over_eager", "error", "error_eager", "eagers_bits", "served", "reason"]
    kernels = ["name", "us", "calls", "by"]
    sources = [
        folded(f"Pass {p['hash'][:12]}, {p['matches']} places: {name}", paragraph(text))
        for p in document["passes"]
        for name, text in (("what it replaces", p["replaces"]), *p["source"].items())
    ]
    sources += [folded(f"Kernel {name}", paragraph(text)) for name, text in document["kernel_sources"].items()]
    parts = [{**r, "region": _region_name(r), "ops": " ".join(r["ops"])} for r in document["regions_served"]]
    served = [{"by": who, "operators": count} for who, count in document["served_by"].items()]
    sections = [
        ("Ways", table(ways, columns, long=("reason",))),
        ("Who serves its operators", table(served, ["by", "operators"])),
        ("What each region saves", table(parts, ["region", "by", *_REGION_TIMES, "ops"], long=("ops",))),
        ("Kernels", table(document["kernels"], kernels, long=("name",))),
        ("Eager's kernels", table(document["eager_kernels"], kernels[:3], long=("name",))),
        ("Sources", joined(sources) if sources else paragraph("No pass and no kernel of TorchInductor's serves it.")),
        ("Graph", folded("What is run, as Python", paragraph(document["code"]))),
    ]
    notes = [*document["notes"], *([document["why_not"]] if document["why_not"] else [])]
    with appearing(path) as partial:
        text = page(f"{document['model']}", f"It runs as {document['chosen']}.", notes, sections)
        partial.write_text(text, encoding="utf-8")
