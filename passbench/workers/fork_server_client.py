"""The parent's end of the fork server, and what starts workers through it."""

import atexit
import contextlib
import functools
import importlib
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from passbench.ipc.spawn import Ready, RunModule, Spawn
from passbench.workers.fork_server import MESSAGE_BYTES, WORD_BYTES
from storage.errors import PassNetError

_BOOT = """import sys; sys.path[:0] = {path!r}
from passbench.workers.fork_server import main
main({control!r}, {scratch!r})
"""
_PATH = "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin"
_KEPT = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "LD_LIBRARY_PATH",
    "CC",
    "CXX",
    "CUDA_HOME",
    "TRITON_LIBCUDA_PATH",
)


class ForkServer:
    """The process that workers are forks of, started when it is first needed, and again should it die. `scratch` is
    its directory; it ends with `close`, or with this process."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self._lock = threading.RLock()

    def send(self, request: Ready | RunModule | Spawn, fds: tuple[int, ...]) -> None:
        """Ask for something; returns at once. The descriptors are those of `request`, in its order. They are closed
        where nothing could be started."""
        data = pickle.dumps(request)
        if len(data) > MESSAGE_BYTES:
            raise ValueError("the environment and the paths of a worker do not fit into one message")
        with self._lock:
            if self._control is None or (self._process is not None and self._process.poll() is not None):
                self._start()
            try:
                socket.send_fds(self._control, [data], fds)
            except (BrokenPipeError, ConnectionResetError):
                self._start()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    socket.send_fds(self._control, [data], fds)

    def lend(self) -> tuple[Path, socket.socket]:
        """What `borrow` needs in a fork of this process or of another one."""
        with self._lock:
            if self._control is None:
                self._start()
            return self.scratch, self._control

    def borrow(self, scratch: Path, control: socket.socket) -> None:
        """Use the server of the process that has started this one. It ends with that process."""
        self.scratch, self._control = scratch, control

    def last_words(self) -> str:
        """The end of what the server has written: why it did not start."""
        path = self.scratch / "zygote.log"
        return path.read_text("utf-8", "replace")[-2000:].strip() if path.exists() else ""

    def close(self) -> None:
        """End the server; workers that it has started go on until they are closed."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        self.close()
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        boot = _BOOT.format(path=_import_path(), control=theirs.fileno(), scratch=str(self.scratch))
        with theirs, open(self.scratch / "zygote.log", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", boot],
                env=environment(self.scratch, False),
                cwd=self.scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )


@functools.cache
def shared_server() -> ForkServer:
    """The server of all benchmarks of this process. It ends with the process.

    It has imported libraries and holds nothing of a benchmark, so that the next one need not wait for another.
    """
    scratch = Path(tempfile.mkdtemp(prefix="passbench-zygote-"))
    one = ForkServer(scratch)
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    atexit.register(one.close)  # called first
    return one


class Launcher:
    """Starts workers. `interpret`: Triton kernels of these workers run on the CPU, through its interpreter."""

    def __init__(self, server: ForkServer, *, interpret: bool = False) -> None:
        self.server, self.interpret = server, interpret
        self._word: int | None = None  # a descriptor, where the word on isolation has been asked for
        self._problem: str | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Let the server import what workers need; returns at once."""
        with self._lock:
            self._ask()

    def spawn(self, request: Spawn, fds: tuple[int, ...]) -> None:
        """Ask for a worker; returns at once. The descriptors are `Spawn`'s, in its order."""
        self.server.send(request, fds)

    def why_not_isolated(self) -> str:
        """Why workers are not in namespaces of their own on this machine; empty if they are. Waits for the server, and
        raises PassNetError if it does not start."""
        with self._lock:
            if self._problem is None:
                self._ask()
                with os.fdopen(self._word, "rb", 0) as stream:
                    self._word, word = None, stream.read(WORD_BYTES)
                if not word:
                    raise PassNetError(f"PassBench's workers do not start here: {self.server.last_words()}")
                self._problem = word.decode("utf-8", "replace").strip()
            return self._problem

    def _ask(self) -> None:
        if self._word is None and self._problem is None:
            self._word, write = os.pipe()
            try:
                self.server.send(Ready(self.interpret), (write,))
            finally:
                os.close(write)


@functools.cache
def shared_launcher(*, interpret: bool) -> Launcher:
    """The launcher that all benchmarks of this process share, on `shared_server`. `interpret`: as `Launcher` has it."""
    return Launcher(shared_server(), interpret=interpret)


def _import_path() -> list[str]:
    """Where workers find our code and its libraries: the directories that this process found them in."""
    names = ("passbench", "torch", "triton", "numpy", "storage")
    files = [importlib.import_module(name).__file__ for name in names]
    return list(dict.fromkeys(str(Path(file).resolve().parent.parent) for file in files))


def environment(box: Path, interpret: bool) -> dict[str, str]:
    """Nothing of this process's environment but what finds the device and its libraries."""
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    env |= {
        "PATH": _PATH,
        "HOME": str(box / "home"),
        "TMPDIR": str(box / "tmp"),
        "TRITON_CACHE_DIR": str(box / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(box / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of processes beside a timed one
        "TEARDOWN_CUPTI": "1",  # see passbench.child.profiled
        "LANG": "C.UTF-8",
    }
    return env | ({"TRITON_INTERPRET": "1"} if interpret else {})
