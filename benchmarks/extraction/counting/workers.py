"""Tasks in processes side by side, until a deadline: a process that dies or hangs costs the row that it was at."""

import json
import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Iterator, Sequence
from typing import Any

GRACE_S = 60.0
"""How long a worker may go on with one compilation when the budget is over, in seconds."""


def side_by_side(task: Any, payloads: Sequence[tuple], workers: int, deadline: float) -> Iterator[dict[str, Any]]:
    """Rows of `task(*payload, deadline)`, each in one of so many processes, as they come.

    A process that dies or hangs costs the row that it was at. Rows that are not begun at the deadline say so.
    """
    context = multiprocessing.get_context("spawn")
    waiting = list(payloads)
    running: dict[int, tuple[Any, Any, Any]] = {}
    free: list[tuple[Any, Any]] = []
    while waiting or running:
        while waiting and len(running) < workers and time.monotonic() < deadline:
            process, pipe = free.pop() if free else _started(context, task)
            payload = waiting.pop(0)
            pipe.send((payload, deadline - time.monotonic()))
            running[id(pipe)] = (process, pipe, payload)
        if not running:
            break
        for pipe in multiprocessing.connection.wait([p for _, p, _ in running.values()], timeout=1.0):
            process, _, payload = running.pop(id(pipe))
            row = _received(process, pipe, payload)
            if process.is_alive() and not row.get("dead"):
                free.append((process, pipe))
            else:
                process.kill()
            yield row
        if time.monotonic() > deadline + GRACE_S:
            for process, _, payload in running.values():
                process.kill()
                yield {"piece": named(payload), "error": "killed: it went on after the budget"}
            break
    for process, pipe in free:
        pipe.close()  # it ends by itself then
        process.join(5)
        process.kill()
    for payload in waiting:
        yield {"piece": named(payload), "error": "not begun within the budget"}


def named(payload: tuple) -> str:
    return json.loads(payload[0])["model"] if payload[0].startswith("{") else payload[0]


def _started(context: Any, task: Any) -> tuple[Any, Any]:
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, task), daemon=True)
    process.start()
    there.close()
    return process, here


def _serve(pipe: Any, task: Any) -> None:
    """A worker: payloads come through the pipe, rows go back."""
    warm(task)
    while True:
        try:
            payload, seconds = pipe.recv()
        except EOFError:
            return
        try:
            row = task(*payload, time.monotonic() + seconds)
        except Exception as error:  # a model, TorchInductor or CUDA may raise anything; its row says what
            row = {"piece": named(payload), "error": f"{type(error).__name__}: {str(error)[:300]}", "dead": True}
        pipe.send(row)


def warm(task: Any) -> None:
    """Imports and first-time work before anything is timed."""
    import torch

    torch.set_num_threads(1)
    from extraction.kernels.lowering import kernels_by_op
    from storage.graph.record import Graph, Op, Ref
    from storage.records import Input

    relu = Op("function", "torch.relu", (Ref(0),), {})
    product = Op("function", "torch.matmul", (Ref(1), Ref(1)), {})
    kernels_by_op(Graph(1, (relu, product), (Ref(2),)), [Input("x", "input", "float32", (8, 8), (8, 1))])


def _received(process: Any, pipe: Any, payload: tuple) -> dict[str, Any]:
    try:
        return pipe.recv()
    except EOFError:
        process.join(5)
        return {"piece": named(payload), "error": f"its process ended with exit code {process.exitcode}"}
