"""What a run's page on the server shows: scores, devices, failures by cause, in tables that nothing breaks."""

from flows.artifacts import build_page, evaluation_page, progress_of
from flows.build.causes import causes

RUN = {
    "run": "llm-0123456789",
    "samples": 2,
    "variants": 3,
    "ok": 2,
    "es": {"-5": 1.25, "0": 1.5},
    "aggregate": {"e2e": 1.1, "device": None},
    "failures": [["wrong", "output 0[1] | nan\nhere", 1]],
    "usage": {"cost_usd": 1.5},
    "stopped": "the run has used $1.50 of $1.00",
    "lost": ["fusible-a"],
}
EVALUATED = {
    "version": "v2",
    "device": "NVIDIA H200",
    "times_meaningful": True,
    "seconds": 90.0,
    "devices": [
        {"device": "cuda:1", "lots": 4, "lost": 1, "seconds": 45.0, "busy": 0.5},
        {"device": "cpu", "lots": 3, "lost": 0, "seconds": 9.0, "busy": 0.1},
        {"device": "cpu", "lots": 2, "lost": 0, "seconds": 18.0, "busy": 0.2},
    ],
    "runs": [RUN],
}


def rows(page: str) -> list[list[str]]:
    """The cells of every line of a table but rules."""
    lines = [line.replace("\\|", "¦").strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines if set("".join(line)) - set("- ")]


def test_an_evaluation_has_scores_cost_devices_and_failures():
    page = evaluation_page(EVALUATED)
    assert "3 variants in 1.5 minutes." in page and "No GPU" not in page
    assert ["llm-0123456789", "2", "3", "2", "1.250", "1.100", "-", "$1.50", RUN["stopped"], "1"] in rows(page)
    shown = [
        ["cuda:1", "4", "1", "45.000", "50%"],
        ["cpu", "3", "0", "9.000", "10%"],
        ["cpu", "2", "0", "18.000", "20%"],
    ]
    assert [row for row in rows(page) if row[0] in ("cuda:1", "cpu")] == shown, "one line a device"
    assert ["llm-0123456789", "wrong", "1", "output 0[1] ¦ nan here"] in rows(page)
    assert "No GPU ran" in evaluation_page(EVALUATED | {"times_meaningful": False})


def test_a_build_has_counts_and_failures_by_category():
    failures = [
        {"model": "timm:a", "status": "failed", "error_category": "timeout", "message": "stopped after 600 s"},
        {"model": "timm:b", "status": "failed", "error_category": "timeout", "message": "stopped after 300 s"},
        {"model": "timm:c", "status": "failed", "error_category": "graph_break", "message": "it prints: twice"},
    ]
    counts = {
        "models": 9,
        "traced": 6,
        "subgraphs": {"fusible": 40},
        "samples": {"eval": 3},
        "dropped": {"no input": 2},
        "unique": {"fusible": {"text": 9, "graph": 8, "family": 3, "with_shapes": 40}},
    }
    page = build_page({"version": "v1", "causes": causes(failures), **counts})
    assert ["models traced", "6 of 9"] in rows(page) and ["dropped: no input", "2"] in rows(page)
    assert ["fusible", "9", "8", "3", "40"] in rows(page)
    assert [row[:4] for row in rows(page)[-2:]] == [
        ["timeout", "2", "stopped after 600 s", "timm:a, timm:b"],
        ["graph_break", "1", "it prints: twice", "timm:c"],
    ]


def test_outside_a_flow_run_there_is_no_bar():
    progress_of("models")(50.0)
