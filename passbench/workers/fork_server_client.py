"""The parent's end of the zygote: starts it when first needed, and again should it die."""

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

from passbench.ipc.spawn import Spawn
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


@functools.cache
def shared_launcher(*, interpret: bool) -> "Launcher":
    """The launcher that all benchmarks of this process share. It ends with the process.

    Its zygote has imported libraries and holds nothing of a benchmark, so that the next one need not wait for another.
    `interpret`: as `Launcher` has it.
    """
    scratch = Path(tempfile.mkdtemp(prefix="passbench-zygote-"))
    one = Launcher(scratch, interpret=interpret)
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    atexit.register(one.close)  # called first
    return one


class Launcher:
    """Starts workers. `interpret`: Triton kernels of these workers run on the CPU, through its interpreter."""

    def __init__(self, scratch: Path, *, interpret: bool = False) -> None:
        self.scratch, self.interpret = scratch, interpret
        self._zygote: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self._problem: str | None = None
        self._lock = threading.RLock()

    def start(self) -> None:
        """Start the zygote unless it runs; returns at once."""
        with self._lock:
            if self._zygote is None or self._zygote.poll() is not None:
                self._start()

    def spawn(self, request: Spawn, fds: tuple[int, ...]) -> None:
        """Ask for a worker; returns at once. The descriptors are `Spawn`'s, in its order."""
        data = pickle.dumps(request)
        if len(data) > MESSAGE_BYTES:
            raise ValueError("the environment and the paths of a worker do not fit into one message")
        with self._lock:
            self.start()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the report says that nothing started
                socket.send_fds(self._control, [data], fds)

    def why_not_isolated(self) -> str:
        """Why workers are not in namespaces of their own on this machine; empty if they are. Waits for the zygote, and
        raises PassNetError if it does not start."""
        with self._lock:
            if self._problem is None:
                if self._zygote is None:
                    self.start()
                try:
                    word = self._control.recv(WORD_BYTES)
                except ConnectionResetError:
                    word = b""
                if not word:
                    raise PassNetError(f"PassBench's workers do not start here: {self.last_words()}")
                self._problem = word.decode("utf-8", "replace").strip()
            return self._problem

    def last_words(self) -> str:
        """The end of what the zygote has written: why it did not start."""
        path = self.scratch / "zygote.log"
        return path.read_text("utf-8", "replace")[-2000:].strip() if path.exists() else ""

    def close(self) -> None:
        """End the zygote; workers that it has started go on until they are closed."""
        if self._zygote is not None:
            self._control.close()
            self._zygote.kill()
            self._zygote.wait()
            self._zygote = None

    def _start(self) -> None:
        if self._control is not None:
            self._control.close()
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._problem = None
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        boot = _BOOT.format(path=_import_path(), control=theirs.fileno(), scratch=str(self.scratch))
        with theirs, open(self.scratch / "zygote.log", "wb") as log:
            self._zygote = subprocess.Popen(
                [sys.executable, "-I", "-c", boot],
                env=environment(self.scratch, self.interpret),
                cwd=self.scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )


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
