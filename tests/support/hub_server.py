"""A Hub on loopback for tests, good enough for the real `huggingface_hub` and `datasets`, kept in memory.

    with HubServer(tokens={"hf_owner": "owner"}) as hub:
        HfApi(endpoint=hub.endpoint, token="hf_owner").create_repo("org/name", repo_type="dataset")

Roles of tokens: an `owner` writes anywhere, a `reader` sees private repositories, a `stranger` does not.
There is no Xet storage: clients have to upload with plain LFS. `fail` injects faults, `requests` is the log.
"""

import json
import re
import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.support.hub_protocol import Hub, Reply, is_lfs
from tests.support.hub_repos import Blob, Repo


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    status: int  # 0: the connection was dropped


@dataclass
class Fault:
    """The next `times` requests that match get `status`, or a dropped connection for 0; `after` their effect if set."""

    path: re.Pattern[str]
    status: int
    times: int
    method: str | None
    headers: dict[str, str]
    after: bool
    message: str

    def hits(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method in (None, method) and self.path.search(path) is not None


class HubServer:
    """The server; `endpoint` is what `HF_ENDPOINT` is set to, `hub` is what it holds."""

    def __init__(self, tokens: dict[str, str] | None = None, page_size: int = 1000) -> None:
        self.hub = Hub(tokens or {"hf_owner": "owner"}, page_size)
        self.requests: list[Request] = []
        self._faults: list[Fault] = []
        self._slow: list[list[Any]] = []  # path, wait, times
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.endpoint = self.hub.endpoint = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> "HubServer":
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    def repo(self, name: str, kind: str = "dataset") -> Repo:
        """The repository of that name; KeyError where there is none."""
        return self.hub.repos[kind + "s", name]

    def fail(
        self,
        path: str,
        status: int,
        times: int = 1,
        *,
        method: str | None = None,
        retry_after: str | None = None,
        after: bool = False,
        message: str = "injected",
    ) -> None:
        """Answer the next `times` requests whose path matches with `status` (0 drops the connection); with `after`,
        a request takes its effect first."""
        headers = {"Retry-After": retry_after} if retry_after is not None else {}
        self._faults.append(Fault(re.compile(path), status, times, method, headers, after, message))

    def slow(self, path: str, seconds: float, times: int = 1) -> None:
        """Answer the next `times` requests whose path matches after so many seconds of silence."""
        self._slow.append([re.compile(path), lambda: self._closing.wait(seconds), times])

    def meet(self, path: str, count: int) -> None:
        """Answer the next `count` requests whose path matches when all of them are there; never, if one stays away."""
        self._slow.append([re.compile(path), threading.Barrier(count).wait, count])

    def _silence(self, target: str) -> None:
        with self._lock:
            each = next((each for each in self._slow if each[2] > 0 and each[0].search(target)), None)
            if each is not None:
                each[2] -= 1
        if each is not None:
            each[1]()

    def put(self, kind: str, name: str, files: dict[str, bytes], private: bool = False) -> Repo:
        """Create a repository (`kind` is dataset, model or space) or commit to it, without going through HTTP."""
        with self._lock:
            repo = self.hub.repos.get((kind + "s", name)) or self.hub.create(kind + "s", name, private)
            blobs = {path: Blob(data, is_lfs(path, len(data))) for path, data in files.items()}
            self.hub.lfs |= {blob.sha256: blob.data for blob in blobs.values() if blob.lfs}
            repo.commit("put", {**repo.head.files, **blobs})
            return repo

    def count(self, method: str, path: str) -> int:
        """Requests in the log of that method whose path matches."""
        return sum(r.method == method and re.search(path, r.path) is not None for r in self.requests)

    def respond(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """The answer to one request, with status 0 for a dropped connection."""
        path = urlsplit(target).path
        self._silence(path)
        with self._lock:
            fault = next((f for f in self._faults if f.hits(method, path)), None)
            if fault is None or fault.after:
                reply = self.hub.answer(method, target, headers, body)
            if fault is not None:
                fault.times -= 1
                reply = Reply(fault.status, json.dumps({"error": fault.message}).encode(), fault.headers)
            self.requests.append(Request(method, path, reply.status))
            return reply


def _handler(server: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # headers and body in one segment: two would each wait for an acknowledgement

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = server.respond(self.command, self.path, self.headers, body)
            if reply.status == 0:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    return Handler
