"""What providers send, made fit to be written: without secret values, and in characters that a file can hold."""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

HIDDEN = "[hidden]"
_SECRET_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH(ORIZATION)?)$", re.IGNORECASE)
_SHORTEST = 8  # shorter values are words, not keys
_STRUCTURE = frozenset("kind part_kind state finish_reason timestamp tool_kind".split())  # pydantic-ai's own tags


def secrets_of(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Values of variables that are named like secrets, and passwords in addresses; the longest first."""
    found = {value for name, value in environment.items() if _SECRET_NAMES.search(name)}
    for value in environment.values():
        if "://" in value and "@" in value:
            found.add(urlsplit(value.split()[0]).password or "")
    return tuple(sorted((s.strip() for s in found if len(s.strip()) >= _SHORTEST), key=len, reverse=True))


def redacted(value: Any, secrets: tuple[str, ...]) -> Any:
    """A JSON-like value with every secret replaced by `HIDDEN`. Tags that name a message's kind are left."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, dict):
        return {
            redacted(name, secrets): item if name in _STRUCTURE else redacted(item, secrets)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(item, secrets) for item in value]
    return value


def whole_characters(value: Any) -> Any:
    """A JSON-like value with U+FFFD for each half of a character; two halves in a row become the character."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _HALF.search(value) else value
    if isinstance(value, dict):
        return {whole_characters(name): whole_characters(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [whole_characters(item) for item in value]
    return value


_HALF = re.compile("[\ud800-\udfff]")
