"""Tasks in killable processes on every node of a Ray cluster: `extraction.pool.client.Pool` with Ray in between.

Ray chooses the node: a task takes one of its cores, goes to another node when its own is lost, and nodes that join the
cluster get their share. On a node, each of Ray's workers has a warm server of its own (`extraction.pool.server`), which
forks, limits and kills as it does without Ray.

All nodes have PassNet installed. They see the files that payloads name (`file`, which a task reads, and `out`, which it
writes), or get and hand in these through a `storage.mirror.Mirror`.
"""

import contextlib
import hashlib
import os
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from extraction.pool.client import DISK_MB, PROCESSES, Pool, ServerEnded, TaskReply
from storage.errors import PassNetError, installed_by
from storage.mirror import Mirror

TRIES = 4
"""How often a task is begun whose node or process is lost each time."""
_AHEAD = 2
"""Tasks that Ray is given for each core of its cluster, so that no core waits for the next one."""
_COUNT_S = 5.0
"""Seconds after which the cluster's cores are counted again."""
_POLL_S = 0.5


class RayPool:
    """Runs tasks on the cluster at RAY_ADDRESS; without that, on one that starts on this machine and ends with it.

    `workers`: tasks at a time at most, also the cores of a cluster that is started here; None: all cores there are.
    The other parameters limit each task, as in `Pool`. `mirror`: where nodes find files that they do not see. Use it as
    a context manager.
    """

    def __init__(
        self,
        *,
        workers: int | None,
        timeout_s: float,
        memory_mb: int,
        processes: int = PROCESSES,
        disk_mb: int = DISK_MB,
        mirror: Mirror | None = None,
    ) -> None:
        self._workers, self._mirror = workers, mirror
        self._limits = {"timeout_s": timeout_s, "memory_mb": memory_mb, "processes": processes, "disk_mb": disk_mb}
        self._open = contextlib.ExitStack()
        self._counted = float("-inf")
        self._cores = 1
        self._digests: dict[Path, str] = {}
        self.done_on: Counter[str] = Counter()
        """Tasks that each node has finished, by its name and address."""

    def __enter__(self) -> Self:
        """Raises PassNetError where Ray is not installed, or its cluster is not there."""
        try:
            import ray
        except ImportError as error:
            raise PassNetError(f"Ray is not installed ({error}): {installed_by('pipeline,ray')}") from error
        if not ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS")
            own = {} if address else {"num_cpus": self._workers, "include_dashboard": False}
            try:
                ray.init(address or "local", log_to_driver=False, configure_logging=False, **own)
            except (ConnectionError, ValueError) as error:
                raise PassNetError(
                    f"no Ray cluster at RAY_ADDRESS {address!r}: {str(error).splitlines()[0]}"
                ) from error
            self._open.callback(ray.shutdown)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def size(self) -> str:
        """How much works here, in words."""
        import ray

        nodes = sum(node["Alive"] for node in ray.nodes())
        return f"{self._at_a_time()} cores of {nodes} Ray node{'s' if nodes > 1 else ''}"

    def warm_up(self, prepare: str) -> None:
        """Nothing: Ray's workers start, and prepare, with their first task."""

    def run(self, task: str, payloads: Iterable[Any], prepare: str = "") -> Iterator[TaskReply]:
        """As `Pool.run`, on any node. A task whose node or process is lost `TRIES` times is answered with end "lost".

        Raises PassNetError where a node's server cannot start. Closing the iterator before its end kills all workers.
        """
        import ray
        from ray.exceptions import RayError, RayTaskError

        remote = ray.remote(num_cpus=1, max_retries=TRIES - 1, retry_exceptions=[ServerEnded])(_on_node)
        waiting, rest = {}, iter(payloads)
        more = True
        try:
            while more or waiting:
                while more and len(waiting) < self._ahead():
                    try:
                        payload = next(rest)
                    except StopIteration:
                        more = False
                    else:
                        waiting[remote.remote(self._limits, task, payload, prepare, self._files(payload))] = payload
                for ref in ray.wait(list(waiting), timeout=_POLL_S)[0] if waiting else ():
                    try:
                        where, reply = ray.get(ref)
                    except RayTaskError as error:
                        raise error.cause if isinstance(error.cause, PassNetError) else error from None
                    except RayError as error:  # the process that ran it, or its node
                        where, reply = "", {"answer": None, "end": "lost", "code": TRIES, "log": str(error)}
                    payload = waiting.pop(ref)
                    if where:
                        self.done_on[where] += 1
                    if self._mirror and "out" in payload and reply["end"] == "exit" and reply["code"] == 0:
                        self._mirror.fetch(Path(payload["out"]))
                    yield TaskReply(payload, **{"seconds": 0.0, **reply}, where=where)
        finally:
            for ref in waiting:
                ray.cancel(ref, force=True)

    def _files(self, payload: Any) -> "NodeFiles | None":
        """What a node has to know to get the files of a payload; the one that it reads is in the store then."""
        if self._mirror is None or "file" not in payload:
            return None
        path = Path(payload["file"])
        self._mirror.push(path)
        if path not in self._digests:
            self._digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()[:20]
        return NodeFiles(self._mirror.url, str(self._mirror.root), self._digests[path])

    def _at_a_time(self) -> int:
        import ray

        if time.monotonic() - self._counted > _COUNT_S:
            self._cores, self._counted = int(ray.cluster_resources().get("CPU", 0)) or 1, time.monotonic()
        return min(self._cores, self._workers or self._cores)

    def _ahead(self) -> int:
        """Tasks that Ray is given at a time; where `workers` bounds them, no more than may run."""
        return self._at_a_time() if self._workers else _AHEAD * self._at_a_time()


@dataclass(frozen=True)
class NodeFiles:
    """Where a node gets a payload's file: the URL, the directory that its paths are in, the digest of the file."""

    url: str
    root: str
    digest: str

    @contextlib.contextmanager
    def here(self, payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The payload with its paths on this node; what the block leaves at `out` is in the store after it.

        What was read stays for the node's other tasks, in a directory of this store's beside its temporary files.
        """
        name = hashlib.sha256(f"{self.url} {self.root}".encode()).hexdigest()[:12]
        inputs = Mirror(self.url, Path(tempfile.gettempdir(), f"passnet-{name}", self.digest))
        file = inputs.root / Path(payload["file"]).relative_to(self.root)
        inputs.fetch(file)
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / Path(payload["out"]).relative_to(self.root)
            out.parent.mkdir(parents=True)
            yield {**payload, "file": str(file), "out": str(out)}
            if out.exists():
                Mirror(self.url, Path(scratch)).push(out)


_POOL: Pool | None = None
"""The pool of one of Ray's workers, which takes one task after another."""


def _on_node(
    limits: dict[str, Any], task: str, payload: Any, prepare: str, files: NodeFiles | None
) -> tuple[str, dict[str, Any]]:
    """Where a task ran, and what came of it: the fields of its `TaskReply` but the payload."""
    import ray

    global _POOL
    if _POOL is None:
        _POOL = Pool(workers=1, **limits)
    with files.here(payload) if files else contextlib.nullcontext(payload) as given:
        (reply,) = _POOL.run(task, [given], prepare)
    fields = asdict(reply)
    for name in ("payload", "where"):
        del fields[name]
    node = ray.get_runtime_context().get_node_id()
    return f"{socket.gethostname()} {node[:8]}", fields
