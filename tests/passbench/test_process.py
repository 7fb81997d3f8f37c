"""A child that misbehaves, without the static policy in front: what the process boundary alone stops."""

import json
import os
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from passbench import wire
from passbench.contract import NAMES_FILE
from passbench.process import WorkerDied, WorkerTimeout
from passbench.settings import Settings
from passbench.side import Side
from passbench.wire import Code, Go, Kind, Load, OutputMeta, ProtocolError, Reply
from storage.graph_json import to_json
from tests.passbench.samples import add_relu_sample

CPU = torch.device("cpu")
SETTINGS = Settings().resolved(CPU)
GRAPH = to_json(add_relu_sample((2, 3)).variants[0].graph)


@pytest.fixture(scope="module")
def side(tmp_path_factory):
    one = Side(CPU, SETTINGS, tmp_path_factory.mktemp("worker"))
    yield one
    one.close()


def load(side: Side, directory, name: str, code: str, timeout: float = 30.0) -> Reply:
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
raise ValueError(repr((sorted(os.environ), os.getcwd(), sys.flags.isolated, sys.path[-1],
                       resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_FSIZE)[0])))
"""
    reply = load(side, tmp_path, "asks", code)
    assert reply.code is Code.COMPILE_ERROR
    names, cwd, isolated, last, core, size = eval(reply.text.partition("ValueError: ")[2])
    allowed = {"PATH", "HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "LANG", "LD_LIBRARY_PATH"}
    allowed |= {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CC", "CXX"}
    own = {n for n in names if not n.startswith(("TORCHINDUCTOR", "KMP", "OMP", "PYTORCH", "TORCH_"))}  # set by torch
    assert own <= allowed | {"LC_CTYPE"}
    assert cwd == str(side.scratch / "work") and isolated == 1 and last == str(tmp_path / "asks")
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
    begin = time.monotonic()
    with pytest.raises(WorkerDied, match=r"exit status 3\); its last output: [^\0]*bye$"):
        load(side, tmp_path, "exits", "import os\nprint('bye', flush=True)\nos._exit(3)")
    with pytest.raises(WorkerDied, match="SIGSEGV"):
        load(side, tmp_path, "crashes", "import ctypes\nctypes.string_at(0)")
    assert time.monotonic() - begin < 60


def test_a_hanging_worker_is_killed_with_what_it_started(side, tmp_path):
    code = f"""
import subprocess, time
child = subprocess.Popen(["sleep", "600"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
time.sleep(600)
"""
    side.ask(Go(empty=True), 60)  # started, so that the limit holds for the import alone
    with pytest.raises(WorkerTimeout, match="within 2 s"):
        load(side, tmp_path, "hangs_in_import", code, timeout=2)
    pid = int((tmp_path / "pid").read_text())
    for _ in range(50):
        status = Path(f"/proc/{pid}/status")
        if not status.exists() or "zombie" in status.read_text():
            return
        time.sleep(0.1)
    pytest.fail("a grandchild is still alive")


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


def test_a_worker_dies_with_its_parent(tmp_path):
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        one = Side(CPU, SETTINGS, tmp_path)
        one.ask(Go(empty=True), 60)
        os.write(write, str(one._process._popen.pid).encode())
        os._exit(0)
    os.waitpid(parent, 0)
    worker = Path(f"/proc/{int(os.read(read, 64))}/status")
    for fd in (read, write):
        os.close(fd)
    for _ in range(50):
        if not worker.exists() or "zombie" in worker.read_text():
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived its parent")


def test_replies_round_trip_and_nonsense_is_refused():
    meta = OutputMeta(Kind.TENSOR, torch.bfloat16, (2, 0, 3), (3, 3, 1), -1)
    reply = Reply(Code.NO_MATCH, 1, 2, 3.5, "text\nmore", (meta, meta))
    data = wire.encode_reply(7, reply)
    assert len(data) == wire.HEADER_BYTES + wire.DETAIL_BYTES
    head, detail = wire.decode_header(data[: wire.HEADER_BYTES], 7)
    assert detail
    text, outputs = wire.decode_detail(data[wire.HEADER_BYTES :])
    assert replace(head, text=text, outputs=outputs) == reply
    with pytest.raises(ProtocolError):
        wire.decode_header(data[: wire.HEADER_BYTES], 8)
    with pytest.raises(ProtocolError):
        wire.decode_header(struct.pack("<QIIIId", 7, 99, 0, 0, 0, 0.0), 7)
    with pytest.raises(ProtocolError):
        wire.decode_detail(b"\xff" * wire.DETAIL_BYTES)
    with pytest.raises(ProtocolError):
        wire.decode_detail(b"\0" * (4 + wire.TEXT_BYTES) + struct.pack("<I", 1) + b"\xff" * wire.DETAIL_BYTES)
