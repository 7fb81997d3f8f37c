"""Worker tasks that behave badly, each in its own way. Run by test_pool through the warm server."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def run(payload: dict[str, Any]) -> Iterator[Any]:
    """Does what `payload["do"]` names."""
    yield from globals()[f"do_{payload['do']}"](payload)


def do_answer(payload: dict[str, Any]) -> Iterator[Any]:
    yield {"number": payload["number"], "pid": os.getpid()}


def do_loop(_: dict[str, Any]) -> Iterator[Any]:
    while True:
        pass
    yield


def do_answer_then_loop(payload: dict[str, Any]) -> Iterator[Any]:
    yield "first"
    yield from do_loop(payload)


def do_segfault(_: dict[str, Any]) -> Iterator[Any]:
    print("about to read address 0", flush=True)
    yield ctypes.string_at(0)


def do_killed(_: dict[str, Any]) -> Iterator[Any]:
    yield os.kill(os.getpid(), signal.SIGKILL)


def do_exit(_: dict[str, Any]) -> Iterator[Any]:
    sys.exit(3)
    yield


def do_os_exit(_: dict[str, Any]) -> Iterator[Any]:
    yield "said before"
    os._exit(0)


def do_raise(_: dict[str, Any]) -> Iterator[Any]:
    raise ValueError("no such luck")
    yield


def do_memory(_: dict[str, Any]) -> Iterator[Any]:
    hoard = []
    while True:
        hoard.append(bytearray(4 << 20))
    yield


def do_print(_: dict[str, Any]) -> Iterator[Any]:
    for _ in range(2_000):
        os.write(1, b"x" * 10_000 + b"\n")
    print("the last line")
    yield "printed"


def do_close(_: dict[str, Any]) -> Iterator[Any]:
    os.close(1)
    os.close(2)
    time.sleep(0.2)
    yield "closed"


def do_big_answer(payload: dict[str, Any]) -> Iterator[Any]:
    yield "y" * payload["size"]


def do_children(_: dict[str, Any]) -> Iterator[Any]:
    """Leaves a child in its session, one in a session of its own, and one whose parent is gone."""
    children = [subprocess.Popen(["sleep", "600"]), subprocess.Popen(["sleep", "600"], start_new_session=True)]
    lost = subprocess.run(["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True)
    yield [child.pid for child in children] + [int(lost.stdout)]


def do_write(_: dict[str, Any]) -> Iterator[Any]:
    Path("left-behind").write_text("something")
    yield [str(Path.cwd()), os.environ["TMPDIR"]]


def do_note(payload: dict[str, Any]) -> Iterator[Any]:
    """Leaves a file that says which task began in which process, and takes its time."""
    Path(payload["path"], f"{payload['number']}-{os.getpid()}").touch()
    time.sleep(payload["seconds"])
    yield payload["number"]


def do_kill_rays_worker(_: dict[str, Any]) -> Iterator[Any]:
    """Kills the parent of the server that this is a fork of."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    yield os.kill(int(status.partition("PPid:")[2].split()[0]), signal.SIGKILL)
    time.sleep(600)


def do_forks(payload: dict[str, Any]) -> Iterator[Any]:
    """Forks, and its children fork, to at most 2 ** `doublings` processes; each child waits in a session of its own."""
    first = os.getpid()
    for _ in range(payload["doublings"]):
        os.fork()
    if os.getpid() != first:
        os.setsid()
    time.sleep(20)
    os._exit(0)
    yield


def do_share_memory(payload: dict[str, Any]) -> Iterator[Any]:
    """Starts processes that hold `megabytes` each, and waits."""
    for _ in range(payload["holders"]):
        if os.fork() == 0:
            held = bytearray(payload["megabytes"] << 20)
            held[::4096] = b"x" * len(held[::4096])
            time.sleep(20)
            os._exit(0)
    time.sleep(20)
    yield


def do_files(payload: dict[str, Any]) -> Iterator[Any]:
    """Writes files of a megabyte each, and waits."""
    for number in range(payload["files"]):
        Path(f"file{number}").write_bytes(os.urandom(1 << 20))
    time.sleep(20)
    yield


def do_one_file(payload: dict[str, Any]) -> Iterator[Any]:
    """Writes one file, larger and larger."""
    with open("file", "wb") as file:
        for _ in range(payload["files"]):
            file.write(os.urandom(1 << 20))
    yield "written"


def refuse() -> None:
    """A preparation that fails."""
    raise RuntimeError("no library today")
