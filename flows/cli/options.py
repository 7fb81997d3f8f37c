"""Options that several commands share, and how a command answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from flows import DEFAULT_DATA


def data_option(function: Callable) -> Callable:
    return click.option(
        "--data", default=DEFAULT_DATA, show_default=True, type=click.Path(path_type=Path), help="Data directory."
    )(function)


def version_option(function: Callable) -> Callable:
    return click.option("--version", "version", default=None, metavar="V", help="Dataset version [default: latest].")(
        function
    )


def json_option(function: Callable) -> Callable:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")(function)


def device_option(function: Callable) -> Callable:
    return click.option(
        "--device",
        default="auto",
        show_default=True,
        help="cuda, cuda:1, cpu, or auto: the GPU if there is one; for evaluate auto is all GPUs, and several are "
        "separated by commas (cuda:0,cuda:1; cpu:2 is the CPU, twice).",
    )(function)


def protocol_option(function: Callable) -> Callable:
    return click.option(
        "--protocol",
        type=click.Choice(["passnet", "paper"]),
        default="passnet",
        show_default=True,
        help="paper: time as the reference harness does, with the manual seed inside the clock.",
    )(function)


def flush_option(function: Callable) -> Callable:
    return click.option("--flush-l2", is_flag=True, help="Empty the GPU's L2 cache before every timed call.")(function)


def author_option(**settings: Any) -> Callable:
    return click.option(
        "--author",
        **settings,
        help="distill, distill-static, llm, or a baseline: eager, inductor, inductor-direct, inductor-max-autotune, "
        "cudagraphs; several separated by commas.",
    )


def emit(document: dict[str, Any], as_json: bool, text: Callable[[dict[str, Any]], str]) -> None:
    click.echo(json.dumps(document, indent=2) if as_json else text(document))


def workers_option(function: Callable) -> Callable:
    return click.option(
        "--workers", type=click.IntRange(1), default=None, help="Models traced at a time [default: one a core]."
    )(function)


def limit_option(text: str, default: int | None = None) -> Callable:
    return click.option("--limit", type=click.IntRange(1), default=default, show_default=default is not None, help=text)
