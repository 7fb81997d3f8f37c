"""The commands about whole models: `tune`, `explain`, `evaluate-models`, `library`."""

import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from flows.cli.options import data_option, device_option, emit, json_option, limit_option, rerun_option, version_option
from flows.plurals import counted
from storage.errors import PassNetError

EFFORTS = ("quick", "normal", "full")
"""As `passbench.models.recipes`; here so that a wrong one is told before torch is imported."""
PARTS = ("graph", "inductor", "merged", "once", "passes")
"""As `passbench.models.recipes`, for the same reason."""
REGIMES = ("eager", "compile", "reduce-overhead", "max-autotune", "ours")
DTYPES = ("float32", "bfloat16", "float16")


def _listed(_context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """What commas separate. Raises PassNetError for a name that `parameter` has not, before torch is imported."""
    if value is None:
        return None
    names = {"dtypes": DTYPES, "regimes": REGIMES}.get(parameter.name or "")
    found = [part.strip() for part in value.split(",")]
    if names is None and not all(part.isdecimal() and int(part) for part in found):
        raise PassNetError(f"{value!r} are no batch sizes; give whole numbers, such as 1,16")
    if names is not None and (unknown := [part for part in found if part not in names]):
        raise PassNetError(f"there is no {parameter.name.removesuffix('s')} {unknown[0]!r}; use {', '.join(names)}")
    return found


def _library_option(function: Callable) -> Callable:
    return click.option(
        "--library",
        type=click.Path(path_type=Path),
        default=None,
        help="Directory of the library [default: `library` in the data directory].",
    )(function)


_CALL_OPTIONS = (
    click.option("--batch", type=click.IntRange(1), default=None, help="Batch size [default: the example's]."),
    click.option("--dtype", type=click.Choice(DTYPES), default=None, help="The model's dtype [default: float32]."),
)
_TUNING_OPTIONS = (
    click.option(
        "--effort",
        type=click.Choice(EFFORTS),
        default=None,
        help="How many ways of running a model are tried [default: normal; quick without a GPU].",
    ),
    click.option("--strict", is_flag=True, help="Only ways that give eager's bits."),
    click.option(
        "--seconds",
        type=click.FloatRange(0),
        default=None,
        help="After so many seconds begin no further way of a model [default: no limit].",
    ),
    click.option(
        "--without",
        type=click.Choice(PARTS),
        multiple=True,
        help="Switch a part off, to see what it gives: CUDA graphs, TorchInductor's kernels, merged weights, what is "
        "computed once, passes of the library. May be given repeatedly.",
    ),
)


def _tuning_options(function: Callable) -> Callable:
    """How much is tried for a model."""
    return functools.reduce(lambda decorated, option: option(decorated), reversed(_TUNING_OPTIONS), function)


def _call_options(function: Callable) -> Callable:
    """Which call of the model, and how much is tried."""
    function = _tuning_options(function)
    return functools.reduce(lambda decorated, option: option(decorated), reversed(_CALL_OPTIONS), function)


def _settings(device: str, options: Mapping[str, Any]) -> Any:
    import torch

    from passbench.models.optimized_model import OptimizeSettings

    effort = options["effort"] or ("quick" if torch.device(device).type == "cpu" else "normal")
    return OptimizeSettings(
        effort=effort, strict=options["strict"], seconds=options["seconds"], without=tuple(sorted(options["without"]))
    )


def _tuned(model: str, data: Path, library: Path | None, device: str, **options: Any) -> tuple[Any, ...]:
    import torch

    from flows.evaluate.devices import resolve_device
    from flows.models.named_model import named_model
    from flows.models.tune import tune as tune_model

    place = library or data / "library"
    device = resolve_device(device)
    settings = _settings(device, options)
    click.echo(f"building {model}", err=True)
    named = named_model(model, options["batch"], options["dtype"], torch.device(device))
    author = options.get("author")
    document, fast = tune_model(
        named,
        place,
        settings,
        author=None if author in (None, "none") else author,
        limit=options.get("limit"),
        say=lambda line: click.echo(line, err=True),
    )
    return named, fast, document, place


@click.command()
@click.argument("model")
@_call_options
@click.option(
    "--author",
    type=click.Choice(["none", "distill", "distill-static"]),
    default="none",
    show_default=True,
    help="Who writes passes for regions that the library has none for.",
)
@limit_option("Regions that the author writes passes for, at most.")
@_library_option
@data_option
@device_option
@json_option
def tune(model: str, as_json: bool, **options: Any) -> None:
    """Find the fastest right way of running a model.

    It is kept in a library. MODEL is a catalogue's line, such as timm:resnet18, or module:function of yours; the
    function returns (model, args) or (model, args, kwargs). Interrupted, it goes on where it stopped; done before, it
    takes seconds.
    """
    from flows.models.texts import tuned_text

    _, _, document, _ = _tuned(model, **options)
    emit(document, as_json, tuned_text)


@click.command()
@click.argument("model")
@_call_options
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Write it as one HTML page, too.")
@_library_option
@data_option
@device_option
@json_option
def explain(model: str, as_json: bool, out: Path | None, **options: Any) -> None:
    """Say where a model's time goes.

    It prints every way that was tried, what runs each operator, the kernels and their sources. MODEL is as for `passnet
    tune`; it is tuned first where that was not done.
    """
    from flows.models.explain import explain as explain_model
    from flows.models.explain import explain_text, write_page
    from storage.disk import disk_error

    named, fast, _, place = _tuned(model, **options)
    document = explain_model(named, fast, place)
    if out is not None:
        try:
            write_page(document, out)
        except OSError as error:
            raise disk_error(error, out, "another --out") from error
    emit(document, as_json, explain_text)


@click.command("evaluate-models")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--batches", default="1", callback=_listed, show_default=True, help="Batch sizes, separated by commas.")
@click.option("--dtypes", default="float32", callback=_listed, show_default=True, help="Dtypes, separated by commas.")
@click.option(
    "--regimes",
    default=None,
    callback=_listed,
    help=f"{', '.join(REGIMES)}; separated by commas [default: all but max-autotune; without a GPU eager,ours].",
)
@_tuning_options
@rerun_option
@_library_option
@data_option
@device_option
@json_option
def evaluate_models(
    models: tuple[str, ...],
    batches: list[str],
    dtypes: list[str],
    regimes: list[str] | None,
    data: Path,
    library: Path | None,
    device: str,
    as_json: bool,
    rerun: bool,
    **options: Any,
) -> None:
    """Time whole models in all regimes.

    The rows are published as the table model_results of a new version. Exit status 1: no model could be run.
    """
    from dataclasses import replace

    from flows.evaluate.devices import resolve_device
    from flows.models.evaluate_models import evaluate_models as evaluate
    from flows.models.evaluate_models import evaluated_text

    device = resolve_device(device)
    usual = ["eager", "ours"] if device == "cpu" else [name for name in REGIMES if name != "max-autotune"]
    settings = _settings(device, options)
    done = evaluate(
        models,
        data,
        batches=[int(part) for part in batches],
        dtypes=dtypes,
        regimes=regimes or usual,
        device=device,
        settings=settings if library is None else replace(settings, library=str(library)),
        rerun=rerun,
    )
    emit(done, as_json, evaluated_text)
    if all(row["status"] == "failed" for row in done["rows"]):
        sys.exit(1)


@click.group()
def library() -> None:
    """Keep passes that may serve regions of whole models.

    Each has a passport: what was measured of it, and where.
    """


@library.command("list")
@_library_option
@data_option
@device_option
@json_option
def list_(library: Path | None, data: Path, device: str, as_json: bool) -> None:
    """List the passes of a library, and which may serve on this machine."""
    from flows.models.library_lists import list_library
    from flows.models.texts import library_text

    emit(list_library(library or data / "library", device), as_json, library_text)


@library.command()
@click.argument("hash_", metavar="HASH")
@_library_option
@data_option
@device_option
@json_option
def show(hash_: str, library: Path | None, data: Path, device: str, as_json: bool) -> None:
    """Show a pass of a library.

    It prints what the pass replaces, its source, and what was measured of it.
    """
    from flows.models.library_lists import show_entry
    from flows.models.texts import entry_text

    emit(show_entry(library or data / "library", hash_, device), as_json, entry_text)


@library.command()
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--replace", is_flag=True, help="Replace passes of the same graphs even if they were faster.")
@_library_option
@data_option
@version_option
@json_option
def add(
    runs: tuple[str, ...], replace: bool, library: Path | None, data: Path, version: str | None, as_json: bool
) -> None:
    """Add the passes of a version's runs to a library.

    RUN is named as for `score`; by default it is "latest".
    """
    from flows.models.library_lists import add_runs

    done = add_runs(library or data / "library", data, version, runs or ("latest",), replace=replace)
    added = f"{counted(done['added'], 'pass', 'passes')} added to {done['library']}, of {done['rows']} rows of results"
    emit(done, as_json, lambda _: added)


@library.command()
@click.option("--repo", required=True, metavar="ORG/NAME", help="Dataset repository on the Hub (HF_ENDPOINT's).")
@click.option("--private", is_flag=True, help="Create the repository as a private one.")
@_library_option
@data_option
@json_option
def push(repo: str, private: bool, library: Path | None, data: Path, as_json: bool) -> None:
    """Push the passes of a library to the Hub; what else is there stays."""
    from flows.models.library_hub import push_library

    done = push_library(library or data / "library", repo, private=private, say=lambda line: click.echo(line, err=True))
    emit(done, as_json, lambda d: f"{d['repo']} has {d['passes']} passes ({d['sent']} files sent)")


@library.command()
@click.option("--repo", required=True, metavar="ORG/NAME", help="Dataset repository on the Hub (HF_ENDPOINT's).")
@_library_option
@data_option
@json_option
def pull(repo: str, library: Path | None, data: Path, as_json: bool) -> None:
    """Add the passes of a repository on the Hub.

    Nothing of them runs.
    """
    from flows.models.library_hub import pull_library

    done = pull_library(library or data / "library", repo, say=lambda line: click.echo(line, err=True))
    emit(done, as_json, lambda d: f"{d['added']} of {d['passes']} passes added from {d['repo']}")


COMMANDS = (tune, explain, evaluate_models, library)
