"""A child that misbehaves, without the static policy in front: what the process boundary alone stops."""

import json
import os
import signal
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from passbench.contract import NAMES_FILE
from passbench.ipc import wire
from passbench.ipc.messages import Code, Load, OutputKind, OutputMeta, Ping, WorkerReply
from passbench.settings import Settings
from passbench.workers.fork_server_client import ForkServer, Launcher, shared_launcher
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_process import WorkerDied, WorkerTimeout
from storage.graph.as_json import to_json
from tests.passbench.samples import add_relu_sample
from tests.support.processes import processor_seconds

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
SETTINGS = Settings().resolved(CPU)
GRAPH = to_json(add_relu_sample((2, 3)).variants[0].graph)


@pytest.fixture(scope="module")
def launcher():
    return shared_launcher(interpret=False)


@pytest.fixture(scope="module")
def side(launcher, tmp_path_factory):
    one = WorkerHandle(CPU, SETTINGS, launcher, tmp_path_factory.mktemp("worker") / "box")
    yield one
    one.close()


@pytest.fixture(scope="module")
def open_side(launcher, tmp_path_factory):
    """A worker without namespaces, as on machines that have none."""
    settings = replace(SETTINGS, off=frozenset({"namespaces"}))
    one = WorkerHandle(CPU, settings, launcher, tmp_path_factory.mktemp("open") / "box")
    yield one
    one.close()


def load(side: WorkerHandle, directory, name: str, code: str, timeout: float = 30.0) -> WorkerReply:
    """Have the child import a module of this code."""
    directory = directory / name
    directory.mkdir()
    (directory / NAMES_FILE).write_text(json.dumps([name]))
    (directory / f"{name}.py").write_text(code)
    return side.ask(Load(GRAPH, "pass", str(directory)), timeout)


def test_the_environment_is_empty_and_limits_are_on(side, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    code = """
import os, resource, sys
raise ValueError(repr((sorted(os.environ), os.getcwd(), sys.flags.isolated, sys.path,
                       resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_FSIZE)[0])))
"""
    reply = load(side, tmp_path, "asks", code)
    assert reply.code is Code.COMPILE_ERROR
    names, cwd, isolated, places, core, size = eval(reply.text.partition("ValueError: ")[2])
    allowed = {"PATH", "HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "LANG", "LD_LIBRARY_PATH"}
    allowed |= {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CC", "CXX", "TEARDOWN_CUPTI"}
    own = {n for n in names if not n.startswith(("TORCHINDUCTOR", "KMP", "OMP", "PYTORCH", "TORCH_"))}  # set by torch
    assert own <= allowed | {"LC_CTYPE"}
    assert cwd == str(side.box / "work") and isolated == 1 and str(tmp_path / "asks") not in places
    assert core == (0, 0) and size == 4 << 30


def test_gigabytes_of_output_do_no_harm(side, tmp_path):
    code = "import sys\nfor _ in range(2000):\n    print('ES_t: 100 ' * 100_000)\nraise ValueError('printed')\n"
    reply = load(side, tmp_path, "prints", code, timeout=60)
    assert "ValueError: printed" in reply.text


def test_text_is_bounded_and_without_control_characters(side, tmp_path):
    reply = load(side, tmp_path, "writes", "raise ValueError('\\x1b[31m\\x00' + 'a' * 100_000)")
    assert len(reply.text) <= wire.TEXT_BYTES
    assert reply.text.isprintable() and "?[31m?" in reply.text


def test_a_dead_worker_is_reported_and_replaced(side, tmp_path):
    with pytest.raises(WorkerDied, match=r"exit status 3\); its last output: [^\0]*bye$"):
        load(side, tmp_path, "exits", "import os\nprint('bye', flush=True)\nos._exit(3)")
    with pytest.raises(WorkerDied, match="SIGSEGV"):
        load(side, tmp_path, "crashes", "import ctypes\nctypes.string_at(0)")


def gone(pid: int) -> bool:
    """Whether a process ends within five seconds."""
    status = Path(f"/proc/{pid}/status")
    for _ in range(50):
        if not status.exists() or "zombie" in status.read_text():
            return True
        time.sleep(0.1)
    return False


def test_a_hanging_worker_is_killed_with_what_it_started(open_side, tmp_path):
    code = f"""
import subprocess, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open({str(open_side.box / "work" / "pid")!r}, "w").write(str(child.pid))
time.sleep(600)
"""
    open_side.ask(Ping(), 60)  # started, so that the limit holds for the import alone
    with pytest.raises(WorkerTimeout, match="within 2 s"):
        load(open_side, tmp_path, "hangs_in_import", code, timeout=2)
    assert gone(int((open_side.box / "work" / "pid").read_text()))


def test_what_a_worker_leaves_behind_ends_with_it(open_side, tmp_path):
    code = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("pid", "w").write(str(os.getpid()))
        while True:
            pass
    os._exit(0)
os.wait()
import time
while not os.path.exists("pid") or not open("pid").read():
    time.sleep(0.01)
raise ValueError("left a daemon")
"""
    assert "left a daemon" in load(open_side, tmp_path, "leaves", code).text
    pid = int((open_side.box / "work" / "pid").read_text())
    assert not Path(f"/proc/{pid}/status").read_text().count("zombie")
    open_side.stop()
    assert gone(pid)


def test_a_worker_sees_no_network_no_other_process_and_read_only_files(side, launcher, tmp_path):
    if problem := launcher.why_not_isolated():
        pytest.skip(f"no namespaces here: {problem}")
    target = tmp_path / "result.json"
    target.write_text("1.0")
    code = f"""
import os, socket
found = {{}}
def attempt(name, action):
    try:
        found[name] = repr(action())
    except OSError as error:
        found[name] = type(error).__name__ + str(error.errno)
attempt("write", lambda: open({str(target)!r}, "w"))
attempt("create", lambda: open("/tmp/passbench-was-here", "w"))
attempt("sysctl", lambda: open("/proc/sys/kernel/hostname", "w"))
attempt("remount", lambda: os.system("mount -o remount,rw / 2>/dev/null"))
attempt("own", lambda: open("mine", "w").write("x"))
attempt("connect", lambda: socket.create_connection(("192.0.2.1", 80), 2))
attempt("processes", lambda: sorted(int(p) for p in os.listdir("/proc") if p.isdigit()))
attempt("interfaces", lambda: [name for _, name in socket.if_nameindex()])
attempt("disks", lambda: [d for d in os.listdir("/dev") if d.startswith(("vd", "sd", "nvme", "loop"))])
attempt("capabilities", lambda: [l.split()[1] for l in open("/proc/self/status") if l.startswith("CapEff")])
raise ValueError(repr(found))
"""
    reply = load(side, tmp_path, "looks_around", code)
    found = eval(reply.text.partition("ValueError: ")[2])
    assert found["write"].startswith("OSError30") and found["create"].startswith("OSError30"), found
    assert found["sysctl"] in ("OSError30", "PermissionError13") and found["remount"] != "0"
    assert found["own"] == "1" and found["connect"] == "OSError101"
    assert found["processes"] == "[1]" and found["interfaces"] in ("['lo']", "[]")
    assert found["disks"] == "[]" and found["capabilities"] == "['0000000000000000']"
    assert target.read_text() == "1.0"


def test_why_isolation_does_not_work_is_said(tmp_path, torch_forks):
    code = "from pathlib import Path; from passbench.workers.fork_server import _why_not_isolated as why;"
    code += f"print([why(Path(p)) for p in {[str(tmp_path), str(tmp_path / 'missing')]}])"
    done = torch_forks(code)
    assert done.returncode == 0, done.stderr
    here, nowhere = eval(done.stdout)
    assert nowhere == here or "No such file or directory" in nowhere
    assert nowhere


def test_forged_answers_are_refused(side, tmp_path):
    code = """
import os, time
for fd in range(3, 64):
    try:
        os.write(fd, b"\\0" * 4096)
    except OSError:
        pass
time.sleep(600)
"""
    with pytest.raises(WorkerDied, match="out of turn"):
        load(side, tmp_path, "forges", code)


@pytest.fixture(scope="module")
def own_server(tmp_path_factory):
    server = ForkServer(tmp_path_factory.mktemp("server") / "zygote")
    yield server
    server.close()


def test_a_worker_dies_with_its_parent(own_server, tmp_path):
    read, write = os.pipe()
    lent = own_server.lend()
    parent = os.fork()
    if parent == 0:
        server = ForkServer(tmp_path)
        server.borrow(*lent)
        one = WorkerHandle(CPU, SETTINGS, Launcher(server), tmp_path / "worker" / "box")
        one.ask(Ping(), 60)
        os.write(write, str(one._process.pid).encode())
        os._exit(0)
    os.waitpid(parent, 0)
    pid = int(os.read(read, 64))
    for fd in (read, write):
        os.close(fd)
    assert gone(pid)


def test_a_zygote_that_dies_is_replaced(own_server, tmp_path):
    launcher = Launcher(own_server)
    one = WorkerHandle(CPU, SETTINGS, launcher, tmp_path / "worker" / "box")
    assert one.ask(Ping(), 60).code is Code.OK
    own_server._process.kill()
    own_server._process.wait()
    assert one.ask(Ping(), 60).code is Code.OK  # a worker outlives it
    one.stop()
    assert one.ask(Ping(), 60).code is Code.OK
    one.close()


def test_a_worker_that_is_well_after_a_failure_is_kept(side, tmp_path):
    assert load(side, tmp_path, "raises", "raise ValueError").code is Code.COMPILE_ERROR
    pid = side._process.pid
    side.recover()
    assert side.ask(Ping(), 60).code is Code.OK and side._process.pid == pid
    os.kill(pid, signal.SIGKILL)
    side.recover()
    assert side.ask(Ping(), 60).code is Code.OK and side._process.pid != pid


def test_a_worker_starts_without_importing_torch_again(side):
    side.ask(Ping(), 60)
    side.stop()
    side.ask(Ping(), 60)
    assert processor_seconds(side._process.pid) < 1  # 0.1 s; importing torch takes over two


def test_replies_round_trip_and_nonsense_is_refused():
    meta = OutputMeta(OutputKind.TENSOR, torch.bfloat16, (2, 0, 3), (3, 3, 1), -1)
    seen = WorkerReply(Code.OK, observed=b"o" * wire.OBSERVED_BYTES)
    for reply in (WorkerReply(Code.NO_MATCH, 1, 2, 3.5, 4.5, "text\nmore", (meta, meta)), seen, WorkerReply(Code.OK)):
        data = wire.encode_reply(7, reply)
        head, follows = wire.decode_header(data[: wire.HEADER_BYTES], 7)
        rest = data[wire.HEADER_BYTES :]
        assert len(rest) == (wire.rest_bytes(follows) if follows else 0)
        assert (wire.decode_rest(head, follows, rest) if follows else head) == reply
    with pytest.raises(wire.ProtocolError):
        wire.decode_header(data[: wire.HEADER_BYTES], 8)
    with pytest.raises(wire.ProtocolError):
        wire.decode_header(struct.pack("<QIIIIdd", 7, 99, 0, 0, 0, 0.0, 0.0), 7)
    with pytest.raises(wire.ProtocolError):
        wire.decode_detail(b"\xff" * wire.DETAIL_BYTES)
    with pytest.raises(wire.ProtocolError):
        wire.decode_detail(b"\0" * (4 + wire.TEXT_BYTES) + struct.pack("<I", 1) + b"\xff" * wire.DETAIL_BYTES)
