"""Lines of progress of a run."""

import logging
from typing import Protocol

LOGGER = logging.getLogger("passnet")


class Say(Protocol):
    """Takes a line of progress; `ids` say which run, sample and variant it is about."""

    def __call__(self, message: str, level: int = logging.INFO, **ids: str) -> None: ...


def log(message: str, level: int = logging.INFO, **ids: str) -> None:
    """Write the line to the logger `passnet`; `ids` become attributes of the log record."""
    LOGGER.log(level, message, extra=ids)
