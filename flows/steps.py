"""One way to run steps: as Prefect tasks inside a flow run, as plain calls outside one.

A flow's body is the same either way, so `passnet build` needs no server and a deployment shows every shard. Files in
the data directory mark what is done, not Prefect's result store. So a step that finds its file does nothing, also when
it runs again under another server, or under none. A process that has not imported Prefect is in no flow run: machines
that lack it run the same steps (`benchmarks.extraction.corpus_shards`).
"""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from prefect.context import FlowRunContext

from flows.log_lines import LOGGER

T = TypeVar("T")
R = TypeVar("R")

HOURS = 3600
"""Seconds of an hour, in which time-outs of flows are given."""


def flow_run() -> "FlowRunContext | None":
    """The context of the flow run that this is part of; None outside of one."""
    if "prefect.context" not in sys.modules:
        return None
    from prefect.context import FlowRunContext

    return FlowRunContext.get()


def flow_run_id() -> str | None:
    """The id of the flow run that this is part of; None outside of one."""
    context = flow_run()
    return str(context.flow_run.id) if context and context.flow_run else None


def begun_before() -> bool:
    """Whether this flow run has failed before and is tried again."""
    context = flow_run()
    return bool(context and context.flow_run and context.flow_run.run_count > 1)


def say(message: str, level: int = logging.INFO, **ids: str) -> None:
    """One line of progress, to the flow run's log or to the `passnet` logger.

    `ids` (`IDS`) become attributes of the log record, which a JSON formatter writes beside the flow run's own.
    """
    if flow_run():
        from prefect.logging import get_run_logger

        get_run_logger().log(level, message, extra=ids)
    else:
        LOGGER.log(level, message, extra=ids)


def each(step: Callable[[T], R], items: Iterable[T], name: str) -> Iterator[R]:
    """`step(item)` for each item in order; inside a flow run each call is a task run called `name`."""
    run = step
    if flow_run():
        from prefect import task
        from prefect.cache_policies import NO_CACHE

        run = task(step, name=name, cache_policy=NO_CACHE, persist_result=False)
    for item in items:
        yield run(item)
