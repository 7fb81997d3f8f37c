"""One way to run steps: as Prefect tasks inside a flow run, as plain calls outside one.

A flow's body is the same either way, so `passnet build` needs no server and a deployment shows every shard. Files in
the data directory mark what is done, not Prefect's result store. So a step that finds its file does nothing, also when
it runs again under another server, or under none.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger

from flows.log_lines import LOGGER

T = TypeVar("T")
R = TypeVar("R")

HOURS = 3600
"""Seconds of an hour, in which time-outs of flows are given."""


def flow_run_id() -> str | None:
    """The id of the flow run that this is part of; None outside of one."""
    context = FlowRunContext.get()
    return str(context.flow_run.id) if context and context.flow_run else None


def begun_before() -> bool:
    """Whether this flow run has failed before and is tried again."""
    context = FlowRunContext.get()
    return bool(context and context.flow_run and context.flow_run.run_count > 1)


def say(message: str, level: int = logging.INFO, **ids: str) -> None:
    """One line of progress, to the flow run's log or to the `passnet` logger.

    `ids` (`IDS`) become attributes of the log record, which a JSON formatter writes beside the flow run's own.
    """
    (get_run_logger() if FlowRunContext.get() else LOGGER).log(level, message, extra=ids)


def each(step: Callable[[T], R], items: Iterable[T], name: str) -> Iterator[R]:
    """`step(item)` for each item in order; inside a flow run each call is a task run called `name`."""
    run = task(step, name=name, cache_policy=NO_CACHE, persist_result=False) if FlowRunContext.get() else step
    for item in items:
        yield run(item)
