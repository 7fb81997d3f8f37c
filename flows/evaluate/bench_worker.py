"""What runs in the process of a `BenchProcess`, which has imported neither Prefect nor the flows."""

import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from flows.log_lines import IDS, LOGGER
from passbench.bench import Bench
from passbench.result import VariantResult
from passbench.settings import Settings
from passbench.workers.fork_server_client import shared_server
from storage.errors import PassNetError
from storage.graph.record import Graph, Op, Ref
from storage.records import Input, Sample, Variant

_SMALL = Sample(
    "small",
    "",
    "sole_op",
    "eval",
    (
        Variant(
            "sole_op",
            Graph(1, (Op("function", "torch.relu", (Ref(0),), {}),), (Ref(1),)),
            (Input("in_0", "input", "float32", (2, 3), (3, 1), mean=0.0, std=1.0),),
            (),
        ),
    ),
)
"""What a new process computes to show that its device works."""

_bench: Bench | None = None
_step: Callable | None = None


class _Sayer(logging.Handler):
    """Sends each message to the parent."""

    def __init__(self, says: Connection) -> None:
        super().__init__()
        self.says = says

    def emit(self, record: logging.LogRecord) -> None:
        ids = {name: getattr(record, name) for name in IDS if hasattr(record, name)}
        self.says.send((record.getMessage(), record.levelno, ids))


def enter(
    environment: dict[str, str], scratch: str, cores: set[int], says: Connection, server: tuple[Path, socket.socket]
) -> None:
    """The first call: its environment is the parent's, temporary files go to `scratch`, progress to `says`, and workers
    are forks of the parent's `server`; the process ends with its parent."""
    os.environ.clear()
    os.environ.update(environment)
    gc.freeze()  # libraries are no garbage: looking through them at the end alone takes 0.3 s
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tempfile.tempdir = scratch
    shared_server().borrow(*server)
    os.sched_setaffinity(0, cores)
    LOGGER.handlers[:] = [_Sayer(says)]
    LOGGER.setLevel(logging.DEBUG)  # what is shown is for the parent to say
    LOGGER.propagate = False


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def open_bench(device: str, settings: Settings) -> int:
    """Open the device's bench and show that it works; the process's id. Raises PassNetError where it does not work."""
    global _bench
    if device.startswith("cuda"):
        torch.cuda.set_device(torch.device(device).index or 0)  # nothing of this process goes to another GPU
    _bench = Bench(device, settings)
    for result in _bench.run(_SMALL, "eager"):
        if result.status != "ok":
            raise PassNetError(f"PassBench does not work on {device}: {result.reason}")
    return os.getpid()


def load_step(step: Callable) -> None:
    """Keep what `run_step` will call."""
    global _step
    _step = step


def run_step(item: Any) -> Any:
    """`step(bench, item)`."""
    with _fatal():
        return _step(_bench, item)


def run_sample(sample: Sample, compiler: str, pass_dir: str | Path | None) -> list[VariantResult]:
    """All of `Bench.run`."""
    with _fatal():
        return list(_bench.run(sample, compiler, pass_dir))


@contextlib.contextmanager
def _fatal() -> Iterator[None]:
    """After an error of CUDA's own this process can do nothing more on the GPU: it ends, and another is started."""
    try:
        yield
    except torch.AcceleratorError:
        LOGGER.info(traceback.format_exc())
        os._exit(1)


def close_bench() -> None:
    """End the bench's workers."""
    _bench.close()
