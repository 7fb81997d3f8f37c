"""What a flow run says when it fails of something that its caller can put right: one line, no traceback, no retry."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar
from uuid import UUID

from prefect import get_client
from prefect.client.schemas.objects import FlowRunPolicy
from prefect.context import FlowRunContext
from prefect.exceptions import TerminationSignal
from prefect.states import Failed

from flows.server_gone import end_if_server_is_gone
from flows.steps import say
from storage.errors import PassNetError

P = ParamSpec("P")
R = TypeVar("R")


def one_line(*retried: type[PassNetError]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a flow's body: a PassNetError in it, such as an unknown author's, ends the flow run with its message.

    Prefect tries whatever fails again, and knows no condition for flows; another try fails of the same thing. So the
    run's retries are taken away first. An error of one of the types `retried` is left to Prefect, with its traceback
    and its retry. Outside a flow run every error is raised as it is.

    A flow run that is told to end does so within seconds, also where its server is gone.
    """

    quiet = _WithoutTracebacks(retried)

    def decorate(body: Callable[P, R]) -> Callable[P, R]:
        @wraps(body)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if FlowRunContext.get() is not None:
                for name in PREFECT_LOGGERS:
                    logging.getLogger(name).addFilter(quiet)
            try:
                return body(*args, **kwargs)
            except PassNetError as error:
                context = FlowRunContext.get()
                if context is None or context.flow_run is None or isinstance(error, retried):
                    raise
                say(str(error), logging.ERROR)
                _never_again(context.flow_run.id)
                return Failed(message=str(error), data=error)
            except TerminationSignal:
                end_if_server_is_gone()
                raise

        return run

    return decorate


PREFECT_LOGGERS = ("prefect.engine", "prefect.flow_runs", "prefect.task_runs")
"""Those that write an error of a step, of a flow, and of a flow run's process with its traceback."""


class _WithoutTracebacks(logging.Filter):
    """Keeps back what Prefect writes of a PassNetError with its traceback. The flow has said it in one line, and the
    state of a task has it, too."""

    def __init__(self, retried: tuple[type[PassNetError], ...]) -> None:
        super().__init__()
        self.retried = retried

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, PassNetError) or isinstance(error, self.retried)


def _never_again(flow_run: UUID) -> None:
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run, empirical_policy=FlowRunPolicy(retries=0))
