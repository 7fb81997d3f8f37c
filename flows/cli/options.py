"""Options that several commands share, and how a command answers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from flows import DEFAULT_DATA
from passbench.names import COMPILERS
from storage.errors import PassNetError


def data_option(function: Callable) -> Callable:
    return click.option(
        "--data", default=DEFAULT_DATA, show_default=True, type=click.Path(path_type=Path), help="Data directory."
    )(function)


def data_or_url_option(function: Callable) -> Callable:
    text = "Data directory, or the URL of a store such as s3://BUCKET/PATH."
    return click.option("--data", default=DEFAULT_DATA, show_default=True, help=text)(function)


def version_option(function: Callable) -> Callable:
    return click.option("--version", "version", default=None, metavar="V", help="Dataset version [default: latest].")(
        function
    )


def json_option(function: Callable) -> Callable:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")(function)


def kernels_only_option(function: Callable) -> Callable:
    """`--kernels-only`, of commands that read results."""
    text = (
        "Leave out variants in which the pass called operators of the library, such as a matrix product, or used a "
        "CUDA graph."
    )
    return click.option("--kernels-only", is_flag=True, help=text)(function)


def without_capture_option(function: Callable) -> Callable:
    """`--without-capture`, of commands that read results."""
    text = "Leave out variants in which the pass used a CUDA graph."
    return click.option("--without-capture", is_flag=True, help=text)(function)


def runs_option(function: Callable) -> Callable:
    """`--run`, of commands that make a dataset of some runs' passes."""
    text = "A run to take, named as RUN of `passnet score`; may be given repeatedly."
    return click.option(
        "--run", "runs", multiple=True, default=("latest",), show_default=True, metavar="RUN", help=text
    )(function)


def new_directory_option(function: Callable) -> Callable:
    """`--out`, of the same commands."""
    text = "New directory for the dataset."
    return click.option("--out", required=True, type=click.Path(path_type=Path), help=text)(function)


def rerun_option(function: Callable) -> Callable:
    return click.option("--rerun", is_flag=True, help="Measure again what an earlier run has measured.")(function)


AUTHORS = ("distill", "distill-static", "readable", "llm", *(name for name in COMPILERS if name != "pass"))
"""The names of `agent.registry`; they stand here so that a wrong one is told before torch is imported."""

_DEVICE = re.compile(r"auto|cpu(:\d+)?|cuda(:\d+)?")


def _checked_authors(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Raises PassNetError for a name that is no author's."""
    for name in value.split(","):
        if name.strip() not in AUTHORS:
            raise PassNetError(f"there is no author {name.strip()!r}; use one of {', '.join(AUTHORS)}")
    return value


def _checked_compiler(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and value not in COMPILERS:
        raise PassNetError(f"compiler {value!r} is unknown; there are {', '.join(COMPILERS)}")
    return value


def _checked_device(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Raises PassNetError for what can be no device; whether it is there shows later."""
    if not _DEVICE.fullmatch(value):
        raise PassNetError(f"{value!r} is not a device: use auto, cpu, cuda or cuda:N")
    return value


def _checked_devices(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """As `_checked_device`, of several."""
    for name in value.split(","):
        _checked_device(context, parameter, name.strip())
    return value


def device_option(function: Callable) -> Callable:
    """`--device`, of commands that run on one."""
    text = "cuda, cuda:1, cpu, or auto: the GPU if there is one."
    return click.option("--device", default="auto", callback=_checked_device, show_default=True, help=text)(function)


def devices_option(function: Callable) -> Callable:
    """`--device`, of commands that run on several side by side (`flows.evaluate.devices.resolve_devices`)."""
    return click.option(
        "--device",
        default="auto",
        callback=_checked_devices,
        show_default=True,
        help="cuda:0, cpu, several GPUs separated by commas (cuda:0,cuda:1), cpu:2 for the CPU twice, or auto: all "
        "GPUs, or the CPU where there is none.",
    )(function)


def protocol_option(function: Callable) -> Callable:
    return click.option(
        "--protocol",
        type=click.Choice(["passnet", "paper"]),
        default="passnet",
        show_default=True,
        help="How calls are timed: passnet as docs/design.md says; paper as the reference harness does, with the seed "
        "set inside the clock.",
    )(function)


def flush_option(function: Callable) -> Callable:
    return click.option("--flush-l2", is_flag=True, help="Empty the GPU's L2 cache before every timed call.")(function)


def author_option(**settings: Any) -> Callable:
    return click.option(
        "--author",
        **settings,
        callback=_checked_authors,
        help=f"{', '.join(AUTHORS)}; several separated by commas. All but the first four are baselines.",
    )


def compiler_option(function: Callable) -> Callable:
    return click.option(
        "--compiler",
        default=None,
        callback=_checked_compiler,
        help=f"What computes the sample: {', '.join(COMPILERS)} [default: pass if there is one, else eager].",
    )(function)


def emit(document: dict[str, Any], as_json: bool, text: Callable[[dict[str, Any]], str]) -> None:
    """Print a command's answer: its text, or the document as JSON, which has null for what is no number there."""
    if not as_json:
        click.echo(text(document))
        return
    finite = json.loads(json.dumps(document), parse_constant=lambda _: None)  # JSON has no NaN and no infinity
    click.echo(json.dumps(finite, indent=2, allow_nan=False))


def workers_option(function: Callable) -> Callable:
    return click.option(
        "--workers", type=click.IntRange(1), default=None, help="Models traced at a time [default: one a core]."
    )(function)


def runner_option(function: Callable) -> Callable:
    return click.option(
        "--runner",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="ray: on all nodes of the Ray cluster at RAY_ADDRESS, which see the data directory under one path or URL.",
    )(function)


def limit_option(text: str, default: int | None = None) -> Callable:
    return click.option("--limit", type=click.IntRange(1), default=default, show_default=default is not None, help=text)
