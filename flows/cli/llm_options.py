"""Options of `passnet evaluate` for the author "llm"; they reach the command as one dictionary, `llm`."""

import functools
import json
from collections.abc import Callable
from typing import Any

import click


class _Settings(click.ParamType):
    """A JSON object."""

    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"not JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail('give a JSON object, such as {"temperature": 0.2}', param, ctx)
        return found


_COUNT, _AMOUNT = click.IntRange(1), click.FloatRange(0, min_open=True)
_OPTIONS: tuple[tuple[str, Any, str], ...] = (
    (
        "base_url",
        str,
        "URL of an OpenAI-compatible server, or of a proxy [default: the provider's own variable, or its address].",
    ),
    ("steps", _COUNT, "most answers of the model in an attempt [default: 40]."),
    ("tokens", _COUNT, "most input and output tokens of an attempt [default: 2000000]."),
    ("cost_usd", _AMOUNT, "most dollars of an attempt."),
    ("seconds", _AMOUNT, "most seconds of an attempt [default: 3600]."),
    ("run_cost_usd", _AMOUNT, "most dollars of the whole run."),
    ("run_seconds", _AMOUNT, "most seconds of all attempts of the run."),
    ("output_tokens", _COUNT, "most tokens of one answer [default: 16384]."),
    ("price", (float, float), "dollars per million input and output tokens, for a model whose price is not known."),
    ("settings", _Settings(), 'pydantic-ai\'s model settings, such as {"temperature": 0.2}.'),
    ("stream", bool, "stream answers; turn it off for servers that cannot [default: true]."),
)


def llm_options(function: Callable) -> Callable:
    """Add the options to a command, which gets those that were given as `llm`."""

    @functools.wraps(function)
    def command(**parameters: Any) -> Any:
        given = {name: parameters.pop(f"llm_{name}") for name, _, _ in _OPTIONS}
        return function(llm={name: value for name, value in given.items() if value is not None}, **parameters)

    for name, kind, text in reversed(_OPTIONS):
        option = "--" + name.replace("_", "-")
        command = click.option(option, f"llm_{name}", type=kind, default=None, help=f"For llm: {text}")(command)
    return command
