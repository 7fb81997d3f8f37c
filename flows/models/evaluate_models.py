"""Whole models in all regimes, as a version's table `model_results`: the score of passes on what they are for."""

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from extraction.failures import ModelError
from flows.models.named_model import is_own, named_model
from flows.steps import flow_run_id, say
from passbench.models.measured_model import failed_row, measure_model
from passbench.models.optimized_model import OptimizeSettings
from storage.disk import check_writable, write_json
from storage.errors import PassNetError, in_one_line
from storage.records import dtype_of
from storage.schema import CONFIGS, MODEL_RESULTS
from storage.versions.provenance import source_commit
from storage.versions.store import Store, Version


def evaluate_models(
    models: Sequence[str],
    data: Path,
    *,
    batches: Sequence[int] = (1,),
    dtypes: Sequence[str] = ("float32",),
    regimes: Sequence[str] = ("eager", "ours"),
    device: str = "cpu",
    settings: OptimizeSettings,
    rerun: bool = False,
) -> dict[str, Any]:
    """Measure models (names as for `flows.models.named_model`) and publish their rows beside the newest version's.

    A function of the user's is measured as it is, whatever `batches` and `dtypes` are. A row that is finished is a file
    of the run, and is not measured again unless `rerun`. A model that fails has a row that says why. Returns the
    version's name and the rows. Raises PassNetError where nothing can be written or published.
    """
    identity = [sorted(regimes), device, vars(settings)]
    run = "models-" + hashlib.sha256(json.dumps(identity, default=str, sort_keys=True).encode()).hexdigest()[:12]
    place = Path(data) / "runs" / run
    own = {name: is_own(name) for name in models}
    jobs = [(name, batch, dtype) for dtype in dtypes for batch in batches for name in models if not own[name]]
    jobs += [(name, None, None) for name in models if own[name]]
    check_writable(place, "another --data")
    rows = []
    for number, (name, batch, dtype) in enumerate(jobs, 1):
        kept = place / (hashlib.sha256(json.dumps([name, batch, dtype]).encode()).hexdigest()[:16] + ".json")
        if rerun or not kept.exists():
            row = _measured(name, batch, dtype, regimes, torch.device(device), settings, run)
            write_json(kept, row, "another --data")
        rows.append(json.loads(kept.read_text(encoding="utf-8")))
        row = rows[-1]
        say(f"[{number}/{len(jobs)}] {name} x{row['batch']} {row['dtype']}: {row['status']} {row['chosen']}")
    published = publish_models(Store(data), rows)
    return {"version": published.name, "run": run, "rows": rows}


def _measured(
    name: str,
    batch: int | None,
    dtype: str | None,
    regimes: Sequence[str],
    device: torch.device,
    settings: OptimizeSettings,
    run: str,
) -> dict[str, Any]:
    begin = time.monotonic()
    torch._dynamo.reset()
    kind = (batch or 0, dtype_of(dtype or "float32"))
    try:
        named = named_model(name, batch, dtype, device)
        return measure_model(
            name,
            named.model,
            named.args,
            named.kwargs,
            settings,
            run=run,
            batch=named.batch,
            regimes=regimes,
            commit=source_commit(),
        )
    except ModelError as error:
        return failed_row(name, run, *kind, str(error), time.monotonic() - begin)
    except PassNetError:
        raise
    except Exception as error:  # a model's forward may raise anything; it costs its own row
        return failed_row(name, run, *kind, in_one_line(error), time.monotonic() - begin)


def publish_models(store: Store, rows: Sequence[dict[str, Any]]) -> Version:
    """Publish rows of `model_results` beside those of other runs, and all else that the newest version has."""
    mine = {(row["run"], row["model"], row["batch"], row["dtype"]) for row in rows}
    with store.updating() as newest:
        old = newest.table("model_results").to_pylist() if newest else []
        kept = [row for row in old if (row["run"], row["model"], row["batch"], row["dtype"]) not in mine]
        ordered = sorted([*kept, *rows], key=lambda r: (r["run"], r["model"], r["dtype"], r["batch"]))
        version, _ = store.publish(
            {("model_results", "all"): pa.Table.from_pylist(ordered, MODEL_RESULTS)},
            kind="evaluate",
            parent=newest,
            keep=[config for config in CONFIGS if config != "model_results"],
            parameters={"models": sorted({row["model"] for row in rows})},
            summary={"models": len(rows)},
            flow_run=flow_run_id(),
        )
    return version


def evaluated_text(document: dict[str, Any]) -> str:
    """The document as text."""
    lines = [f"{document['version']} has these results (run {document['run']}).", ""]
    lines.append(
        f"{'model':32} {'batch':>5} {'dtype':9} {'status':7} {'chosen':24} {'over eager':>10} over torch.compile"
    )
    for row in document["rows"]:
        eager, compiled = (_ratio(row[key]) for key in ("speedup_eager", "speedup_compiled"))
        line = f"{row['model'][:32]:32} {row['batch']:5} {row['dtype']:9} {row['status']:7} {row['chosen'][:24]:24}"
        lines.append(f"{line} {eager:>10} {compiled} {(row['reason'] or row['why_not'])[:100]}".rstrip())
    if not all(row["times_meaningful"] for row in document["rows"]):
        lines += ["", "Times without a GPU say nothing about one."]
    return "\n".join(lines)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
