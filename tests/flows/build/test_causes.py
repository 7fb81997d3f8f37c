"""What could not be traced, by cause; and what is traced again, and why."""

from dataclasses import replace
from pathlib import Path

from extraction.failures import CATEGORIES
from extraction.sources.catalog import parse_entry
from extraction.sources.spec import TRACE_VERSION, specified
from extraction.tracing.trace_files import TraceOutcome, write_traces
from extraction.tracing.trace_workers import failed_row
from flows.build.causes import EXAMPLES, MENDS, MOST_CAUSES, causes
from flows.build.redone import redone


def failed(model: str, category: str, message: str) -> dict:
    return {"model": model, "status": "failed", "error_category": category, "message": message}


def test_models_with_the_same_cause_are_one_line_with_what_would_mend_it() -> None:
    rows = [failed(f"hub:org/m{n}", "gated", f"org/m{n} is gated: accept its terms on the Hub") for n in range(9)]
    rows += [failed("timm:a", "timeout", "stopped after 600 s"), {"model": "timm:b", "status": "traced"}]
    gated, late = causes(rows)
    assert (gated["category"], gated["models"], gated["examples"]) == ("gated", 9, [f"hub:org/m{n}" for n in range(3)])
    assert "HF_TOKEN" in gated["mend"] and len(gated["examples"]) == EXAMPLES
    assert (late["models"], late["message"]) == (1, "stopped after 600 s")


def test_every_category_has_a_mend_and_rare_causes_are_added_up() -> None:
    assert MENDS.keys() == set(CATEGORIES)
    words = [chr(97 + n // 26) + chr(97 + n % 26) for n in range(MOST_CAUSES + 5)]
    found = causes(failed(f"timm:{word}", "internal", f"cannot {word}") for word in words)
    assert len(found) == MOST_CAUSES + 1 and found[-1]["models"] == 5
    assert sum(cause["models"] for cause in found) == len(words)


def test_what_is_traced_again_is_said_with_what_has_changed(tmp_path: Path) -> None:
    entries = specified([parse_entry(f"timm:{name}") for name in ("test_resnet", "test_vit", "test_convnext")])
    assert redone(tmp_path, entries) == [], "nothing was traced before"

    def traced(entry, spec, seconds: float) -> TraceOutcome:
        return TraceOutcome(entry, {**failed_row(entry, spec, "", "", seconds), "status": "traced"})

    (resnet, spec), (vit, other), _ = entries.items()
    old = replace(spec, libraries=(("timm", dict(spec.libraries)["timm"]), ("torch", "2.10.0")))
    write_traces(tmp_path / f"t{TRACE_VERSION}" / "old_torch.parquet", [traced(resnet, old, 30.0)])
    write_traces(tmp_path / "t0" / "old_code.parquet", [traced(vit, other, 12.0)])
    torch = dict(spec.libraries)["torch"]
    code, library = redone(tmp_path, entries)
    assert "1 of them were traced before and are traced again" in library
    assert f"for torch is {torch}, was 2.10.0: that took 30 s" in library
    assert f"the code of tracing is version {TRACE_VERSION}, was 0: that took 12 s" in code
