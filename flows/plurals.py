"""Numbers of things, in words."""

from collections.abc import Mapping


def counted(number: int, one: str, several: str = "") -> str:
    """ "1 sample", "2 samples"; `several` where it is not `one` with an s."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def causes_text(causes: Mapping[str, int]) -> str:
    """ "refused (3), slower (1)", in their order; "none" where there are none."""
    return ", ".join(f"{cause} ({count})" for cause, count in causes.items()) or "none"
