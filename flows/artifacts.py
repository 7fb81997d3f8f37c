"""Artifacts of a flow run: what its page on the server shows of it. Outside a flow run there are none."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flows.steps import flow_run


def progress_of(what: str) -> Callable[[float], None]:
    """A bar on the run's page; call what is returned with the percentage that is done."""
    if not flow_run():
        return lambda percent: None
    from prefect.artifacts import create_progress_artifact, update_progress_artifact

    artifact = create_progress_artifact(0.0, description=what, _sync=True)

    def update(percent: float) -> None:
        update_progress_artifact(artifact, percent, _sync=True)

    return update


def keep_evaluation(summary: dict[str, Any]) -> None:
    """Scores, failures by cause, devices and what models cost, of the summary that `evaluate-model` returns."""
    _keep("evaluation", evaluation_page(summary), f"results in {summary['version']}")


def keep_build(summary: dict[str, Any]) -> None:
    """Counts and failures by category, of the summary that `build-dataset` returns."""
    _keep("build", build_page(summary), f"dataset {summary['version']}")


def evaluation_page(summary: dict[str, Any]) -> str:
    """An evaluation as Markdown."""
    runs, minutes = summary["runs"], summary["seconds"] / 60
    variants = sum(run["variants"] for run in runs)
    scores = [
        (
            run["run"], run["samples"], run["variants"], run["ok"], run["es"]["-5"],
            run["aggregate"]["e2e"], run["aggregate"]["device"], _cost(run),
            run.get("stopped", ""), len(run.get("lost", ())),
        )
        for run in runs
    ]  # fmt: skip
    columns = ("run", "samples", "variants", "ok", "ES_-5", "AS e2e", "AS device", "cost", "stopped", "lost")
    failures = [(run["run"], status, count, why) for run in runs for status, why, count in run["failures"]]
    devices = [(d["device"], d["lots"], d["lost"], d["seconds"], f"{d['busy']:.0%}") for d in summary["devices"]]
    meaning = "" if summary["times_meaningful"] else " No GPU ran: times and scores mean nothing."
    return "\n\n".join(
        [
            f"# {summary['version']}, measured on {summary['device']}",
            f"{variants} variants in {minutes:.1f} minutes.{meaning}",
            _table(columns, scores),
            "## Devices",
            _table(("device", "lots", "lost", "seconds at work", "busy"), devices),
            *(("## Failures", _table(("run", "status", "variants", "why"), failures)) if failures else ()),
        ]
    )


def build_page(summary: dict[str, Any]) -> str:
    """A build as Markdown."""
    counts = [
        ("models traced", f"{summary['traced']} of {summary['models']}"),
        *((f"variants, {category}", count) for category, count in summary["subgraphs"].items()),
        *((f"samples, {split}", count) for split, count in summary["samples"].items()),
        *((f"dropped: {cause}", count) for cause, count in summary["dropped"].items()),
    ]
    failed = [
        (c["category"], c["models"], c["message"], ", ".join(c["examples"]), c["mend"]) for c in summary["causes"]
    ]
    unique = [(name, *counts.values()) for name, counts in summary["unique"].items()]
    return "\n\n".join(
        [
            f"# Dataset {summary['version']}",
            _table(("what", "count"), counts),
            "## Unique by each notion",
            _table(("category", "text", "graph", "family", "with shapes"), unique),
            *(
                ("## Not traced", _table(("category", "models", "message", "such as", "mended by"), failed))
                if failed
                else ()
            ),
        ]
    )


def _keep(key: str, page: str, description: str) -> None:
    if flow_run():
        from prefect.artifacts import create_markdown_artifact

        create_markdown_artifact(page, key=key, description=description, _sync=True)


def _cost(run: dict[str, Any]) -> str:
    cost = run.get("usage", {}).get("cost_usd")
    return "" if cost is None else f"${cost:.2f}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: Any) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else "-" if value is None else str(value)
    return " ".join(text.split()).replace("|", "\\|")
